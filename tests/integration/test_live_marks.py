"""Marks on the wire: every word of the caller's text once, in media time, on the session's subject before its audio."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.integration.live import JSON, MSGPACK, Fields, House, Session

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "\U0001f642 Hello there, you owe $12.50 \U0001f642 now. - *"
LONG = "We walked along the river, and nobody was on the bridge, so we sat down and looked at the boats for a while."
FORMATS = [
    ("pcm_s16le", 24_000),
    ("pcm_f32le", 44_100),
    ("wav", 16_000),
    ("mulaw", 8_000),
    ("opus", 48_000),
]


def marks_of(session: Session) -> list[Fields]:
    """All marks, checked: none is later than its audio, their order is the text's, and none reaches into the next."""
    rate = session.ready["format"]["sample_rate"]
    marks: list[Fields] = []
    sent = 0  # samples, up to the last audio that is known to be out
    for event in session.events:
        if event.kind == "audio":
            sent = event.number("Tts-Pts")
        elif event.kind == "mark":
            assert event.fields.keys() == {"type", "word", "offset", "start_ms", "end_ms"}
            assert event.fields["start_ms"] * rate >= 1000 * (sent - 1), "before the audio that holds it"
            marks.append(event.fields)
        elif event.kind in ("flushed", "cancelled"):
            sent = event.fields.get("pts", sent)
    for one, following in itertools.pairwise(marks):
        assert one["start_ms"] <= following["start_ms"]
        assert one["start_ms"] <= (one["end_ms"] or one["start_ms"]) <= following["start_ms"]
    return marks


def words(marks: list[Fields]) -> list[tuple[str, int]]:
    return [(mark["word"], mark["offset"]) for mark in marks]


def placed(text: str) -> list[tuple[str, int]]:
    """White-space words and their offsets, in code points."""
    found, at = [], 0
    for word in text.split():
        at = text.index(word, at)
        found.append((word, at))
        at += len(word)
    return found


def starts(marks: list[Fields]) -> list[float]:
    return [mark["start_ms"] for mark in marks]


async def spoken(home: House, *deltas: str, **options: Any) -> Session:
    session = await home.session({"pace": "fast", "marks": True, "seed": 31, **options})
    for seq, delta in enumerate(deltas):
        await session.text(seq, delta)
    await session.say("finish", seq=len(deltas))
    await session.to_end()
    return session


@pytest.mark.parametrize(("encoding", "rate"), FORMATS)
async def test_every_word_has_one_mark_before_its_audio_in_every_format(home: House, encoding: str, rate: int) -> None:
    session = await spoken(home, TEXT, format={"encoding": encoding, "sample_rate": rate})
    marks = marks_of(session)
    assert words(marks) == placed(TEXT)
    usage = session.events[-1].fields["usage"]
    assert usage["words"] == 10, "five of them are one mark"
    silent = [mark for mark in marks if mark["word"] in ("\U0001f642", "-", "*")]
    assert all(mark["start_ms"] == mark["end_ms"] for mark in silent)
    assert [mark["start_ms"] for mark in silent[2:]] == pytest.approx([usage["audio_ms"]] * 2, abs=0.001)
    reference = marks_of(await spoken(home, TEXT))
    assert starts(marks)[:-2] == pytest.approx(starts(reference)[:-2], abs=0.001), "whatever the rate"
    assert 0 < marks[1]["start_ms"] < 200


async def test_marks_do_not_depend_on_how_the_text_is_cut(home: House) -> None:
    """Between UTF-16 units, inside an expression and inside a tag; told in JSON or msgpack."""
    text = 'Yes, \U0001f642 $12.50 on May 5, <break time="0.2s"/>not 12.Let me see.'
    units = text.encode("utf-16-le")
    session = await home.session({"pace": "fast", "marks": True, "seed": 31}, content=JSON)
    for seq, at in enumerate(range(0, len(units), 2)):
        await session.text(seq, units[at : at + 2].decode("utf-16-le", "surrogatepass"))
    await session.say("finish")
    await session.to_end()
    whole = await home.session(
        {"text": text, "final": True, "marks": True, "seed": 31, "pace": "fast"}, content=MSGPACK
    )
    await whole.to_end()
    assert marks_of(session) == marks_of(whole)
    bare = text.replace('<break time="0.2s"/>', " " * 20)
    assert words(marks_of(whole)) == placed(bare)


async def test_media_time_runs_on_over_flushes_and_barge_ins_and_offsets_begin_anew(home: House) -> None:
    session = await home.session({"pace": "fast", "marks": True, "seed": 32})
    await session.text(0, "Good morning. \u2014")
    await session.say("flush", seq=1)
    first = (await session.until("flushed")).fields["pts"] / 24
    await session.text(1, " And good evening.")
    await session.say("flush", seq=2)
    second = (await session.until("flushed")).fields["pts"] / 24
    assert words(marks_of(session)) == placed("Good morning. \u2014 And good evening.")
    times = starts(marks_of(session))
    assert times[1] < first == times[2] <= times[3] < first + 200
    assert times[5] < second
    await session.say("cancel", keep=True)
    cancelled = (await session.until("cancelled")).fields
    assert cancelled["spoken"] == "Good morning. \u2014 And good evening."
    played = session.sample_count() / 24
    await session.text(0, "Sorry, go on.", gen=1)
    await session.say("finish", gen=1)
    await session.to_end()
    last = marks_of(session)[6:]
    assert words(last) == placed("Sorry, go on.")
    assert played < last[0]["start_ms"] < played + 200


async def test_leading_silence_that_is_trimmed_is_out_of_the_times(home: House) -> None:
    plain, trimmed = (
        await spoken(home, "Good morning to you."),
        await spoken(home, "Good morning to you.", trim_silence=True),
    )
    cut_ms = (plain.sample_count() - trimmed.sample_count()) / 24
    assert cut_ms > 5
    expected = [max(0.0, start - cut_ms) for start in starts(marks_of(plain))]
    assert starts(marks_of(trimmed)) == pytest.approx(expected, abs=0.001)


async def test_the_marks_end_where_what_was_spoken_ends(home: House) -> None:
    """And a listener's clock cuts at the same places: a word that has begun was spoken."""
    options = {"text": LONG, "pace": "fast", "credit_ms": 2_000, "marks": True}
    session = await home.session(options)
    while session.sample_count() < 1.9 * 24_000:
        await session.until("audio")
    await session.say("cancel", keep=True)
    cancelled = (await session.until("cancelled")).fields
    told = marks_of(session)
    assert cancelled["spoken"] == LONG[: told[-1]["offset"] + len(told[-1]["word"])]
    assert len(told) > 3
    await session.say("cancel")
    seen = len(session.events)
    await session.to_end()
    assert "mark" not in [event.kind for event in session.events[seen:]]
    for played, count in ((told[2]["start_ms"], 2), (told[2]["start_ms"] + 0.01, 3), (0.0, 0)):
        again = await home.session({**options, "seed": session.ready["seed"]})
        while again.sample_count() < 1.9 * 24_000:
            await again.until("audio")
        await again.say("cancel", played_ms=played)
        spoken_text = (await again.until("cancelled")).fields["spoken"]
        await again.to_end()
        assert marks_of(again)[:3] == told[:3]
        assert spoken_text.split() == LONG.split()[:count]


async def test_a_word_ends_where_a_break_begins(home: House) -> None:
    session = await spoken(home, 'Wait <break time="0.5s"/> then go.')
    wait, then, _ = marks_of(session)
    assert wait["end_ms"] - wait["start_ms"] < 480 <= then["start_ms"] - wait["end_ms"] < 800, "six frames"


async def test_words_that_speak_nothing_have_marks_too(home: House) -> None:
    session = await spoken(home, "\U0001f642 *** \u2014")
    assert session.kinds() == ["ready", "mark", "end"]
    assert [(mark["offset"], mark["start_ms"], mark["end_ms"]) for mark in marks_of(session)] == [
        (0, 0, 0),
        (2, 0, 0),
        (6, 0, 0),
    ]


async def test_without_the_option_there_are_no_marks(home: House) -> None:
    await home.spoken("Good morning.")
