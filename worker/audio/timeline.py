"""The model's time and the listener's: which sample of a generation is heard when."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Audio between two flushes of a generation: its length is rounded to whole samples, and a flush may add some."""

    fed: int
    """Samples of the generation, without the trimmed ones, that came before it."""
    position: int
    """Index of its first output sample."""


class Timeline:
    """Of one generation: ``fed`` counts its samples at the model's rate, positions are those of the whole session."""

    def __init__(self, position: int, *, model_rate: int, output_rate: int) -> None:
        self._model_rate, self._rate = model_rate, output_rate
        self._stretches = [_Stretch(0, position)]
        self.fed = 0

    @property
    def stretch_begun(self) -> bool:
        return self.fed > self._stretches[-1].fed

    def begin_stretch(self, position: int) -> None:
        """The next sample will be heard at ``position``."""
        if self.stretch_begun:
            self._stretches.append(_Stretch(self.fed, position))

    def position(self, fed: int) -> float:
        """Where a sample is heard, also one to come."""
        stretch = self._stretches[bisect_right(self._stretches, fed, key=lambda stretch: stretch.fed) - 1]
        return stretch.position + (fed - stretch.fed) * self._rate / self._model_rate

    def fed_at(self, position: float) -> int:
        """How many samples have been heard at a position."""
        if position <= self._stretches[0].position:
            return 0
        index = bisect_right(self._stretches, position, key=lambda stretch: stretch.position) - 1
        stretch = self._stretches[index]
        end = self._stretches[index + 1].fed if index + 1 < len(self._stretches) else self.fed
        return min(end, stretch.fed + round((position - stretch.position) * self._model_rate / self._rate))
