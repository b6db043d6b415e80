"""Ogg Opus as a live stream, heard by libsndfile (libopus) and by FFmpeg."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.listening import OPUS_RATES, Wave, heard, heard_by_ffmpeg, pages
from worker.audio.chain import OutputChain
from worker.audio.opus import PRE_SKIP

FRAME = 1_920

every_rate = pytest.mark.parametrize("rate", OPUS_RATES)


def voice(seconds: float, pitch: float = 140.0) -> Wave:
    """Something like a vowel, from silence to silence."""
    at = np.arange(round(seconds * 24_000)) / 24_000
    turns = 2 * np.pi * (pitch * at + 8 * np.sin(2 * np.pi * at))
    sound = sum(np.sin(k * turns) / k for k in range(1, 12))
    edge = np.minimum(1.0, np.minimum(np.arange(len(at)), np.arange(len(at))[::-1]) / 240)
    whole: Wave = 6_000 * sound * edge
    return whole


def frames(samples: Wave) -> list[bytes]:
    data = np.rint(samples).astype("<i2").tobytes()
    return [data[at : at + 2 * FRAME] for at in range(0, len(data), 2 * FRAME)]


def pushed(chain: OutputChain, samples: Wave) -> list[bytes]:
    return [chain.push(frame) for frame in frames(samples)]


@every_rate
@pytest.mark.parametrize("seconds", [0.2, 0.9, 3.0])
def test_case_c24_flags_pre_skip_and_granules(seconds: float, rate: int) -> None:
    """pschatzmann/arduino-audio-tools#2369, zeroclaw-labs/zeroclaw#10627: a player shows the right length."""
    chain = OutputChain("opus", rate, stream=7)
    stream = b"".join([*pushed(chain, voice(seconds)), chain.finish()])
    found = pages(stream)
    assert [page.first for page in found] == [True] + [False] * (len(found) - 1)
    assert [page.last for page in found] == [False] * (len(found) - 1) + [True]
    assert [page.number for page in found] == list(range(len(found)))
    assert {page.stream for page in found} == {7}
    head, tags = found[0].packets[0], found[1].packets[0]
    magic, version, channels, pre_skip, input_rate, gain, family = struct.unpack("<8sBBHIhB", head)
    assert (magic, version, channels, pre_skip, input_rate, gain, family) == (b"OpusHead", 1, 1, 312, rate, 0, 0)
    assert tags.startswith(b"OpusTags")
    assert len(found[0].packets) == len(found[1].packets) == 1
    granules = [page.granule for page in found]
    assert granules[:2] == [0, 0]
    samples = 0
    for page in found[2:-1]:
        samples += 960 * len(page.packets)
        assert page.granule == samples
    assert samples < granules[-1] <= samples + 960 * len(found[-1].packets)
    assert granules[-1] - pre_skip == round(seconds * 48_000)
    assert chain.pts == round(seconds * rate)
    assert len(heard_by_ffmpeg(stream)) == round(seconds * 48_000)
    assert len(heard("opus", rate, stream)) == round(seconds * rate)


@every_rate
def test_it_sounds_like_the_original_and_in_its_place(rate: int) -> None:
    sound = voice(1.0)
    chain = OutputChain("opus", rate)
    stream = b"".join([*pushed(chain, sound), chain.finish()])
    original = OutputChain("pcm_f32le", rate)
    wanted = np.frombuffer(b"".join([*pushed(original, sound), original.finish()]), "<f4")
    back = heard("opus", rate, stream)
    noise = back - wanted
    assert 10 * np.log10(np.mean(wanted**2) / np.mean(noise**2)) > 15, "a shift by one sample would give less"
    lags = [np.dot(wanted[100:-100], np.roll(back, -lag)[100:-100]) for lag in range(-20, 21)]
    assert int(np.argmax(lags)) == 20


def test_nothing_is_held_back_but_the_encoder_s_own_delay() -> None:
    """Four packets of 20 ms for a frame of 80 ms, on one page, at once; the first says what the stream is."""
    chain = OutputChain("opus", 24_000)
    payloads = pushed(chain, voice(0.4))
    assert payloads[0].startswith(chain.header_bytes)
    assert [len(page.packets) for page in pages(payloads[0])] == [1, 1, 4]
    assert [[len(page.packets) for page in pages(payload)] for payload in payloads[1:]] == [[4]] * 4
    assert chain.pts == 5 * FRAME - PRE_SKIP // 2


def test_pts_is_what_a_decoder_has_given_before() -> None:
    chain = OutputChain("opus", 48_000)
    stream = b""
    for frame in frames(voice(0.5)):
        assert len(heard("opus", 48_000, stream)) == chain.pts
        stream += chain.push(frame)
        assert len(heard_by_ffmpeg(stream)) == chain.pts


def test_a_flush_brings_out_all_that_was_given_and_the_stream_goes_on() -> None:
    chain = OutputChain("opus", 24_000)
    first, second = voice(0.51), voice(0.3, pitch=210)
    stream = b"".join([*pushed(chain, first), chain.flush()])
    flushed = chain.pts
    assert len(first) <= flushed < len(first) + 480
    assert chain.flush() == b""
    assert len(heard_by_ffmpeg(stream)) == 2 * flushed
    start = chain.media_ms(len(first))
    assert start is not None
    stream += b"".join([*pushed(chain, second), chain.finish()])
    found = pages(stream)
    assert sum(page.first for page in found) == sum(page.last for page in found) == 1
    back = heard("opus", 24_000, stream)
    at = round(start * 24)
    assert len(back) == chain.pts == at + len(second)
    for sound, place in ((first, 0), (second, at)):
        wanted = sound / 32_768
        noise = back[place : place + len(sound)] - wanted
        assert 10 * np.log10(np.mean(wanted**2) / np.mean(noise**2)) > 12


def test_an_end_right_after_a_flush_adds_nothing_to_hear() -> None:
    chain = OutputChain("opus", 24_000)
    stream = b"".join([*pushed(chain, voice(0.4)), chain.flush()])
    flushed = chain.pts
    stream += chain.finish()
    assert pages(stream)[-1].last
    assert chain.pts == flushed
    assert len(heard("opus", 24_000, stream)) == flushed
    assert len(heard_by_ffmpeg(stream)) == 2 * flushed
    assert chain.finish() == b""


def test_without_audio_there_is_no_stream() -> None:
    chain = OutputChain("opus", 24_000)
    assert (chain.flush(), chain.cut(), chain.finish(), chain.pts) == (b"", b"", b"", 0)


def test_a_barge_in_goes_on_in_the_same_stream_without_a_click() -> None:
    """Cut in the middle of a vowel, which dies away within its own generation; the codec's noise of that packet ends a
    little later."""
    chain = OutputChain("opus", 24_000)
    stream = b"".join(pushed(chain, voice(2.0)[: 5 * FRAME]))
    stream += chain.cut()
    at = chain.pts
    silence = pushed(chain, np.zeros(FRAME))
    stream += b"".join(silence)
    stream += b"".join([*pushed(chain, voice(0.5, pitch=90)), chain.finish()])
    found = pages(stream)
    assert [page.number for page in found] == list(range(len(found)))
    assert sum(page.first for page in found) == sum(page.last for page in found) == 1
    back = heard("opus", 24_000, stream)
    assert len(back) == chain.pts
    assert np.abs(back[at : at + FRAME]).max() < 0.02, "no old sound after the acknowledgement"
    assert np.abs(back[at + 240 : at + FRAME]).max() < 0.01
    assert np.abs(np.diff(back[5 * FRAME - 480 : at])).max() <= np.abs(np.diff(back[: 5 * FRAME - 480])).max()


def test_a_listener_who_comes_late_needs_the_header_only() -> None:
    chain = OutputChain("opus", 24_000, stream=11)
    payloads = [*pushed(chain, voice(1.0)), chain.finish()]
    back = heard_by_ffmpeg(chain.header_bytes + b"".join(payloads[6:]))
    whole = heard_by_ffmpeg(b"".join(payloads))
    tail = slice(-9_600, None)
    assert np.abs(back[tail] - whole[tail]).max() < 0.01
    assert len(whole) - len(back) == 2 * 6 * FRAME


def test_another_encoder_can_go_on_with_the_stream() -> None:
    """No second header; the granules run on, and what the decoder remembers of the first encoder does no harm."""
    sound = voice(1.2)
    first = OutputChain("opus", 24_000, stream=3)
    stream = b"".join(pushed(first, sound[: 7 * FRAME]))
    second = OutputChain("opus", 24_000, stream=3, pts=first.pts)
    assert second.pts == first.pts
    rest = b"".join([*pushed(second, sound[7 * FRAME :]), second.finish()])
    assert b"OpusHead" not in rest
    assert pages(rest)[-1].last
    back = heard("opus", 24_000, stream + rest)
    assert len(back) == second.pts
    assert np.abs(back).max() < 1.2 * np.abs(sound).max() / 32_768, "without the silence between them it is 2.6 times"
    start = second.media_ms(0)
    assert start is not None
    assert 0 < start * 24 - first.pts <= 960, "a packet of silence between them, after which both agree"


def test_the_other_formats_go_on_without_a_second_header() -> None:
    chain = OutputChain("wav", 24_000, pts=48_000)
    assert chain.push(bytes(200)) == bytes(200)
    assert chain.pts == 48_100
    assert len(chain.header_bytes) == 44


def test_a_page_holds_a_second_at_most() -> None:
    """RFC 7845, section 6."""
    chain = OutputChain("opus", 8_000)
    stream = chain.push(b"".join(frames(voice(2.5)))) + chain.finish()
    assert max(len(page.packets) for page in pages(stream)) == 50
    assert len(heard("opus", 8_000, stream)) == 20_000


@every_rate
def test_case_c23_full_scale_and_gain_clip_and_never_wrap(rate: int) -> None:
    loud = np.clip(40_000 * np.sin(2 * np.pi * 150 * np.arange(12_000) / 24_000), -32_768, 32_767)
    chain = OutputChain("opus", rate, gain_db=12.0)
    back = heard("opus", rate, b"".join([*pushed(chain, loud), chain.finish()]))
    assert np.abs(np.diff(back)).max() < 40_000 / 32_768
    assert np.abs(back).max() > 0.9
