"""What a stock client gets for one open: events, headers, formats, usage; and what it may not ask for."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.integration.live import JSON, MSGPACK, Heard, House, OpenRefused, Session
from tests.listening import FORMATS, heard

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "The line is open, please go ahead."
FRAME_SAMPLES = 1920


async def test_a_plain_text_open_is_answered_with_speech(home: House) -> None:
    """Must-show 2, with nats-py raw: nothing but a body and an inbox."""
    client = await home.client()
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    await client.publish("tts.v1.default.open.std", TEXT.encode(), reply=inbox)
    events: list[Heard] = []
    while not events or events[-1].kind != "end":
        events.append(Heard.of(await subscription.next_msg(30)))
    await client.flush()
    assert subscription.pending_msgs == 0, "end is the last"
    ready, audio, end = events[0], events[1:-1], events[-1]

    assert ready.headers == {"Tts-Event": "ready", "Content-Type": JSON}
    told = ready.fields
    assert told["input"] == f"tts.v1.default.in.{told['worker']}.{told['session']}"
    assert told["model"] == "antiphon-builtin-1"
    assert told["frame_ms"] == 80.0
    assert told["text_seq"] == 0
    assert told["format"] == {"encoding": "pcm_s16le", "sample_rate": 24000}
    assert told["limits"].keys() == {"text_chars", "buffer_chars", "session_s", "idle_s"}
    assert isinstance(told["seed"], int)

    assert len(audio) > 10
    for index, event in enumerate(audio):
        assert event.kind == "audio"
        assert set(event.headers) == {"Tts-Event", "Tts-Seq", "Tts-Pts", "Tts-Gen", "Content-Type"}
        assert event.headers["Content-Type"] == "audio/x-pcm-s16le"
        assert event.number("Tts-Seq") == index
        assert event.number("Tts-Pts") == sum(len(before.payload) for before in audio[:index]) / 2
        assert event.number("Tts-Gen") == 0
        assert len(event.payload) % 2 == 0
    assert end.headers == {"Tts-Event": "end", "Content-Type": JSON}
    assert end.fields["reason"] == "finished"


async def test_audio_is_speech(home: House) -> None:
    session = await home.spoken(TEXT)
    assert 0.01 < rms(session.samples.astype(np.float64)) < 0.5
    assert 1.0 < len(session.samples) / 24_000 < 6.0


@pytest.mark.parametrize("content", [JSON, MSGPACK])
async def test_a_session_is_answered_in_the_encoding_of_its_open(home: House, content: str) -> None:
    session = await home.session({"type": "open", "text": "Hello there."}, content=content)
    await session.say("ping")
    await session.text(5, "lost")
    await session.say("finish", seq=0)
    await session.to_end()
    assert {event.kind for event in session.events} >= {"ready", "ping", "error", "audio", "end"}
    for event in session.events:
        if event.kind != "audio":
            assert event.headers == {"Tts-Event": event.kind, "Content-Type": content}


async def test_without_a_content_type_a_brace_means_json(home: House) -> None:
    session = await home.session(json.dumps({"text": "Hello.", "final": True}).encode())
    assert (await session.to_end())["usage"]["characters"] == len("Hello.")


async def test_what_ready_says_gives_the_same_audio(home: House) -> None:
    """The random seed too; with the same options by name, in the other encoding."""
    first = await home.session({"text": TEXT, "final": True, "pace": "fast", "temperature": 0.7, "top_k": 40})
    await first.to_end()
    told = {k: v for k, v in first.ready.items() if k not in {"type", "input", "worker", "model", "engine", "session"}}
    told = {k: v for k, v in told.items() if k not in {"frame_ms", "text_seq", "limits"}}
    again = await home.session({**told, "text": TEXT, "final": True}, content=MSGPACK)
    await again.to_end()
    other = await home.spoken(TEXT, seed=told["seed"] ^ 1, temperature=0.7, top_k=40)
    assert again.pcm == first.pcm
    assert other.pcm != first.pcm


async def test_every_format_has_the_duration_of_the_speech(home: House) -> None:
    plain = await home.spoken("Good morning.", seed=5)

    async def check(encoding: str, rate: int) -> None:
        session = await home.spoken("Good morning.", seed=5, format={"encoding": encoding, "sample_rate": rate})
        samples = session.sample_count()
        assert samples == round(plain.sample_count() * rate / 24_000)
        assert session.events[-1].fields["usage"]["audio_ms"] == pytest.approx(1000 * samples / rate)
        header = base64.b64decode(session.ready.get("header", ""))
        assert bool(header) is (encoding in ("wav", "opus"))
        assert session.pcm.startswith(header)
        if encoding == "wav":
            assert session.pcm[:4] == b"RIFF"
            assert int.from_bytes(session.pcm[24:28], "little") == rate
            assert session.pcm.count(b"RIFF") == 1
        sound = heard(encoding, rate, session.pcm)
        assert len(sound) == samples
        assert rms(sound) == pytest.approx(rms(plain.samples.astype(np.float64)), rel=0.15)

    await asyncio.gather(*(check(encoding, rate) for encoding, rate in FORMATS))


def rms(sound: npt.NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(sound))))


async def test_usage_adds_up(home: House) -> None:
    session = await home.spoken(TEXT)
    usage = session.events[-1].fields["usage"]
    samples = session.sample_count()
    assert usage["characters"] == len(TEXT)
    assert usage["words"] == len(TEXT.split())
    assert usage["frames"] * FRAME_SAMPLES == samples
    assert usage["audio_ms"] == samples / 24
    assert usage["first_audio_ms"] > 0
    assert 0 <= usage["queued_ms"] <= usage["first_audio_ms"]
    assert usage["stalled_ms"] == 0


async def test_gain_and_trim_change_what_is_heard(home: House) -> None:
    plain = await home.spoken(TEXT, seed=3)
    quiet = await home.spoken(TEXT, seed=3, gain_db=-6.0)
    trimmed = await home.spoken(TEXT, seed=3, trim_silence=True)
    peak = np.abs(plain.samples).max()
    assert np.abs(quiet.samples).max() == pytest.approx(peak * 10 ** (-6 / 20), rel=0.01)
    cut = len(plain.samples) - len(trimmed.samples)
    assert 0 <= cut < 24_000 / 4
    assert np.array_equal(plain.samples[cut:], trimmed.samples)


async def test_pronunciations_are_spoken(home: House) -> None:
    spelled = await home.spoken("Ask for Nguyen.", seed=4, pronunciations={"Nguyen": "win"})
    plain = await home.spoken("Ask for win.", seed=4)
    assert spelled.pcm == plain.pcm


async def test_an_empty_final_text_ends_with_no_frame(home: House) -> None:
    for text in ("", "   ", "\n"):
        session = await home.session({"text": text, "final": True})
        end = await session.to_end()
        assert session.kinds() == ["ready", "end"]
        assert end["reason"] == "finished"
        assert end["usage"]["frames"] == end["usage"]["audio_ms"] == 0
        assert "first_audio_ms" not in end["usage"]


async def test_finish_without_any_text_ends_with_no_frame(home: House) -> None:
    session = await home.session({})
    await session.say("finish", seq=0)
    await session.to_end()
    assert session.kinds() == ["ready", "end"]


REFUSED: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"format": {"encoding": "pcm_s16le", "sample_rate": 11_025}}, "unsupported_format", {}),
    ({"format": {"encoding": "pcm_s16le", "sample_rate": -(2**63)}}, "unsupported_format", {}),
    ({"format": {"encoding": "mp3"}}, "unsupported_format", {"encodings": list(dict(FORMATS))}),
    ({"format": {"encoding": "mulaw", "sample_rate": 16_000}}, "unsupported_format", {"sample_rates": [8_000]}),
    ({"format": {"encoding": "opus", "sample_rate": 44_100}}, "unsupported_format", {}),
    ({"voice": "nobody"}, "voice_not_found", {"voices": ["default"]}),
    ({"language": "tlh"}, "unsupported_option", {"option": "language"}),
    ({"cfg": 2.0}, "unsupported_option", {"option": "cfg"}),
    ({"speed": 1.5}, "unsupported_option", {"option": "speed"}),
    ({"marks": "yes"}, "bad_request", {"field": "marks"}),
    ({"resume": True}, "unsupported_option", {"option": "resume"}),
    ({"volume": 11}, "unknown_field", {"fields": ["volume"]}),
    ({"seed": -1}, "bad_request", {"field": "seed"}),
    ({"session": "short"}, "bad_request", {"field": "session"}),
    ({"pronunciations": {"a\u2014b": "c"}}, "bad_request", {"field": "pronunciations"}),
    ({"text": "a" * 100_001}, "too_large", {"field": "text", "limit": 100_000}),
]


@pytest.mark.parametrize(("fields", "code", "detail"), REFUSED)
async def test_what_cannot_be_done_is_refused_by_name(
    home: House, fields: dict[str, Any], code: str, detail: dict[str, Any]
) -> None:
    with pytest.raises(OpenRefused) as refused:
        await home.session({"text": "Hello.", "final": True, **fields})
    assert refused.value.code == code
    assert refused.value.fields["retryable"] is False
    assert refused.value.fields["detail"].items() >= detail.items()
    assert home.service.desk.sessions == 0


async def test_an_empty_body_is_a_bad_request(home: House) -> None:
    with pytest.raises(OpenRefused, match="bad_request"):
        await home.session(b"")


async def test_a_live_sessions_name_cannot_be_taken(home: House) -> None:
    name = "0123456789abcdef"
    first = await home.session({"session": name})
    assert first.ready["session"] == name
    with pytest.raises(OpenRefused) as refused:
        await home.session({"session": name, "text": "Mine.", "final": True})
    assert refused.value.code == "bad_request"
    assert refused.value.fields["detail"] == {"field": "session"}
    await first.say("finish")
    assert (await first.to_end())["usage"]["characters"] == 0
    await home.empty()
    second = await home.session({"session": name})
    await second.say("cancel")
    await second.to_end()


async def test_opens_beyond_the_last_slot_are_told_at_once(home: House) -> None:
    """Nobody waits for a time-out: the server itself answers 503, or the worker no_capacity."""
    capacity = home.service.engine.loop.limit
    sessions = [await home.session({}) for _ in range(capacity)]
    for _ in range(20):
        extra = Session(await home.client(), pool=home.pool)
        with pytest.raises(OpenRefused) as refused:
            await extra.open({"text": "One too many.", "final": True})
        assert refused.value.code in ("503", "no_capacity")
    for session in sessions:
        await session.say("cancel")
    for session in sessions:
        assert (await session.to_end())["reason"] == "cancelled"
    await home.empty()
    await home.spoken("Room again.")


async def test_info_tells_what_is_offered(home: House) -> None:
    client = await home.client()
    for body, headers in ((b"", None), (b"{}", None), (b"\x80", {"Content-Type": MSGPACK})):
        answer = await client.request("tts.v1.default.info.std", body, timeout=10, headers=headers)
        info = Heard.of(answer).fields
        assert answer.headers == {"Tts-Event": "info", "Content-Type": MSGPACK if headers else JSON}
        assert info["voices"] == ["default"]
        assert info["languages"] == ["en"]
        assert {(name, rate) for name, rates in info["formats"].items() for rate in rates} == set(FORMATS)
        assert info["model"]["sample_rate"] == 24_000
        assert {"seed", "temperature", "gain_db", "marks"} <= set(info["options"])
