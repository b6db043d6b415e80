from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from worker.measure.onset import Onset, leading_silence_s

RATE = 24_000


def pcm(samples: npt.NDArray[np.float64]) -> bytes:
    return np.rint(samples * 32_767).astype("<i2").tobytes()


def tone(seconds: float, level: float = 0.5) -> npt.NDArray[np.float64]:
    return level * np.sin(2 * np.pi * 440 * np.arange(round(seconds * RATE)) / RATE)


def silence(seconds: float) -> npt.NDArray[np.float64]:
    return np.zeros(round(seconds * RATE))


def literal(data: bytes, rate: int) -> float | None:
    """The definition, window by window."""
    samples = np.frombuffer(data, "<i2").astype(np.float64) / 32_768
    window, hop = round(0.010 * rate), round(0.001 * rate)
    padded = np.pad(samples, window // 2, mode="edge")
    for index, start in enumerate(range(0, len(padded) - window + 1, hop)):
        part = padded[start : start + window]
        if np.sqrt(np.mean((part - part.mean()) ** 2)) > 0.01:
            return index * hop / rate
    return None


def test_sound_from_the_start_has_no_silence_before_it() -> None:
    assert leading_silence_s(pcm(tone(0.1)), RATE) == 0.0


def test_silence_is_measured_to_half_a_window() -> None:
    found = leading_silence_s(pcm(np.concatenate([silence(0.2), tone(0.2)])), RATE)
    assert found == pytest.approx(0.2, abs=0.006)


@pytest.mark.parametrize("data", [b"", pcm(silence(0.5)), pcm(tone(0.5, level=0.01))])
def test_what_cannot_be_heard_has_no_onset(data: bytes) -> None:
    assert leading_silence_s(data, RATE) is None


def test_a_constant_is_silent() -> None:
    assert leading_silence_s(pcm(np.full(4_800, 0.6)), RATE) is None


@pytest.mark.parametrize("rate", [8_000, 22_050, 24_000, 48_000])
def test_equals_the_definition(rate: int) -> None:
    random = np.random.default_rng(rate)
    for level in (0.004, 0.0101, 0.02, 0.3):
        swelling = random.normal(size=round(0.4 * rate)) * np.linspace(0.0, level, round(0.4 * rate)) + 0.1
        data = pcm(np.clip(swelling, -1.0, 1.0))
        assert leading_silence_s(data, rate) == literal(data, rate)


def test_pieces_give_what_the_whole_gives_and_only_the_beginning_is_kept() -> None:
    data = pcm(np.concatenate([silence(1.2), tone(3.0)]))
    onset = Onset(RATE)
    for start in range(0, len(data), 3_840):
        onset.push(data[start : start + 3_840])
    assert onset.seconds() == leading_silence_s(data, RATE)
    late = Onset(RATE)
    late.push(pcm(silence(3.5)))
    late.push(pcm(tone(1.0)))
    assert late.seconds() is None
