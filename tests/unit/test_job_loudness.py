"""Loudness of known signals, and the one gain a book gets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from worker.audio.levels import Int16
from worker.jobs.files import SAMPLE_RATE
from worker.jobs.loudness import Gain, Loudness, Meter, amplified, gain_for, measure


def tone(seconds: float, level_db: float, hz: float = 997.0) -> Int16:
    """A sine whose peak is at ``level_db``."""
    at = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return np.rint(32_767 * 10 ** (level_db / 20) * np.sin(2 * math.pi * hz * at)).astype(np.int16)


def softened(audio: Int16) -> Int16:
    """Without the overshoot that an abrupt start and end have between the samples."""
    ramp = np.minimum(np.arange(len(audio)), 480) / 480
    return np.rint(audio * ramp * ramp[::-1]).astype(np.int16)


def test_a_sine_of_known_loudness() -> None:
    """BS.1770-4: a sine of 997 Hz at full scale in one channel reads -3.01 LUFS."""
    measured = measure([tone(3.0, -20.0)])
    assert measured.integrated_lufs == pytest.approx(-23.01, abs=0.1)
    assert measured.true_peak_dbtp == pytest.approx(-20.0, abs=0.1)
    assert measured.samples == 3 * SAMPLE_RATE


def test_the_peak_between_two_samples_counts() -> None:
    """A quarter of the rate, 45 degrees off: every sample is 3 dB under the crest."""
    at = np.arange(2 * SAMPLE_RATE)
    audio = softened(np.rint(16_384 * np.sin(math.pi / 2 * at + math.pi / 4)).astype(np.int16))
    peak = measure([audio]).true_peak_dbtp
    assert peak is not None
    assert peak == pytest.approx(-6.02, abs=0.3)
    assert 20 * math.log10(np.abs(audio).max() / 32_768) < -8.9


def test_blocks_do_not_matter_and_silence_is_gated_out() -> None:
    audio = tone(2.0, -18.0)
    meter = Meter()
    for block in np.array_split(audio, 7):
        meter.push(block)
    assert meter.result() == measure([audio])
    longer = measure([audio, np.zeros(4 * SAMPLE_RATE, np.int16)])
    alone = measure([audio])
    assert longer.integrated_lufs == pytest.approx(alone.integrated_lufs, abs=0.6)


def test_a_peak_in_the_last_samples_is_seen() -> None:
    audio = tone(1.01, -30.0)
    audio[-1] = 32_767
    peak = measure([audio]).true_peak_dbtp
    assert peak is not None
    assert peak >= -0.01


@pytest.mark.parametrize("samples", [0, 1, SAMPLE_RATE * 3])
def test_silence_has_neither_loudness_nor_peak(samples: int) -> None:
    measured = measure([np.zeros(samples, np.int16)])
    assert measured == Loudness(None, None, samples)
    assert gain_for(measured) == Gain(0.0, False)


def test_under_400_ms_has_a_peak_alone() -> None:
    measured = measure([softened(tone(0.39, -1.0))])
    assert measured.integrated_lufs is None
    assert gain_for(measured).db == pytest.approx(-2.0, abs=0.1)
    assert gain_for(measure([tone(0.39, -10.0)])) == Gain(0.0, False)


@pytest.mark.parametrize(
    ("lufs", "peak", "wanted"),
    [
        (-25.0, -12.0, Gain(6.0, False)),
        (-25.0, -9.0, Gain(6.0, False)),
        (-25.0, -6.5, Gain(3.5, True)),
        (-12.0, -1.0, Gain(-7.0, False)),
        (-20.0, -0.5, Gain(-2.5, True)),
    ],
)
def test_the_gain_reaches_the_target_unless_a_peak_forbids(lufs: float, peak: float, wanted: Gain) -> None:
    assert gain_for(Loudness(lufs, peak, 1)) == wanted


@pytest.mark.parametrize("level_db", [-40.0, -14.0, 0.0])
def test_what_is_amplified_measures_at_the_target(level_db: float) -> None:
    audio = tone(2.0, level_db)
    gain = gain_for(measure([audio]))
    louder = list(amplified([audio], gain))
    assert sum(map(len, louder)) == len(audio)
    assert not gain.peak_limited
    assert measure(louder).integrated_lufs == pytest.approx(-19.0, abs=0.1)


def test_a_limited_gain_keeps_the_true_peak_under_the_limit() -> None:
    """Quiet speech with one loud crack."""
    audio = tone(3.0, -35.0)
    audio[30_000:30_010] = 20_000
    gain = gain_for(measure([audio]))
    after = measure(amplified([audio], gain))
    assert gain.peak_limited
    assert after.true_peak_dbtp is not None
    assert after.true_peak_dbtp <= -3.0 + 0.01


def test_no_gain_changes_no_sample() -> None:
    audio = tone(1.5, -3.0)
    assert np.array_equal(np.concatenate(list(amplified([audio], Gain(0.0, False)))), audio)
