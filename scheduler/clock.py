"""Time for the step loop: a clock that can wait, its fake twin, and the beat of the frame clock."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds, and a wait that a command can cut short."""

    def now(self) -> float: ...

    def wait(self, event: threading.Event, until: float) -> None:
        """Block until ``event`` is set or ``now() >= until`` (``math.inf``: no time limit)."""
        ...


class SystemClock:
    """The machine's monotonic clock. Thread-safe."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, until: float) -> None:
        event.wait(None if math.isinf(until) else max(0.0, until - time.monotonic()))


class FakeClock:
    """Time that stands still until somebody advances it; calls booked with ``at`` happen on the way, in order.

    Waiting is advancing, so a loop that runs on this clock never blocks: it jumps to whatever comes first.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now = start_s
        self._order = itertools.count()
        self._calendar: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        return self._now

    def at(self, when_s: float, call: Callable[[], None]) -> None:
        """Book ``call`` for the moment at which the clock passes ``when_s``."""
        heapq.heappush(self._calendar, (when_s, next(self._order), call))

    def advance(self, seconds: float) -> None:
        self._reach(self._now + seconds, None)

    def wait(self, event: threading.Event, until: float) -> None:
        """Raises ``RuntimeError`` where a real clock would sleep for ever."""
        if math.isinf(until) and not event.is_set() and not self._calendar:
            raise RuntimeError("nothing is booked on this clock and no time to wait for was given")
        self._reach(until, event)

    def _reach(self, until: float, stop: threading.Event | None) -> None:
        while not (stop and stop.is_set()):
            if not self._calendar or self._calendar[0][0] > until:
                if not math.isinf(until):
                    self._now = max(self._now, until)
                return
            when, _, call = heapq.heappop(self._calendar)
            self._now = max(self._now, when)
            call()


@dataclass(frozen=True, slots=True)
class Beat:
    """The frame clock that all sessions of a loop share: beat ``i`` is at ``origin_s + i * period_s``.

    A time within a millionth of a beat of one counts as on it: sums and quotients of floats round to different sides.
    """

    origin_s: float
    period_s: float

    def index(self, time_s: float) -> int:
        """Number of the last beat at or before a time."""
        return math.floor((time_s - self.origin_s) / self.period_s + 1e-6)

    def at(self, index: int) -> float:
        return self.origin_s + index * self.period_s

    def ceil(self, time_s: float) -> float:
        """The first beat at or after a time."""
        return self.origin_s + math.ceil((time_s - self.origin_s) / self.period_s - 1e-6) * self.period_s

    def after(self, time_s: float) -> float:
        """The first beat after a time."""
        return self.origin_s + (self.index(time_s) + 1) * self.period_s

    def divided(self, parts: int) -> Beat:
        """Equal parts of the beat, as a beat of their own."""
        return Beat(self.origin_s, self.period_s / parts)
