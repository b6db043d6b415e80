"""Where audio begins or ends in the middle of a sound: a ramp of 5 ms instead of a step, which is heard as a click.

A voice that begins and ends in silence is not touched.
"""

from __future__ import annotations

import numpy as np

from worker.audio.levels import Samples

RAMP_S, SLOPE_S = 0.005, 0.0015
STEP = 1 / 128
"""-42 dBFS: a smaller step is not heard beside speech."""


def _rising(length: int) -> Samples:
    """Half a cosine, from just above 0 to just below 1."""
    ramp: Samples = (0.5 - 0.5 * np.cos(np.pi * (np.arange(length) + 0.5) / length)).astype(np.float32)
    return ramp


class Onset:
    """Raises a beginning that is loud from its first sample on, however it is cut into pushes."""

    def __init__(self, sample_rate: int) -> None:
        self._ramp = _rising(round(sample_rate * RAMP_S))
        self._at: int | None = 0  # samples since the beginning; None: nothing to do

    @property
    def over(self) -> bool:
        return self._at is None

    def reset(self) -> None:
        self._at = 0

    def push(self, samples: Samples) -> Samples:
        if self._at is None or not len(samples):
            return samples
        if self._at == 0 and abs(samples[0]) <= STEP:
            self._at = None
            return samples
        ramp = self._ramp[self._at : self._at + len(samples)]
        self._at = self._at + len(ramp) if self._at + len(ramp) < len(self._ramp) else None
        return np.concatenate([samples[: len(ramp)] * ramp, samples[len(ramp) :]])


class Ending:
    """Remembers where the audio is and where it goes, for a way down to 0 if it ends in a sound.

    Speech cut at 400 places and heard above 5 kHz: a bare end is louder than the speech itself by 8 dB (median; p99:
    30), one that lets the last value decay by up to 5, this one never.
    """

    def __init__(self, sample_rate: int) -> None:
        at = np.arange(1, round(sample_rate * RAMP_S) + 1, dtype=np.float32)
        self._value = _rising(len(at))[::-1]
        part = np.minimum(1.0, at / (sample_rate * SLOPE_S))
        self._slope: Samples = (sample_rate * SLOPE_S * part * (1 - part) ** 2).astype(np.float32)
        self._before = self._last = np.float32(0)

    def reset(self) -> None:
        self._before = self._last = np.float32(0)

    def heard(self, samples: Samples) -> None:
        if len(samples):
            self._before, self._last = samples[-2] if len(samples) > 1 else self._last, samples[-1]

    def decay(self) -> Samples:
        """What follows: nothing after a quiet sample, else 5 ms that go on as the last two do, and fade."""
        if abs(self._last) <= STEP:
            return np.empty(0, np.float32)
        return self._last * self._value + (self._last - self._before) * self._slope
