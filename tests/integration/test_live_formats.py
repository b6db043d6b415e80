"""Formats as listeners get them: nothing lost at either end, nothing that clicks, one container for a whole session."""

from __future__ import annotations

import asyncio
import base64

import numpy as np
import pytest
import soxr

from tests.integration.live import House, Session
from tests.listening import Wave, heard, heard_by_ffmpeg, pages

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = "We looked at the old map together, and then we walked down to the river before the rain began."
SOME = [
    ("pcm_s16le", 22_050),
    ("pcm_f32le", 48_000),
    ("mulaw", 8_000),
    ("alaw", 8_000),
    ("opus", 24_000),
    ("wav", 8_000),
]

some_formats = pytest.mark.parametrize(("encoding", "rate"), SOME)


def payloads(session: Session, generation: int | None = None) -> bytes:
    chosen = (e for e in session.audio if generation in (None, e.number("Tts-Gen")))
    return b"".join(event.payload for event in chosen)


async def opened(home: House, encoding: str, rate: int, **fields: object) -> Session:
    return await home.session({"pace": "fast", "format": {"encoding": encoding, "sample_rate": rate}, **fields})


def steepest(sound: Wave) -> float:
    return float(np.abs(np.diff(sound)).max(initial=0.0))


@some_formats
async def test_after_each_flush_all_is_out_and_the_end_adds_up(home: House, encoding: str, rate: int) -> None:
    """What has come by ``flushed`` is exactly as much as its pts says, and holds the whole utterance."""
    session = await opened(home, encoding, rate, seed=11)
    for seq, text in enumerate(("Good morning.", " How are you?")):
        await session.text(seq, text)
        await session.say("flush", seq=seq + 1)
        pts = (await session.until("flushed")).fields["pts"]
        so_far = heard(encoding, rate, payloads(session))
        assert len(so_far) == pts == session.sample_count()
        assert np.abs(so_far[-rate // 200 :]).max() < 0.02, "it ends in silence"
    await session.say("finish", seq=2)
    end = await session.to_end()
    whole = heard(encoding, rate, payloads(session))
    assert len(whole) == session.sample_count()
    assert end["usage"]["audio_ms"] == pytest.approx(1000 * len(whole) / rate)
    assert len(whole) >= end["usage"]["frames"] * 1_920 * rate // 24_000
    assert payloads(session).count(b"RIFF") == (encoding == "wav")
    if encoding == "opus":
        found = pages(payloads(session))
        assert [page.number for page in found] == list(range(len(found)))
        assert [page.last for page in found] == [False] * (len(found) - 1) + [True]


@some_formats
async def test_a_barge_in_keeps_the_stream_and_makes_no_click(home: House, encoding: str, rate: int) -> None:
    session = await opened(home, encoding, rate, seed=12, text=LONG, final=True)
    for _ in range(8):
        await session.until("audio")
    await session.say("cancel", gen=0, keep=True)
    await session.text(0, "Never mind.", gen=1)
    await session.say("finish", seq=1, gen=1)
    end = await session.to_end()
    assert session.kinds() == ["ready", "audio", "cancelled", "audio", "end"]
    whole = heard(encoding, rate, payloads(session))
    assert len(whole) == session.sample_count()
    assert end["usage"]["audio_ms"] == pytest.approx(1000 * len(whole) / rate)
    border = next(event.number("Tts-Pts") for event in session.audio if event.number("Tts-Gen") == 1)
    around = whole[border - rate // 50 : border + rate // 50]
    assert steepest(around) <= max(steepest(whole[: border - rate // 50]), 0.05)
    assert np.abs(whole[border : border + rate // 200]).max() < 0.05, "the new one begins in silence"
    if encoding == "opus":
        assert len(heard_by_ffmpeg(payloads(session))) == 2 * len(whole)
        assert sum(page.first for page in pages(payloads(session))) == 1
    elif encoding == "wav":
        assert payloads(session).count(b"RIFF") == 1
    else:
        fresh = await opened(home, encoding, rate, seed=12)
        await fresh.say("cancel", gen=0, keep=True)
        await fresh.text(0, "Never mind.", gen=1)
        await fresh.say("finish", seq=1, gen=1)
        await fresh.to_end()
        assert payloads(fresh, 1) == payloads(session, 1), "nothing of the old generation is in the new one"


@pytest.mark.parametrize("how", ["cancel", "limit"])
async def test_a_session_that_is_cut_off_leaves_a_whole_container(home: House, how: str) -> None:
    limit = {"max_session_s": 0.5} if how == "limit" else {}
    session = await home.session({"text": LONG, "final": True, "format": {"encoding": "opus"}, **limit})
    for _ in range(4):
        await session.until("audio")
    if how == "cancel":
        await session.say("cancel")
    end = await session.to_end()
    assert end["reason"] in ("cancelled", "limit")
    found = pages(payloads(session))
    assert [page.last for page in found] == [False] * (len(found) - 1) + [True]
    sound = heard("opus", 24_000, payloads(session))
    assert len(sound) == session.sample_count() == round(end["usage"]["audio_ms"] * 24)
    last_audio = max(index for index, event in enumerate(session.events) if event.kind == "audio")
    assert all(event.kind != "cancelled" for event in session.events[:last_audio])


async def test_a_late_listener_puts_the_header_before_what_he_hears(home: House) -> None:
    for encoding in ("opus", "wav"):
        session = await home.spoken(
            "Good morning. How are you?", seed=13, format={"encoding": encoding, "sample_rate": 24_000}
        )
        header = base64.b64decode(session.ready["header"])
        late = session.audio[len(session.audio) // 2 :]
        sound = heard(encoding, 24_000, header + b"".join(event.payload for event in late))
        whole = heard(encoding, 24_000, session.pcm)
        tail = slice(-6_000, None)
        assert np.abs(sound[tail] - whole[tail]).max() < 0.01
        missed = late[0].number("Tts-Pts")
        assert 0 <= len(whole) - missed - len(sound) <= 156, "no more is lost than the pre-skip"


@pytest.mark.parametrize("trim", [False, True])
async def test_c18_the_first_samples_are_there_every_time(home: House, trim: bool) -> None:
    """Case C18 (kyutai-labs/pocket-tts#70, k2-fsa/sherpa-onnx#1777), 24 kHz and mu-law, 20 times in all."""

    async def said(encoding: str, rate: int, seed: int) -> Wave:
        form = {"encoding": encoding, "sample_rate": rate}
        session = await home.spoken("Seven.", seed=seed, trim_silence=trim, format=form)
        first = session.audio[0]
        assert (first.number("Tts-Seq"), first.number("Tts-Pts"), first.number("Tts-Gen")) == (0, 0, 0)
        return heard(encoding, rate, session.pcm)

    takes = await asyncio.gather(
        *(said(*form, seed) for seed in range(5) for form in (("pcm_s16le", 24_000), ("mulaw", 8_000)))
    )
    for wide, narrow in zip(takes[::2], takes[1::2], strict=True):
        expected = soxr.resample(wide, 24_000, 8_000, quality="HQ")
        assert len(narrow) == -(-len(expected) // 160) * 160, "whole 20 ms frames"
        noise = narrow[: len(expected)] - expected
        assert 10 * np.log10(np.mean(expected**2) / np.mean(noise**2)) > 30
        beginning = slice(0, 800)
        assert np.abs(noise[beginning]).max() < 0.02
        if trim:
            assert np.abs(wide[:1_200]).max() > 0.003, "no more than 25 ms of silence is left"


async def test_c21_a_pause_at_22050_hz_shifts_nothing(home: House) -> None:
    """Case C21 (OHF-Voice/piper1-gpl#253, pipecat-ai/pipecat#4952): in blocks of 4,063 bytes the second sentence is
    what it is at 24 kHz, not noise."""
    text = 'It is ready. <break time="0.25s"/> Come in.'
    form = {"encoding": "pcm_s16le", "sample_rate": 22_050}
    session, plain = await asyncio.gather(home.spoken(text, seed=14, format=form), home.spoken(text, seed=14))
    assert all(len(event.payload) % 2 == 0 for event in session.audio)
    blocks = [session.pcm[at : at + 4_063] for at in range(0, len(session.pcm), 4_063)]
    sound = heard("pcm_s16le", 22_050, b"".join(blocks))
    expected = soxr.resample(plain.samples.astype(np.float64), 24_000, 22_050, quality="HQ")
    assert len(sound) == len(expected)
    assert np.abs(sound - expected).max() < 2 / 32_768
