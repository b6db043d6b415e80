from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tests.listening import FORMATS
from worker.audio.chain import OutputChain
from worker.audio.encoders import Encoding
from worker.measure.onset import Onset, leading_silence_s

RATE = 24_000


Wave = npt.NDArray[np.float64]


def pcm(samples: Wave) -> bytes:
    return np.rint(samples * 32_767).astype("<i2").tobytes()


def tone(seconds: float, level: float = 0.5) -> Wave:
    return level * np.sin(2 * np.pi * 440 * np.arange(round(seconds * RATE)) / RATE)


def silence(seconds: float) -> Wave:
    return np.zeros(round(seconds * RATE))


def literal(samples: Wave, rate: int) -> float | None:
    """The definition, window by window."""
    window, hop = round(0.010 * rate), round(0.001 * rate)
    padded = np.pad(samples, window // 2, mode="edge")
    for index, start in enumerate(range(0, len(padded) - window + 1, hop)):
        part = padded[start : start + window]
        if np.sqrt(np.mean((part - part.mean()) ** 2)) > 0.01:
            return index * hop / rate
    return None


def test_sound_from_the_start_has_no_silence_before_it() -> None:
    assert leading_silence_s(tone(0.1), RATE) == 0.0


def test_silence_is_measured_to_half_a_window() -> None:
    found = leading_silence_s(np.concatenate([silence(0.2), tone(0.2)]), RATE)
    assert found == pytest.approx(0.2, abs=0.006)


@pytest.mark.parametrize("samples", [silence(0), silence(0.5), tone(0.5, level=0.01)])
def test_what_cannot_be_heard_has_no_onset(samples: Wave) -> None:
    assert leading_silence_s(samples, RATE) is None


def test_a_constant_is_silent() -> None:
    assert leading_silence_s(np.full(4_800, 0.6), RATE) is None


@pytest.mark.parametrize("rate", [8_000, 22_050, 24_000, 48_000])
def test_equals_the_definition(rate: int) -> None:
    random = np.random.default_rng(rate)
    for level in (0.004, 0.0101, 0.02, 0.3):
        swelling = random.normal(size=round(0.4 * rate)) * np.linspace(0.0, level, round(0.4 * rate)) + 0.1
        assert leading_silence_s(swelling, rate) == literal(swelling, rate)


def test_pieces_give_what_the_whole_gives_and_only_the_beginning_is_kept() -> None:
    sound = np.concatenate([silence(1.2), tone(3.0)])
    data, onset = pcm(sound), Onset(RATE)
    for start in range(0, len(data), 3_840):
        onset.push(data[start : start + 3_840], 1_920)
    assert onset.seconds() == pytest.approx(leading_silence_s(sound, RATE))
    late = Onset(RATE)
    late.push(pcm(silence(3.5)), round(3.5 * RATE))
    late.push(pcm(tone(1.0)), RATE)
    assert late.seconds() is None


@pytest.mark.parametrize(("encoding", "rate"), FORMATS)
def test_the_onset_is_heard_in_every_format(encoding: Encoding, rate: int) -> None:
    chain, onset = OutputChain(encoding, rate), Onset(rate, encoding)
    data = pcm(np.concatenate([silence(0.3), tone(0.3)]))
    for start in range(0, len(data), 3_840):
        pts = chain.pts
        onset.push(chain.push(data[start : start + 3_840]), chain.pts - pts)
    assert onset.seconds() == pytest.approx(0.3, abs=0.012)
