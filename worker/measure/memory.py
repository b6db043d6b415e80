"""Whether a process's memory grows: samples of it over the audio that was made, and a verdict."""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

MIB = 1024**2
WARM_UP_SHARE = 0.2
"""Of the samples; what is filled once (caches, pools) is filled by then."""
TOLERATED_BYTES = 4 * MIB
"""Allocators round up: a step that kept one frame (3,840 bytes) would pass this within 90 s of audio."""
FEWEST = 8


class Samples:
    """Two numbers a sample."""

    def __init__(self) -> None:
        self._minutes = array("d")
        self._bytes = array("q")

    def __len__(self) -> int:
        return len(self._bytes)

    def add(self, minutes: float, resident: int) -> None:
        """``minutes``: of audio made so far."""
        self._minutes.append(minutes)
        self._bytes.append(resident)

    def judge(self) -> Growth:
        """Raises ValueError of fewer than eight samples."""
        if len(self) < FEWEST:
            raise ValueError(f"{len(self)} samples of memory are too few")
        warm = int(len(self) * WARM_UP_SHARE)
        minutes, resident = self._minutes[warm:], self._bytes[warm:]
        quarter = max(1, len(resident) // 4)
        grown = statistics.median(resident[-quarter:]) - statistics.median(resident[:quarter])
        return Growth(
            first_bytes=self._bytes[0],
            low_bytes=min(resident),
            high_bytes=max(resident),
            grown_bytes=round(grown),
            slope_bytes_a_minute=_slope(minutes, resident),
            series=_thinned(self._minutes, self._bytes),
        )


@dataclass(frozen=True, slots=True)
class Growth:
    first_bytes: int
    """At the start."""
    low_bytes: int
    """Of all samples after the warm-up, as ``high_bytes``."""
    high_bytes: int
    grown_bytes: int
    """Median of the last quarter less that of the first, after the warm-up."""
    slope_bytes_a_minute: float
    """Least squares, a minute of audio."""
    series: tuple[tuple[float, int], ...]
    """(minutes of audio, bytes); at most 120 of the samples."""

    @property
    def flat(self) -> bool:
        return self.grown_bytes <= TOLERATED_BYTES


def _slope(xs: Sequence[float], ys: Sequence[int]) -> float:
    if len(set(xs)) < 2:
        return 0.0
    return statistics.linear_regression(xs, ys).slope


def _thinned(xs: Sequence[float], ys: Sequence[int]) -> tuple[tuple[float, int], ...]:
    every = -(-len(xs) // 120)
    return tuple(zip(xs[::every], ys[::every], strict=True))
