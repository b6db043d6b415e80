from __future__ import annotations

import json

import pytest

from worker.cli.captions import CAPTION_CHARS, CAPTION_MS, LINE_CHARS, captions, settled, written
from worker.wire.events import Mark


def marked(text: str, step_ms: float = 300.0, pauses: dict[int, float] | None = None) -> list[Mark]:
    """A word every ``step_ms``, its end not told; ``pauses``: told ends, by the word's number, and how much later the
    next word begins."""
    marks, at, offset = [], 80.0, 0
    for number, word in enumerate(text.split()):
        pause = (pauses or {}).get(number)
        end = None if pause is None else at + step_ms
        marks.append(Mark(word=word, offset=offset, start_ms=at, end_ms=end))
        at, offset = at + step_ms + (pause or 0.0), offset + len(word) + 1
    return marks


def texts(marks: list[Mark], audio_ms: float = 1e6) -> list[str]:
    return [caption.text for caption in captions(settled(marks, audio_ms))]


def test_an_end_that_was_not_told_is_the_next_beginning_or_the_end() -> None:
    marks = settled(marked("one two three", pauses={1: 500.0}), 2_000.0)
    assert [(mark.start_ms, mark.end_ms) for mark in marks] == [(80.0, 380.0), (380.0, 680.0), (1180.0, 2000.0)]
    assert settled([], 100.0) == []


def test_json_holds_the_marks() -> None:
    body = written("a.JSON", marked('Hi \U0001f642 "you"'), 1_000.0)
    assert json.loads(body) == [
        {"word": "Hi", "offset": 0, "start_ms": 80.0, "end_ms": 380.0},
        {"word": "\U0001f642", "offset": 3, "start_ms": 380.0, "end_ms": 680.0},
        {"word": '"you"', "offset": 5, "start_ms": 680.0, "end_ms": 1000.0},
    ]
    assert body.count(b"\n") == 5
    assert json.loads(written("a.json", [], 0.0)) == []


def test_subrip() -> None:
    body = written("a.srt", marked("Hello there. How are --> you?"), 3_723_004.4).decode()
    assert body == (
        "1\n00:00:00,080 --> 00:00:00,680\nHello there.\n\n2\n00:00:00,680 --> 01:02:03,004\nHow are -> you?\n\n"
    )


def test_webvtt() -> None:
    body = written("a.vtt", marked("AT&T <b> ok."), 1_000.0).decode()
    assert body == "WEBVTT\n\n00:00:00.080 --> 00:00:01.000\nAT&amp;T &lt;b&gt; ok.\n"
    assert written("a.vtt", [], 0.0) == b"WEBVTT\n"


def test_a_caption_ends_with_a_sentence_and_at_a_pause() -> None:
    text = 'He said "yes." Then he (of all people!) left us and so on'
    assert texts(marked(text)) == ['He said "yes."', "Then he (of all people!)", "left us and so on"]
    assert texts(marked("one two three four", pauses={1: 700.0, 2: 690.0})) == ["one two", "three four"]


@pytest.mark.parametrize("step_ms", [100.0, 900.0])
def test_a_caption_is_neither_too_long_nor_too_slow(step_ms: float) -> None:
    marks = settled(marked("and " * 100 + "x" * 200 + " so on", step_ms), 1e6)
    found = list(captions(marks))
    assert " ".join(caption.text for caption in found) == "and " * 100 + "x" * 200 + " so on"
    for caption in found[:-1]:
        assert len(caption.text) <= CAPTION_CHARS or caption.text == "x" * 200
        assert caption.end_ms - caption.start_ms < CAPTION_MS + step_ms
    for line in written("a.srt", marks[:100], 1e6).decode().split("\n"):
        assert len(line) <= LINE_CHARS
