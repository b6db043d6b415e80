from __future__ import annotations

import os
from pathlib import Path

import pytest

from worker.cli.main import main
from worker.cli.say import Say
from worker.layers import SettingsError
from worker.settings import compose
from worker.wire.requests import Open


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def say(*argv: str) -> Say:
    return compose(Say, argv, {}, prog="antiphon say").settings


def request(*argv: str) -> Open:
    return say(*argv)._request()


def test_by_default_speech_is_made_as_fast_as_it_is_taken() -> None:
    made = request("hello")
    assert made.pace == "fast"
    assert made.credit_ms == 10_000
    assert (made.format.encoding, made.format.sample_rate) == ("pcm_s16le", 24_000)
    assert made.text is None
    assert not made.marks
    assert (made.seed, made.voice, made.temperature, made.pronunciations) == (None, None, None, {})


def test_a_session_with_a_name_can_be_heard_by_others() -> None:
    assert not request("hello").fanout
    named = request("hello", "--session", "heard-by-all-of-us")
    assert (named.fanout, named.session) == (True, "heard-by-all-of-us")
    with pytest.raises(SettingsError, match="session"):
        request("hello", "--session", "too short")


def test_options_are_passed_on() -> None:
    made = request(
        *("--voice", "v", "--language", "en", "--seed", "7", "--temperature", "0.5", "--top-k", "3", "--cfg", "2"),
        *("--padding-bonus", "-1.5", "--padding-between", "1", "--max-padding", "4", "--gain-db", "-3"),
        *("--trim-silence", "--pace", "live", "--rate", "8000"),
    )
    assert (made.voice, made.language, made.seed, made.temperature, made.top_k) == ("v", "en", 7, 0.5, 3)
    assert (made.cfg, made.padding_bonus, made.padding_between, made.max_padding) == (2, -1.5, 1, 4)
    assert (made.gain_db, made.trim_silence, made.pace, made.format.sample_rate) == (-3, True, "live", 8000)
    assert request("--marks", "a.SRT").marks
    assert request("--raw", "--format", "pcm_f32le").format.encoding == "pcm_f32le"


FORMS = [
    ([], "pcm_s16le", 24_000),
    (["--out", "a.wav", "--rate", "8000"], "pcm_s16le", 8_000),
    (["--out", "-"], "pcm_s16le", 24_000),
    (["--out", "A.OPUS"], "opus", 24_000),
    (["--out", "a.ogg", "--rate", "48000"], "opus", 48_000),
    (["--format", "opus"], "opus", 24_000),
    (["--out", "a.ul"], "mulaw", 8_000),
    (["--out", "a.al"], "alaw", 8_000),
    (["--format", "mulaw", "--raw"], "mulaw", 8_000),
    (["--format", "alaw", "--out", "a.dat"], "alaw", 8_000),
    (["--format", "pcm_f32le", "--out", "a.raw"], "pcm_f32le", 24_000),
    (["--out", "a.pcm"], "pcm_s16le", 24_000),
    (["--raw", "--out", "a.xyz"], "pcm_s16le", 24_000),
]


@pytest.mark.parametrize(("argv", "encoding", "rate"), FORMS)
def test_the_format_is_named_or_that_of_the_file(argv: list[str], encoding: str, rate: int) -> None:
    """A WAV's samples are asked for bare: its sizes are known here alone."""
    form = request(*argv).format
    assert (form.encoding, form.sample_rate) == (encoding, rate)


def test_voices_are_separated_by_commas() -> None:
    assert request("--voice", "anna, people/bert").voice == ["anna", "people/bert"]
    with pytest.raises(SettingsError, match="--voice: List should have at most 5 items"):
        request("--voice", "a,b,c,d,e,f")


def test_pronunciations_are_pairs_and_may_hold_spaces_and_commas() -> None:
    made = request("--pronounce", "nginx=engine x", "--pronounce", "Yes=yes, well", "--pronounce", 'q="q" = cue')
    assert made.pronunciations == {"nginx": "engine x", "Yes": "yes, well", "q": '"q" = cue'}


BAD = [
    (["--speed", "0"], "--speed: unsupported_option"),
    (["--speed", "NaN"], "--speed: unsupported_option"),
    (["--speed", "-1"], "--speed: unsupported_option"),
    (["--speed", "1e-6"], "--speed: unsupported_option"),
    (["--temperature", "nan"], "--temperature: Input should be a finite number"),
    (["--temperature", "-1"], "--temperature: Input should be greater than or equal to 0"),
    (["--gain-db", "inf"], "--gain-db: Input should be a finite number"),
    (["--seed", "-1"], "--seed: Input should be greater than or equal to 0"),
    (["--seed", "x"], "--seed: Input should be a valid integer"),
    (["--rate", "12345"], "--rate: unsupported_format: one of 8000, 16000"),
    (["--format", "mp3"], "--format: Input should be 'wav', 'opus'"),
    (["--format", "opus", "--raw"], "--format: opus has a header"),
    (["--format", "pcm_f32le", "--out", "a.wav"], "--out: a .wav file holds wav, not pcm_f32le"),
    (["--format", "opus", "--out", "a.pcm"], "--out: a .pcm file holds pcm_s16le, not opus"),
    (["--out", "a.mp3"], "--out: an unknown ending: one of .wav"),
    (["--out", "a.ul", "--rate", "16000"], "--rate: unsupported_format: one of 8000 in mulaw"),
    (["--format", "opus", "--rate", "44100"], "--rate: unsupported_format: one of 8000, 16000, 24000, 48000 in opus"),
    (["--marks", "a.txt"], "--marks: is a file whose name ends in .json, .srt or .vtt"),
    (["--pace", "slow"], "--pace: Input should be"),
    (["--pronounce", "nginx"], "--pronounce: is WORD=SPELLING"),
    (["--pronounce", "=x"], "--pronounce: is WORD=SPELLING"),
    (["--pronounce", "a b=x"], "--pronounce: is WORD=SPELLING"),
    (["--pronounce", "x" * 65 + "=x"], "--pronounce: String should have at most 64 characters"),
    (["--file", "b.txt"], "--file: cannot be combined with a text"),
    (["--sped", "1"], "did you mean --speed?"),
]


@pytest.mark.parametrize(("argv", "said"), BAD)
def test_case_c39_what_cannot_be_used_is_named_before_anything_happens(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Comfy-Org/comfy-cli#615, software-mansion/react-native-executorch#1134."""
    assert main(["say", "hello", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    assert os.listdir() == []


def test_the_text_is_in_no_error() -> None:
    with pytest.raises(SettingsError) as error:
        say("a very private text", "--file", "b.txt", "--seed", "x")
    assert "private" not in str(error.value)
