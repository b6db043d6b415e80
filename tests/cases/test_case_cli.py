"""What users of other engines' command lines stumbled over, tried on ours against a worker with the built-in voice."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.say_stage import PATIENCE_S, House, first, frames, working

THREE = "Thank you for calling. How can I help you today? Please hold the line."
MINUTES = " ".join([THREE] * 20)
FRAME_BYTES = 3840
"""80 ms."""
HEADER_BYTES = 44


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with working() as url:
        yield url


@pytest.fixture
def house(url: str, tmp_path: Path) -> House:
    return House(url, tmp_path)


# --- C20: kyutai-labs/pocket-tts#232, remsky/Kokoro-FastAPI#94, #467 --------------------------------------------------


def test_case_c20_three_sentences_to_a_file_a_redirect_and_a_pipe(house: House) -> None:
    assert house.say(THREE, "--out", "a.wav").code == 0
    with (house.folder / "b.wav").open("wb") as redirected:
        assert house.say(THREE, stdout=redirected).code == 0
    piped = house.say(THREE)
    assert piped.code == 0

    samples = frames(house.folder / "a.wav")
    assert len(samples) > 2 * 24_000 * 2
    assert frames(house.folder / "b.wav") == samples
    assert piped.out[4:8] == piped.out[40:44] == b"\xff\xff\xff\xff", "sizes that nobody knows yet"
    assert piped.out[HEADER_BYTES:] == samples, "no second header, no trailer"


def test_case_c20_appending_leaves_what_was_there_alone(house: House) -> None:
    (house.folder / "d.wav").write_bytes(b"before")
    with (house.folder / "d.wav").open("ab") as appended:
        assert house.say("Thank you.", stdout=appended).code == 0
    heard = (house.folder / "d.wav").read_bytes()
    assert heard.startswith(b"beforeRIFF\xff\xff\xff\xff")
    assert heard.count(b"RIFF") == 1


# --- C39: Comfy-Org/comfy-cli#615, software-mansion/react-native-executorch#1134, twilio-labs/call-gpt#18 -------------
# Values that cannot be used (a speed of 0, an unknown format ...) are in tests/unit/test_say_options.py.


@pytest.mark.parametrize("raw", [True, False])
def test_case_c39_a_reader_who_has_enough_ends_it_quietly(house: House, raw: bool) -> None:
    """`say --raw ... | head -c 1000`"""
    with house.start("say", MINUTES, *(["--raw"] if raw else [])) as process:
        assert process.stdout is not None
        first(process.stdout, 1000)
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 141


def test_case_c39_standard_output_carries_audio_only(house: House) -> None:
    done = house.say("Thank you.", "--raw", "--telemetry.log-level", "debug")
    assert done.code == 0
    assert done.out
    assert len(done.out) % FRAME_BYTES == 0
    assert b"antiphon" not in done.out
    assert "first audio after" in done.err


@pytest.mark.parametrize("out", ["a.wav", "-"])
def test_case_c39_a_refused_session_is_an_error_and_no_audio(house: House, out: str) -> None:
    done = house.say("Hello.", "--voice", "nobody", "--out", out)
    assert done.code == 1
    assert done.out == b""
    assert done.err == "antiphon: voice_not_found: voice: no such voice; voices: default\n"
    assert os.listdir(house.folder) == []


@pytest.mark.parametrize("out", ["a.wav", "-"])
def test_case_c39_latin_1_is_named_and_no_audio(house: House, out: str) -> None:
    done = house.say("--out", out, stdin="Der Kaffee im Café.".encode("latin-1"))
    assert done.code == 1
    assert done.out == b""
    assert done.err == (
        "antiphon: standard input: byte 17 is not UTF-8; convert the text first, e.g. iconv -f latin1 -t utf-8\n"
    )
    assert os.listdir(house.folder) == []


def test_case_c39_latin_1_at_the_end_of_a_file_is_found_before_any_audio(house: House) -> None:
    (house.folder / "book").write_bytes(b"Once upon a time. " * 5000 + b"caf\xe9")
    with (house.folder / "book").open("rb") as book, house.start("say", stdin=book) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert out == b""
    assert err.startswith(b"antiphon: standard input: byte 90003 is not UTF-8")
    assert os.listdir(house.folder) == ["book"]


def test_case_c39_text_that_turns_out_to_be_none_in_the_middle_leaves_no_file(house: House) -> None:
    with house.start("say", "--out", "a.wav", bufsize=0) as process:
        assert process.stdin is not None
        process.stdin.write(b"Thank you for calling. How can I help you?")
        while not any(path.stat().st_size for path in house.folder.iterdir() if path.exists()):
            assert process.poll() is None
            time.sleep(0.01)
        _, err = process.communicate(b"caf\xe9", PATIENCE_S)
    assert process.returncode == 1
    assert err.startswith(b"antiphon: standard input: byte 45 is not UTF-8")
    assert os.listdir(house.folder) == []


def test_case_c39_no_server_is_named(house: House, unused_tcp_port: int) -> None:
    nowhere = House(f"nats://127.0.0.1:{unused_tcp_port}", house.folder)
    done = nowhere.say("Hello.", "--out", "a.wav")
    assert done.code == 1
    assert done.out == b""
    assert done.err == f"antiphon: NATS is not available: 127.0.0.1:{unused_tcp_port}: nobody listens there\n"
    assert os.listdir(house.folder) == []


# --- C14: livekit/agents#3798, #4440 ----------------------------------------------------------------------------------


def test_case_c14_what_is_typed_is_spoken_before_the_next_word_comes(house: House) -> None:
    """A finished sentence does not wait for more; at the end of the input the rest follows at once."""
    with house.start("say", "--raw", bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"Yes, it is ready. ")
        heard = first(process.stdout, FRAME_BYTES)  # nothing more is written before this has come
        rest, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert len(heard + rest) > 24_000
