"""Where sound begins or ends there is no click: no step that the sound itself does not have."""

from __future__ import annotations

import numpy as np
import pytest

from tests.listening import FORMATS, Wave, heard
from worker.audio.chain import OutputChain
from worker.audio.encoders import Encoding

FRAME, MODEL_RATE = 1_920, 24_000

every_format = pytest.mark.parametrize(("encoding", "rate"), FORMATS)


def hum(samples: int, phase: float = 0.0) -> bytes:
    """A loud 180 Hz with four overtones, from its first sample to its last."""
    at = np.arange(samples) / MODEL_RATE
    sound = sum(np.sin(2 * np.pi * 180 * k * at + phase) / k for k in range(1, 6))
    return np.rint(9_000 * sound).astype("<i2").tobytes()


def click_db(sound: Wave, rate: int, at: int) -> float:
    """Energy above 2.5 kHz, where a hum has none, in the 6 ms around a sample: against the hum's, in dB."""
    half = round(0.003 * rate)
    around = np.pad(sound, half)[at : at + 2 * half]
    spectrum = np.abs(np.fft.rfft(around * np.hanning(2 * half))) ** 2
    high = np.fft.rfftfreq(2 * half, 1 / rate) > 2_500
    return float(10 * np.log10(spectrum[high].sum() / (np.mean(sound**2) * half**2) + 1e-12))


ABRUPT_DB, SMOOTH_DB = -32.0, -36.0
"""A hum that is cut off is above the former."""


def test_the_measure_hears_a_step() -> None:
    sound = np.frombuffer(hum(MODEL_RATE, phase=1.0), "<i2") / 32_768
    assert click_db(np.concatenate([np.zeros(480), sound]), MODEL_RATE, 480) > ABRUPT_DB
    assert click_db(np.concatenate([sound, np.zeros(480)]), MODEL_RATE, len(sound)) > ABRUPT_DB
    assert click_db(sound, MODEL_RATE, 9_999) < SMOOTH_DB - 20


@every_format
@pytest.mark.parametrize("end", ["finish", "flush", "cut"])
def test_a_generation_begins_and_ends_without_a_click(encoding: Encoding, rate: int, end: str) -> None:
    """Both in the middle of a sound: a cancel, or a model that leaves no silence."""
    chain = OutputChain(encoding, rate)
    stream = chain.push(bytes(2 * FRAME)) + chain.flush()
    sound = hum(4 * FRAME + 700, phase=1.0)
    stream += b"".join(chain.push(sound[at : at + 2 * FRAME]) for at in range(0, len(sound), 2 * FRAME))
    stream += getattr(chain, end)()
    ended = chain.pts
    stream += chain.push(bytes(2 * FRAME)) + chain.finish() if end != "finish" else b""
    back = heard(encoding, rate, stream)
    worst = max(click_db(back, rate, at) for at in range(0, len(back), round(0.001 * rate)))
    middle = round(0.2 * rate)
    own_noise = max(click_db(back, rate, middle + step) for step in range(0, middle // 2, 20))
    assert worst < max(SMOOTH_DB, own_noise + 3)
    assert np.abs(back[ended - 3 :]).max() < 0.06, "what Opus leaves at the end of a packet"


@pytest.mark.parametrize("encoding", ["pcm_s16le", "wav"])
def test_an_utterance_that_begins_and_ends_in_silence_is_not_touched(encoding: Encoding) -> None:
    at = np.arange(3 * FRAME) / MODEL_RATE
    sound = np.rint(9_000 * np.sin(2 * np.pi * 180 * at) * np.hanning(len(at))).astype("<i2").tobytes()
    chain = OutputChain(encoding, MODEL_RATE)
    assert chain.push(sound) + chain.finish() == chain.header_bytes + sound


def test_a_cancel_in_silence_adds_nothing() -> None:
    chain = OutputChain("pcm_s16le", MODEL_RATE)
    chain.push(hum(FRAME) + bytes(200))
    assert chain.cut() == b""


def test_a_cancelled_sound_dies_within_five_milliseconds() -> None:
    chain = OutputChain("pcm_s16le", MODEL_RATE)
    chain.push(hum(FRAME, phase=1.0))
    decay = np.frombuffer(chain.cut(), "<i2").astype(int)
    assert len(decay) == 120
    assert (np.diff(np.abs(decay)) <= 0).all()
    assert abs(decay[-1]) < 10
    assert chain.push(bytes(20)) == bytes(20), "and nothing of it is in the next generation"


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 44_100, 48_000])
def test_frame_edges_are_as_smooth_as_the_rest(rate: int) -> None:
    """The resampler knows nothing of frames: no energy above the hum's, and not more every 80 ms than between."""
    sound = hum(12 * FRAME, phase=1.0)
    chain = OutputChain("pcm_f32le", rate)
    stream = b"".join(chain.push(sound[at : at + 2 * FRAME]) for at in range(0, len(sound), 2 * FRAME))
    back = np.frombuffer(stream, "<f4")
    edges = [round(n * 0.08 * rate) for n in range(2, 10)]
    between = [round((n + 0.5) * 0.08 * rate) for n in range(2, 10)]
    if rate > 8_000:
        assert max(click_db(back, rate, at) for at in edges) < -70
    assert max(click_db(back, rate, at) for at in edges) < max(click_db(back, rate, at) for at in between) + 3
