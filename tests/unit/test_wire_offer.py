from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from engine.contract import ModelInfo, SlotOptions
from tests.listening import FORMATS
from worker.errors import WireError
from worker.wire.codec import decode_open
from worker.wire.events import Limits, Ready
from worker.wire.offer import Offer
from worker.wire.requests import Open, Options

DEFAULTS = SlotOptions(seed=0, temperature=0.6, top_k=50, temperature_text=0.5, top_k_text=25, padding_bonus=0.25)
MODEL = ModelInfo(
    name="toy",
    digest="00",
    voices=("anna", "ben"),
    languages=("en",),
    sample_rate=24_000,
    frame_samples=1_920,
    defaults=DEFAULTS,
    options=frozenset({"seed", "temperature", "top_k", "padding_bonus", "max_padding"}),
)
LIMITS = Limits(text_chars=1_000, buffer_chars=100, session_s=600.0, idle_s=60.0)
OFFER = Offer(MODEL, LIMITS)


def settled(**fields: Any) -> Open:
    return OFFER.settle(decode_open({}, json.dumps(fields).encode()), seed=77)


def refused(**fields: Any) -> WireError:
    with pytest.raises(WireError) as error:
        settled(**fields)
    return error.value


def test_every_option_is_decided() -> None:
    chosen = settled()
    assert (chosen.voice, chosen.language, chosen.seed) == ("anna", "en", 77)
    assert (chosen.temperature, chosen.top_k, chosen.padding_bonus, chosen.max_padding) == (0.6, 50, 0.25, 8)
    assert (chosen.cfg, chosen.padding_between) == (None, None)


def test_what_was_asked_for_wins() -> None:
    chosen = settled(voice="ben", seed=5, temperature=0, top_k=0)
    assert (chosen.voice, chosen.seed, chosen.temperature, chosen.top_k) == ("ben", 5, 0.0, 0)


def test_times_are_capped_by_the_limits() -> None:
    assert settled().max_session_s == 600.0
    assert settled().idle_timeout_s == 30.0
    assert settled(idle_timeout_s=90, max_session_s=5).idle_timeout_s == 60.0
    assert settled(idle_timeout_s=90, max_session_s=5).max_session_s == 5.0


@pytest.mark.parametrize(
    "voice", ["../../etc/hostname", "/dev/zero", "/no/such/file", "a\r\nX: y", "", "Anna", "v" * 256]
)
def test_a_voice_is_a_name_in_a_list_and_nothing_else(voice: str) -> None:
    """Case C38 (devnen/Chatterbox-TTS-Server#147): the answer never depends on what files there are."""
    error = refused(voice=voice)
    assert error.code == "voice_not_found"
    assert error.detail == {"voices": ["anna", "ben"]}
    assert str(error) == "voice_not_found: voice: no such voice"


def test_several_voices_are_for_models_that_hear_several() -> None:
    pair = ["anna", "ben"]
    error = refused(voice=pair)
    assert (error.code, error.detail) == ("unsupported_option", {"option": "voice"})
    assert settled(voice=["ben"]).voices == ("ben",)
    several = Offer(dataclasses.replace(MODEL, speakers=2), LIMITS)
    request = decode_open({}, json.dumps({"voice": pair}).encode())
    chosen = several.settle(request, seed=1)
    assert (chosen.voice, chosen.voices) == (pair, ("anna", "ben"))
    with pytest.raises(WireError, match="voice_not_found"):
        several.settle(request.model_copy(update={"voice": ["anna", "bob"]}), seed=1)
    with pytest.raises(WireError, match="unsupported_option: voice: at most 2"):
        several.settle(request.model_copy(update={"voice": ["anna"] * 3}), seed=1)


def test_of_many_voices_the_close_ones_are_named() -> None:
    names = tuple(f"vctk/p{number}.wav" for number in range(200))
    many = Offer(dataclasses.replace(MODEL, voices=names), LIMITS)
    with pytest.raises(WireError) as error:
        many.settle(Open(voice="vctk/p177"), seed=1)
    voices = error.value.detail["voices"]
    assert isinstance(voices, list)
    assert voices[0] == "vctk/p177.wav"
    assert len(voices) == 5


def test_a_language_is_one_of_the_models() -> None:
    assert refused(language="tlh").detail == {"option": "language"}


@pytest.mark.parametrize(("encoding", "rate"), FORMATS)
def test_formats_that_are_offered(encoding: str, rate: int) -> None:
    assert settled(format={"encoding": encoding, "sample_rate": rate}).format.sample_rate == rate


@pytest.mark.parametrize("encoding", ["mp3", "ulaw", "", "PCM_S16LE"])
def test_formats_that_are_not(encoding: str) -> None:
    error = refused(format={"encoding": encoding, "sample_rate": 8_000})
    encodings = ["pcm_s16le", "pcm_f32le", "mulaw", "alaw", "opus", "wav"]
    assert (error.code, error.detail) == ("unsupported_format", {"encodings": encodings})


@pytest.mark.parametrize(
    ("encoding", "rates"),
    [("mulaw", [8_000]), ("alaw", [8_000]), ("opus", [8_000, 16_000, 24_000, 48_000])],
)
def test_rates_that_a_format_has_not(encoding: str, rates: list[int]) -> None:
    error = refused(format={"encoding": encoding, "sample_rate": 22_050})
    assert (error.code, error.detail) == ("unsupported_format", {"sample_rates": rates})


@pytest.mark.parametrize("rate", [0, -1, 1, 11_025, 10**9, 2**63])
def test_absurd_rates(rate: int) -> None:
    error = refused(format={"sample_rate": rate})
    assert error.code == "unsupported_format"
    assert error.detail == {"sample_rates": [8_000, 16_000, 22_050, 24_000, 44_100, 48_000]}


@pytest.mark.parametrize(("name", "value"), [("cfg", 2.0), ("padding_between", 1)])
def test_an_option_that_the_model_cannot_honour(name: str, value: object) -> None:
    error = refused(**{name: value})
    assert (error.code, error.detail) == ("unsupported_option", {"option": name})


@pytest.mark.parametrize("name", ["resume"])
def test_an_option_that_the_worker_cannot_honour(name: str) -> None:
    error = refused(**{name: True})
    assert (error.code, error.detail) == ("unsupported_option", {"option": name})
    assert getattr(settled(**{name: False}), name) is False


def test_features_widen_the_offer() -> None:
    narrow, wide = Offer(MODEL, LIMITS, features=frozenset()), Offer(MODEL, LIMITS, features=frozenset({"fanout"}))
    assert wide.settle(Open(fanout=True), seed=1).fanout
    for request in (Open(gain_db=3.0), Open(trim_silence=True), Open(pronunciations={"a": "b"})):
        with pytest.raises(WireError):
            narrow.settle(request, seed=1)
        assert OFFER.settle(request, seed=1)
    assert wide.options == ["fanout", "max_padding", "padding_bonus", "seed", "temperature", "top_k"]


def test_texts_are_bounded() -> None:
    assert settled(text="a" * 1_000, final=True)
    error = refused(text="a" * 1_001, final=True)
    assert (error.code, error.retryable, error.detail) == ("too_large", False, {"field": "text", "limit": 1_000})
    assert settled(text="a" * 100)
    error = refused(text="a" * 101)
    assert (error.code, error.retryable, error.detail) == ("too_large", True, {"field": "text", "limit": 100})


def test_a_finished_text_is_whole() -> None:
    assert settled(text="Hi \ud83d")
    assert refused(text="Hi \ud83d", final=True).code == "bad_request"
    assert settled(text="", final=True).text == ""


def test_an_open_with_what_ready_says_is_settled_already() -> None:
    asked = settled(voice="ben", gain_db=-3, pronunciations={"GIF": "jif"}, format={"encoding": "wav"})
    ready = Ready.answering(
        asked,
        session="s" * 16,
        input="tts.v1.default.in.w." + "s" * 16,
        worker="w",
        model="toy",
        engine="1.0",
        frame_ms=80.0,
        limits=LIMITS,
    )
    again = OFFER.settle(ready.request("Hello", final=True), seed=123)
    assert {name: getattr(again, name) for name in Options.model_fields} == {
        name: getattr(asked, name) for name in Options.model_fields
    }
    assert again.seed == 77
