from __future__ import annotations

import io
import wave
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soxr

from worker.audio.chain import OutputChain
from worker.audio.encoders import Encoding

MODEL_RATE, FRAME = 24_000, 1_920
RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)
Wave = npt.NDArray[Any]


def tone(hz: float, seconds: float, amplitude: float = 8_000.0, rate: int = MODEL_RATE) -> Wave:
    return hushed(amplitude * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate))


def hushed(samples: Wave) -> Wave:
    """With an end in silence, as a voice has: nothing is added to it."""
    return samples * np.minimum(1.0, np.arange(len(samples))[::-1] / 120)


def pcm(samples: Wave) -> bytes:
    return np.rint(samples).astype("<i2").tobytes()


def ints(payload: bytes) -> Wave:
    return np.frombuffer(payload, "<i2").astype(np.int64)


def frames(data: bytes) -> list[bytes]:
    return [data[i : i + 2 * FRAME] for i in range(0, len(data), 2 * FRAME)]


def spoken(chain: OutputChain, samples: Wave) -> bytes:
    return b"".join(chain.push(frame) for frame in frames(pcm(samples))) + chain.flush()


def level_db(samples: Wave, hz: float, rate: int) -> float:
    """Level of one frequency, without the first and last tenth of a second."""
    middle = samples[rate // 10 : -rate // 10]
    window = np.hanning(len(middle))
    turns = np.exp(-2j * np.pi * hz * np.arange(len(middle)) / rate)
    return float(20 * np.log10(2 * abs(np.sum(middle * window * turns)) / window.sum() + 1e-9))


def test_audio_at_the_model_s_own_rate_passes_unchanged() -> None:
    data = pcm(tone(300, 0.2))
    chain = OutputChain("pcm_s16le", MODEL_RATE)
    assert chain.push(data) == data
    assert chain.flush() == b""
    assert chain.pts == len(data) // 2


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("encoding", ["pcm_s16le", "pcm_f32le", "wav"])
def test_every_sample_of_an_utterance_comes_out_whole(encoding: Encoding, rate: int) -> None:
    """Case C21: whole samples in every payload; case C18: the count starts at 0 and the first samples are there."""
    width = 4 if encoding == "pcm_f32le" else 2
    samples = tone(440, 0.2837)
    chain = OutputChain(encoding, rate)
    assert chain.pts == 0
    payloads = [*(chain.push(frame) for frame in frames(pcm(samples))), chain.flush()]
    assert all(len(payload) % width == 0 for payload in payloads)
    assert payloads[0], "the first frame is heard at once"
    assert chain.pts == round(len(samples) * rate / MODEL_RATE)
    assert sum(map(len, payloads)) == chain.pts * width + len(chain.header_bytes)
    assert chain.flush() == b""


@pytest.mark.parametrize("rate", RATES)
def test_resampling_keeps_tones_and_makes_none(rate: int) -> None:
    kept = [110.0, 997.0, 3_300.0]
    samples = sum((tone(hz, 1.0, 4_000) for hz in kept), tone(7_900, 1.0, 4_000))
    out = ints(spoken(OutputChain("pcm_s16le", rate), samples))
    expected = 20 * np.log10(4_000)
    assert [level_db(out, hz, rate) for hz in kept] == pytest.approx([expected] * 3, abs=0.05)
    if rate == 8_000:
        assert level_db(out, 100, rate) < 0, "7,900 Hz would fold to 100 Hz"
    elif rate > 16_000:
        assert level_db(out, 7_900, rate) == pytest.approx(expected, abs=0.05)
    if rate > MODEL_RATE:
        assert level_db(out, MODEL_RATE - 7_900, rate) < 0, "its image"


@pytest.mark.parametrize("rate", [rate for rate in RATES if rate != MODEL_RATE])
def test_a_stream_of_frames_sounds_as_the_whole_resampled_at_once(rate: int) -> None:
    """No click at any frame's edge: the difference to the offline result is the rounding of int16 alone."""
    at = np.arange(MODEL_RATE) / MODEL_RATE
    sweep = hushed(9_000 * np.sin(2 * np.pi * (100 + 1_500 * at) * at))
    streamed = ints(spoken(OutputChain("pcm_s16le", rate), sweep))
    offline = soxr.resample(np.rint(sweep).astype(np.float64), MODEL_RATE, rate, quality="VHQ")
    assert len(streamed) == len(offline)
    edge = rate // 50
    assert np.abs(streamed - offline)[edge:-edge].max() <= 1.0
    jumps = np.abs(np.diff(streamed[edge:-edge]))
    assert jumps.max() <= 1.05 * np.abs(np.diff(offline[edge:-edge])).max() + 1


@pytest.mark.parametrize("rate", RATES)
def test_a_sample_is_heard_when_the_mapping_says(rate: int) -> None:
    at = 5_003
    click = np.zeros(10_008)
    click[at - 200 : at + 201] = 12_000 * np.hanning(401)
    chain = OutputChain("pcm_s16le", rate)
    chain.push(pcm(np.zeros(FRAME)))
    chain.flush()
    out = ints(spoken(chain, click))
    expected = chain.media_ms(FRAME + at)
    assert expected is not None
    centre = np.sum(np.arange(len(out)) * out) / np.sum(out) + round(FRAME * rate / MODEL_RATE)
    assert 1000 * centre / rate == pytest.approx(expected, abs=0.1 * 1000 / rate)


@pytest.mark.parametrize("encoding", ["pcm_s16le", "pcm_f32le"])
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("gain_db", [12.0, 48.0])
def test_gain_clips_and_never_wraps(encoding: Encoding, rate: int, gain_db: float) -> None:
    """Case C23: full-scale audio and +12 dB; no jump over 40,000 between samples."""
    samples = np.clip(tone(150, 0.5, 32_768.0), -32_768, 32_767)
    payload = spoken(OutputChain(encoding, rate, gain_db=gain_db), samples)
    out = np.frombuffer(payload, "<i2" if encoding == "pcm_s16le" else "<f4").astype(np.float64)
    if encoding == "pcm_f32le":
        assert np.abs(out).max() <= 1.0
        out = out * 32_768
    assert out.max() >= 32_767
    assert out.min() == -32_768
    if gain_db == 12.0:
        assert np.abs(np.diff(out)).max() < 40_000
    middle = out[rate // 10 : -rate // 10]
    original = np.interp(np.arange(len(out)) / rate, np.arange(len(samples)) / MODEL_RATE, samples)
    loud = np.abs(original[rate // 10 : -rate // 10]) > 3_000
    assert (np.sign(middle[loud]) == np.sign(original[rate // 10 : -rate // 10][loud])).all()


@pytest.mark.parametrize("gain_db", [-96.0, -6.0, 6.0])
def test_gain_is_in_decibels(gain_db: float) -> None:
    out = ints(spoken(OutputChain("pcm_s16le", MODEL_RATE, gain_db=gain_db), tone(440, 0.5, 10_000)))
    assert out.max() == pytest.approx(10_000 * 10 ** (gain_db / 20), abs=1)


@pytest.mark.parametrize("rate", RATES)
def test_silence_stays_digital_silence(rate: int) -> None:
    assert set(spoken(OutputChain("pcm_s16le", rate, gain_db=20), np.zeros(4_800))) == {0}


def test_floats_keep_what_int16_would_round_away() -> None:
    data = pcm(tone(100, 0.1, 3.0))
    chain = OutputChain("pcm_f32le", MODEL_RATE)
    out = np.frombuffer(chain.push(data), "<f4")
    assert (out * 32_768 == np.frombuffer(data, "<i2")).all()
    halved = np.frombuffer(OutputChain("pcm_f32le", MODEL_RATE, gain_db=-6.0206).push(data), "<f4")
    assert halved == pytest.approx(out / 2, abs=1e-7)


def test_wav_has_one_header_whatever_happens_later() -> None:
    chain = OutputChain("wav", 16_000)
    first = tone(440, 0.5)
    stream = spoken(chain, first)
    chain.push(pcm(first))
    chain.cut()
    stream += spoken(chain, first) + chain.flush()
    assert stream[:4] == b"RIFF"
    assert stream.count(b"RIFF") == stream.count(b"data") == 1
    assert stream[4:8] == stream[40:44] == b"\xff" * 4
    assert stream.startswith(chain.header_bytes)
    with wave.open(io.BytesIO(stream)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
        assert len(file.readframes(file.getnframes())) == len(stream) - 44
    assert OutputChain("wav", 16_000).flush() == b"", "no audio, no header"
    assert OutputChain("pcm_s16le", 16_000).header_bytes == b""


@pytest.mark.parametrize("rate", RATES)
def test_cancelling_drops_the_tails_and_the_next_generation_is_clean(rate: int) -> None:
    chain = OutputChain("pcm_s16le", rate)
    chain.push(pcm(tone(200, 0.3, 20_000)))
    before = chain.pts
    last_words = ints(chain.cut())
    assert chain.pts - before == len(last_words) in (0, round(0.005 * rate)), "a way to silence at most"
    assert not chain.cut() + chain.flush()
    before = chain.pts
    fresh = OutputChain("pcm_s16le", rate)
    assert spoken(chain, tone(500, 0.3)) == spoken(fresh, tone(500, 0.3))
    assert chain.pts == before + fresh.pts


@pytest.mark.parametrize("rate", RATES)
def test_utterances_after_a_flush_are_whole_and_the_clock_runs_on(rate: int) -> None:
    chain = OutputChain("pcm_s16le", rate)
    sizes = [4_801, 1_913, 7, 0, 12_345]
    for size in sizes:
        pts = chain.pts
        out = ints(spoken(chain, hushed(tone(440, 1.0)[:size])))
        assert len(out) == chain.pts - pts == round(size * rate / MODEL_RATE)
    starts = np.cumsum([0, *sizes])
    expected = np.cumsum([0, *(round(size * rate / MODEL_RATE) for size in sizes)])
    assert [chain.media_ms(int(start)) for start in starts] == pytest.approx(list(1000 * expected / rate))


def test_media_time_and_model_samples_are_inverse() -> None:
    chain = OutputChain("pcm_s16le", 44_100)
    for _ in range(3):
        spoken(chain, tone(440, 0.3333))
    total = 3 * round(0.3333 * MODEL_RATE)
    for sample in range(0, total, 977):
        media_ms = chain.media_ms(sample)
        assert media_ms is not None
        assert abs(chain.model_sample(media_ms) - sample) <= 1
    assert chain.model_sample(0) == 0
    assert chain.model_sample(-5) == 0
    assert chain.model_sample(1e9) == total, "no more can have been heard than came out"


def test_what_was_heard_of_an_older_generation_is_nothing_of_this_one() -> None:
    chain = OutputChain("pcm_s16le", 48_000)
    spoken(chain, tone(440, 1.0))
    assert chain.cut() == b""
    assert chain.media_ms(0) == pytest.approx(1000)
    assert chain.model_sample(900) == 0
    spoken(chain, tone(440, 1.0))
    assert chain.model_sample(900) == 0
    assert chain.model_sample(1500) == 12_000


def speech(silence_s: float, onset_s: float = 0.05) -> Wave:
    """Silence, then a soft consonant (noise that grows from nothing), then a vowel."""
    rng = np.random.default_rng(7)
    consonant = rng.standard_normal(round(onset_s * MODEL_RATE)) * np.linspace(0, 1_500, round(onset_s * MODEL_RATE))
    return np.concatenate([np.zeros(round(silence_s * MODEL_RATE)), consonant, tone(200, 0.4)])


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("silence_s", [0.0, 0.013, 0.09, 0.33, 0.97])
def test_trimming_takes_the_silence_and_nothing_of_the_first_sound(silence_s: float, rate: int) -> None:
    """Case C18, trim on: the soft beginning of the first word is kept."""
    samples = speech(silence_s)
    chain = OutputChain("pcm_s16le", rate, trim_silence=True)
    spoken(chain, samples)
    start_ms = chain.media_ms(round(silence_s * MODEL_RATE))
    assert start_ms is not None
    assert start_ms <= 25, "what is left of the silence"
    trimmed = len(samples) - round(chain.pts * MODEL_RATE / rate)
    assert trimmed <= round(silence_s * MODEL_RATE), "nothing of the sound is gone"
    assert chain.media_ms(trimmed) == pytest.approx(0, abs=0.1)


def test_trimming_leaves_the_audio_itself_alone() -> None:
    samples = speech(0.2)
    out = spoken(OutputChain("pcm_s16le", MODEL_RATE, trim_silence=True), samples)
    assert pcm(samples).endswith(out)
    assert spoken(OutputChain("pcm_s16le", MODEL_RATE, trim_silence=True), tone(200, 0.2)) == pcm(tone(200, 0.2))


def test_at_most_a_second_is_trimmed_since_longer_silence_is_meant() -> None:
    chain = OutputChain("pcm_s16le", MODEL_RATE, trim_silence=True)
    spoken(chain, speech(3.0))
    assert chain.media_ms(round(3.0 * MODEL_RATE)) == pytest.approx(2_000)


def test_while_silence_lasts_times_to_come_are_not_known() -> None:
    chain = OutputChain("pcm_s16le", 16_000, trim_silence=True)
    assert chain.media_ms(0) == 0.0
    assert chain.media_ms(1) is None
    assert chain.push(pcm(np.zeros(FRAME))) == b""
    assert chain.media_ms(1_000) == 0.0
    assert chain.media_ms(4_000) is None
    assert chain.model_sample(50) == 0
    chain.push(pcm(tone(300, 0.08)))
    assert chain.media_ms(FRAME) == pytest.approx(25)
    assert chain.media_ms(FRAME + 2_400) == pytest.approx(125)
    chain.flush()
    assert chain.model_sample(25) == FRAME


def test_each_generation_is_trimmed_anew_but_no_pause_within_one() -> None:
    chain = OutputChain("pcm_s16le", MODEL_RATE, trim_silence=True)
    first = ints(spoken(chain, speech(0.2)))
    paused = ints(spoken(chain, speech(0.2)))
    chain.cut()
    again = ints(spoken(chain, speech(0.2)))
    assert len(paused) == len(speech(0.2))
    assert (first == again).all()
