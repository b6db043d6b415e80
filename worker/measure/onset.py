"""When a listener hears something: the silence before the first audible sample, as Coval measures it.

Source: coval-ai/benchmarks ``docs/methodology.md`` 4 and ``metrics/ttfa.py``: the first 10 ms window, centred, in hops
of 1 ms, whose RMS without its mean is above 0.01 of full scale.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from worker.audio.decoding import decoded

WINDOW_S, HOP_S, AUDIBLE_RMS = 0.010, 0.001, 0.01
Samples = npt.NDArray[np.float64]
SEARCHED_S = 3.0
"""Nothing audible in so long is not heard as the beginning of an answer."""


class Onset:
    """Looks for a session's first sound. Costs nothing while audio comes: ``seconds`` does the work."""

    def __init__(self, rate: int, encoding: str = "pcm_s16le") -> None:
        self._rate, self._encoding = rate, encoding
        self._kept: list[bytes] = []
        self._samples = 0

    def push(self, payload: bytes, samples: int) -> None:
        """Payloads in order, with the number of their samples; what comes after the searched part is not kept."""
        if self._samples < SEARCHED_S * self._rate:
            self._kept.append(payload)
            self._samples += samples

    def seconds(self) -> float | None:
        """From the first sample to the first audible one; None if there is none. Call once the audio is complete."""
        samples = decoded(b"".join(self._kept), encoding=self._encoding, sample_rate=self._rate)
        return leading_silence_s(samples[: round(SEARCHED_S * self._rate)].astype(np.float64), self._rate)


def leading_silence_s(samples: Samples, rate: int) -> float | None:
    """``samples``: full scale is 1.0."""
    window, hop = max(1, round(WINDOW_S * rate)), max(1, round(HOP_S * rate))
    if not len(samples):
        return None
    padded = np.pad(samples, window // 2, mode="edge")
    if len(padded) < window:
        return None
    total, squares = (_window_sums(values, window, hop) for values in (padded, np.square(padded)))
    power = squares / window - np.square(total / window)
    audible = np.flatnonzero(power > AUDIBLE_RMS**2)
    return float(audible[0]) * hop / rate if len(audible) else None


def _window_sums(values: Samples, window: int, hop: int) -> Samples:
    sums: Samples = np.concatenate([[0.0], np.cumsum(values)])
    return (sums[window:] - sums[:-window])[::hop]
