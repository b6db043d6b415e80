"""An ideal player: it begins 60 ms after the first audio has come, and never waits for a sample.

Source of the definition: an underrun is a sample that is not there at first arrival + 60 ms + pts / rate.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass

GRACE_S = 0.060
KEPT_UNDERRUNS = 1_000


@dataclass(frozen=True, slots=True)
class Underrun:
    """Times of the event loop's clock."""

    due: float
    came: float

    @property
    def late_s(self) -> float:
        return self.came - self.due


class Player:
    """Hears one session's audio messages. Memory: four bytes a message, and the first 1,000 underruns."""

    def __init__(self, rate: int, grace_s: float = GRACE_S) -> None:
        self._rate = rate
        self._grace_s = grace_s
        self._zero: float | None = None  # when sample 0 is played
        self._waiting = False
        self.expected = 0
        """Index of the sample that should come next."""
        self.samples = 0
        self.last: float | None = None
        """When the latest audio came."""
        self.lateness_s = array("f")
        """One value a message: how long after its first sample's time it came; negative = early."""
        self.underruns: list[Underrun] = []
        self.underrun_count = 0
        self.late_samples = 0
        """Samples that were not there when they should have been played."""
        self.lost_samples = 0
        """Samples that never came although later ones did."""
        self.misplaced = 0
        """Messages whose first sample lies before the end of an earlier one."""

    @property
    def clean(self) -> bool:
        return not (self.underrun_count or self.lost_samples or self.misplaced)

    @property
    def audio_s(self) -> float:
        return self.samples / self._rate

    def hear(self, at: float, pts: int, samples: int) -> None:
        """``at``: time of arrival; ``pts``: index of the first of the samples."""
        if samples == 0:
            return
        self._start(at, pts)
        assert self._zero is not None
        due = self._zero + pts / self._rate
        self.lateness_s.append(at - due)
        self.samples += samples
        self.last = at
        if pts < self.expected:
            self.misplaced += 1
        self.lost_samples += max(0, pts - self.expected)
        self.expected = max(self.expected, pts + samples)
        if at > due:
            self._miss(Underrun(due, at), samples)

    def pause(self) -> None:
        """The model has no text: what it has made is played to its end, and the next audio begins playback anew."""
        self._waiting = True

    def end(self, total: int) -> None:
        """``total``: samples that were sent in all; what has not come by now is lost."""
        self.lost_samples += max(0, total - self.expected)
        self.expected = max(self.expected, total)

    def cut(self, at: float) -> None:
        """Nobody listens on. What should have been there by now and is not would have been late at least."""
        if self._zero is not None and not self._waiting:
            due = self._zero + self.expected / self._rate
            if at > due:
                self._miss(Underrun(due, at), math.ceil((at - due) * self._rate))

    def _start(self, at: float, pts: int) -> None:
        fresh = at + self._grace_s - pts / self._rate
        if self._zero is None:
            # From sample 0: if the beginning is lost, that is a hole and not a later start.
            self._zero = at + self._grace_s
        elif self._waiting:
            self._zero = max(self._zero, fresh)
        self._waiting = False

    def _miss(self, underrun: Underrun, samples: int) -> None:
        self.underrun_count += 1
        self.late_samples += min(samples, math.ceil(underrun.late_s * self._rate))
        if len(self.underruns) < KEPT_UNDERRUNS:
            self.underruns.append(underrun)
