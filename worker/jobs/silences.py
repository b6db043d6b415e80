"""Silence between segments and around a chapter, counted in samples before any is rendered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from worker.audio.levels import Int16
from worker.jobs.files import SAMPLE_RATE, AudioRefused

MAX_SILENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Silences:
    """Seconds, each rounded to a sample once. ``gap_s``: between two segments, never at an end.

    Raises:
        AudioRefused: not a number, below 0 or above MAX_SILENCE_S
    """

    gap_s: float = 0.0
    head_s: float = 0.0
    tail_s: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("gap_s", self.gap_s), ("head_s", self.head_s), ("tail_s", self.tail_s)):
            if not 0.0 <= value <= MAX_SILENCE_S:  # refuses NaN too
                raise AudioRefused("unsupported", name, f"from 0 to {MAX_SILENCE_S:g} s")

    @property
    def gap(self) -> int:
        return round(self.gap_s * SAMPLE_RATE)

    @property
    def head(self) -> int:
        return round(self.head_s * SAMPLE_RATE)

    @property
    def tail(self) -> int:
        return round(self.tail_s * SAMPLE_RATE)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each segment starts in its chapter's file, and how long that is; samples."""

    starts: tuple[int, ...]
    samples: int


def layout(lengths: Sequence[int], silences: Silences) -> Layout:
    """``lengths`` of the segments, samples."""
    starts, at = [], silences.head
    for length in lengths:
        starts.append(at)
        at += length + silences.gap
    last_gap = silences.gap if lengths else 0
    return Layout(tuple(starts), at - last_gap + silences.tail)


def spaced(segments: Iterable[Iterable[Int16]], silences: Silences) -> Iterator[Int16]:
    """A chapter's blocks, as ``layout`` counts them; each segment comes as blocks itself."""
    yield np.zeros(silences.head, np.int16)
    for number, segment in enumerate(segments):
        if number:
            yield np.zeros(silences.gap, np.int16)
        yield from segment
    yield np.zeros(silences.tail, np.int16)
