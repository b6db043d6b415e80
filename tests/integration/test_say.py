from __future__ import annotations

import json
import logging
import os
import pty
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soxr

from tests.integration.say_stage import PATIENCE_S, SEED, Done, House, antiphon, first, frames, working
from tests.listening import heard, pages
from worker.cli.main import main

LONG = (
    "The quick brown fox jumps over the lazy dog, and then it sleeps. "
    "Later that day, it wakes up again and walks home through the rain. "
    "Nobody asks where it has been all this time."
)
FRAME_BYTES = 3840
"""80 ms."""
SECOND_BYTES = 48_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with working() as url:
        yield url


@pytest.fixture
def house(url: str, tmp_path: Path) -> House:
    return House(url, tmp_path)


@pytest.fixture
def logging_restored() -> Iterator[None]:
    """A command configures logging for its process."""
    root, raising = logging.getLogger(), logging.raiseExceptions
    handlers, level = list(root.handlers), root.level
    yield
    logging.captureWarnings(False)
    logging.raiseExceptions = raising
    root.handlers[:] = handlers
    root.setLevel(level)


class Inside:
    """The command in this process, for speed; standard output is a file then."""

    def __init__(self, url: str, capture: pytest.CaptureFixture[bytes]) -> None:
        self._url, self._capture = url, capture

    def run(self, command: str, *argv: str) -> Done:
        code = main([command, "--nats.url", self._url, *argv])
        out, err = self._capture.readouterr()
        return Done(code, out, err.decode())

    def say(self, *argv: str) -> Done:
        return self.run("say", "--seed", SEED, *argv)


@pytest.fixture
def inside(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    logging_restored: None,
) -> Inside:
    monkeypatch.chdir(tmp_path)
    return Inside(url, capfdbinary)


def test_a_text_longer_than_the_worker_s_room_and_our_credit_is_spoken_whole(inside: Inside) -> None:
    done = inside.say(LONG, "--out", "a.wav")
    assert done.code == 0, done.err
    assert len(frames(Path("a.wav"))) > 10.5 * SECOND_BYTES, "more than it may send without new credit"
    assert done.out == b""
    assert re.fullmatch(
        r"first audio after \d+ ms; \d+\.\d\d s of speech in \d+\.\d\d s, real-time factor \d+\.\d\d; a\.wav\n",
        done.err,
    )
    assert os.listdir() == ["a.wav"]


def test_file_stdin_and_argument_give_the_same_speech(house: House, inside: Inside) -> None:
    text = LONG[:34]
    Path("text").write_text(text)
    wanted = inside.say("--raw", text).out
    assert len(wanted) > SECOND_BYTES
    assert inside.say("--raw", "--file", "text").out == wanted
    with house.start("say", "--seed", SEED, "--raw", bufsize=0) as process:
        assert process.stdin is not None
        for letter in text.encode():
            process.stdin.write(bytes([letter]))
            time.sleep(0.001)  # no synchronisation: it only makes the pieces small
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert out == wanted


def test_options_reach_the_worker(inside: Inside) -> None:
    quick = inside.say("--raw", "Thank you.").out
    assert len(inside.say("--raw", "Thank you.", "--padding-between", "8").out) > len(quick)
    narrow = inside.say("--raw", "Thank you.", "--rate", "8000", "--format", "pcm_f32le").out
    assert len(narrow) * 3 == len(quick) * 2
    assert inside.say("--raw", "Thank you.", "--pronounce", "Thank=Many thanks to").out != quick
    assert inside.say("--raw", "Thank you.", "--pace", "live").out == quick


def test_files_and_pipes_hold_every_format_whole(inside: Inside) -> None:
    """Case C20 for the others: nothing before, between or after; players show the right length."""
    samples = np.frombuffer(inside.say("--raw", "Thank you.").out, "<i2").astype(np.float64) / 32_768
    assert inside.say("Thank you.", "--out", "a.opus").code == 0
    file, piped = Path("a.opus").read_bytes(), inside.say("Thank you.", "--format", "opus").out
    assert len(heard("opus", 24_000, file)) == len(heard("opus", 24_000, piped)) == len(samples)
    for stream in (file, piped):
        found = pages(stream)
        assert [(page.first, page.last) for page in found[:: len(found) - 1]] == [(True, False), (False, True)]
    assert inside.say("Thank you.", "--out", "a.ul").code == 0
    narrow, expected = heard("mulaw", 8_000, Path("a.ul").read_bytes()), soxr.resample(samples, 24_000, 8_000)
    assert len(narrow) == -(-len(expected) // 160) * 160
    assert np.abs(narrow[: len(expected)] - expected).max() < 0.03


def test_marks_are_written_beside_the_speech(inside: Inside) -> None:
    text = "Good morning. You owe $12.50."
    done = inside.say(text, "--out", "a.wav", "--marks", "a.json")
    assert done.code == 0, done.err
    marks = json.loads(Path("a.json").read_bytes())
    assert [mark["word"] for mark in marks] == text.split()
    assert [text[mark["offset"] :].split()[0] for mark in marks] == text.split()
    assert marks[-1]["end_ms"] == len(frames(Path("a.wav"))) / 48
    assert inside.say(text, "--out", "a.wav", "--marks", "a.vtt").code == 0
    captions = Path("a.vtt").read_text()
    assert captions.startswith("WEBVTT\n\n00:00:00.0")
    assert [line for line in captions.split("\n") if line and "-->" not in line][1:] == [
        "Good morning.",
        "You owe $12.50.",
    ]
    assert inside.say("***", "--out", "b.wav", "--marks", "b.srt").code == 1
    assert inside.say("Hi.", "--out", "b.wav", "--marks", "no/such/b.srt").code == 1
    assert sorted(os.listdir()) == ["a.json", "a.vtt", "a.wav"]


def test_a_file_that_was_there_is_replaced_only_by_a_whole_one(inside: Inside) -> None:
    Path("speech.wav").write_bytes(b"old")
    assert inside.say("Hi.", "--out", "speech.wav", "--voice", "nobody").code == 1
    assert Path("speech.wav").read_bytes() == b"old"
    assert inside.say("Hi.", "--out", "speech.wav").code == 0
    frames(Path("speech.wav"))
    assert os.listdir() == ["speech.wav"]


def test_nothing_to_say_is_an_error(inside: Inside) -> None:
    for text in ("", " \n"):
        done = inside.say(text, "--out", "a.wav")
        assert (done.code, done.err) == (1, "antiphon: there is nothing to say: the text is empty\n")
    done = inside.say("\U0001f642 \U0001f642", "--out", "a.wav")
    assert (done.code, done.err) == (1, "antiphon: nothing in the text can be spoken\n")
    assert os.listdir() == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_no_file(house: House, number: signal.Signals, code: int) -> None:
    with house.start("say", "--out", "speech.wav") as process:
        while not os.listdir(house.folder):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert err == b""
    assert os.listdir(house.folder) == []


def test_samples_are_not_thrown_at_a_terminal(house: House) -> None:
    ours, theirs = pty.openpty()
    with house.start("say", "hello", "--raw", stdout=theirs) as process:
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert err == b"antiphon: standard output is a terminal: send it through a pipe, or name a file with --out\n"
    os.close(theirs)
    os.close(ours)


def test_at_a_terminal_the_speech_is_a_file_and_typed_text_is_asked_for(house: House) -> None:
    ours, theirs = pty.openpty()
    with house.start("say", "--seed", SEED, stdin=theirs, stdout=theirs) as process:
        os.write(ours, b"Thank you.\n\x04")
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert err.startswith(b"type what is to be said")
    assert err.endswith(b"; speech.wav\n")
    assert frames(house.folder / "speech.wav")
    os.close(theirs)
    os.close(ours)


def test_a_long_text_has_a_progress_line_at_a_terminal(house: House) -> None:
    ours, theirs = pty.openpty()
    with house.start("say", "--out", "a.wav", stderr=theirs) as process:
        process.communicate(b"Thank you.", PATIENCE_S)
    os.close(theirs)
    said = b""
    while not said.endswith(b"; a.wav\r\n"):
        said += os.read(ours, 4096)
    assert b"s of speech" in said.partition(b"first audio after")[0]
    os.close(ours)


def test_a_pool_without_a_worker_is_named(url: str, inside: Inside) -> None:
    for command in (["say", "Hi."], ["voices"]):
        done = inside.run(*command, "--worker.pool", "nobody")
        assert done.code == 1
        assert done.out == b""
        assert done.err == (f"antiphon: no worker serves the pool 'nobody' at {url}; start one with: antiphon serve\n")


def test_the_voices_of_a_pool_are_listed(inside: Inside) -> None:
    done = inside.run("voices")
    assert done.code == 0, done.err
    lines = done.out.decode().splitlines()
    assert {"pool: std", "voice: default", "language: en", "option: seed"} <= set(lines)
    assert "format: pcm_s16le 8000 16000 22050 24000 44100 48000" in lines
    assert "limit: 60 characters in a message" in lines, "it is the worker that was asked"
    document = json.loads(inside.run("voices", "--json").out)
    assert document["voices"] == ["default"]
    assert document["limits"]["buffer_chars"] == 120


def test_the_voices_of_a_pool_are_a_table_at_a_terminal(house: House) -> None:
    ours, theirs = pty.openpty()
    with house.start("voices", stdout=theirs) as process:
        process.communicate(timeout=PATIENCE_S)
    os.close(theirs)
    assert "│ voice    │ default" in os.read(ours, 65_536).decode()
    os.close(ours)


def test_without_a_server_the_voices_are_the_model_s_own(inside: Inside) -> None:
    assert main(["voices", "--json", "--nats.embedded", "on", "--worker.pool", "here"]) == 0
    document = json.loads(inside._capture.readouterr().out)
    assert (document["voices"], document["pool"]) == (["default"], "here")
    assert "seed" in document["options"]


def test_without_a_server_it_brings_a_worker_of_its_own(tmp_path: Path) -> None:
    with antiphon("say", "--nats.embedded", "on", "--seed", SEED, cwd=tmp_path, bufsize=0) as process:
        assert process.stdin is not None
        process.stdin.write(b"Thank you for calling. How can I ")
        header = first(process.stdout, 44 + FRAME_BYTES)  # while somebody still writes
        process.stdin.write(b"help you? Good bye.")
        rest, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert header.startswith(b"RIFF\xff\xff\xff\xff")
    assert len(rest) > SECOND_BYTES
    assert re.fullmatch(rb"first audio after .* real-time factor \d+\.\d\d\n", err)
