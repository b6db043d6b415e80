"""The machine's own wake-up stalls, measured by an idle process beside the load.

``python -m worker.measure.stalls`` sleeps 1 to 5 ms at a time and notes how much later than asked it woke. What it
waited because our own processes held the cores, Linux counts (``/proc/self/schedstat``, the second number); the rest
is the machine's: a virtual CPU that the host did not run, a late timer. A line on its standard input ends a phase and
is answered with the phase's figures as one line of JSON; the end of its input ends it.

This module imports the standard library alone, so that the process is light.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import sys
import time
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Self

SLEEPS_MS = (1, 3, 5, 2, 4)
BIN_S, BINS = 0.000_1, 1_000
"""The histogram's resolution and reach; what lies beyond it is kept as the maximum, and as a stall."""
STALL_S = 0.005
KEPT_STALLS = 5_000
SECONDS = 7_200


@dataclass(frozen=True, slots=True)
class Stall:
    """One late wake-up. Times of CLOCK_MONOTONIC, which all processes of a machine share."""

    due: float
    woke: float
    queued_s: float
    """Of the delay: ready to run while other processes of this machine held the cores."""

    @property
    def host_s(self) -> float:
        return max(0.0, self.woke - self.due - self.queued_s)


@dataclass(frozen=True, slots=True)
class Phase:
    """What an idle process saw between two marks. Percentiles to 0.1 ms, by nearest rank."""

    wakes: int
    seconds: float
    p50_s: float
    p99_s: float
    max_s: float
    over_5ms: int
    queued_known: bool
    """False: this kernel does not count waiting, and all of a stall looks like the host's."""
    worst_by_second_s: tuple[float, ...]
    stalls: tuple[Stall, ...]
    """Over 5 ms, in order; at most 5,000."""

    @classmethod
    def parse(cls, line: bytes) -> Self:
        fields: dict[str, Any] = json.loads(line)
        fields["stalls"] = tuple(Stall(*values) for values in fields["stalls"])
        fields["worst_by_second_s"] = tuple(fields["worst_by_second_s"])
        return cls(**fields)

    @property
    def host_max_s(self) -> float:
        """The longest stall that no process of this machine was to blame for."""
        return max((stall.host_s for stall in self.stalls), default=min(self.max_s, STALL_S))

    def host_between(self, start: float, end: float) -> float:
        """Seconds in an interval during which the host did not run us."""
        return sum(_overlap(stall, start, end) for stall in self.stalls)


def _overlap(stall: Stall, start: float, end: float) -> float:
    """A stall's share that is the host's is taken for its first part: who waits for a core has been woken before."""
    return max(0.0, min(end, stall.due + stall.host_s) - max(start, stall.due))


@dataclass(slots=True)
class Tally:
    """One phase while it lasts. Its size does not depend on how many wake-ups there are."""

    began: float
    histogram: array[int] = field(default_factory=lambda: array("q", bytes(8 * (BINS + 1))))
    worst_by_second: array[float] = field(default_factory=lambda: array("d"))
    stalls: list[Stall] = field(default_factory=list)
    over: int = 0
    max_s: float = 0.0

    def add(self, due: float, woke: float, queued_s: float) -> None:
        late = max(0.0, woke - due)
        self.histogram[min(BINS, int(late / BIN_S))] += 1
        self.max_s = max(self.max_s, late)
        self._note_second(woke, late)
        if late > STALL_S:
            self.over += 1
            if len(self.stalls) < KEPT_STALLS:
                self.stalls.append(Stall(due, woke, queued_s))

    def _note_second(self, woke: float, late: float) -> None:
        second = int(woke - self.began)
        if second < SECONDS:
            self.worst_by_second.extend(itertools.repeat(0.0, second + 1 - len(self.worst_by_second)))
            self.worst_by_second[second] = max(self.worst_by_second[second], late)

    def quantile(self, q: float) -> float:
        """Upper edge of the value's bin, at most the maximum."""
        wakes = sum(self.histogram)
        below = 0
        for index, count in enumerate(self.histogram):
            below += count
            if wakes and below >= q * wakes and index < BINS:
                return min(self.max_s, (index + 1) * BIN_S)
        return self.max_s

    def close(self, now: float, queued_known: bool) -> Phase:
        return Phase(
            wakes=sum(self.histogram),
            seconds=now - self.began,
            p50_s=self.quantile(0.50),
            p99_s=self.quantile(0.99),
            max_s=self.max_s,
            over_5ms=self.over,
            queued_known=queued_known,
            worst_by_second_s=tuple(self.worst_by_second),
            stalls=tuple(self.stalls),
        )


class Queue:
    """How long this process has been ready to run without running, in seconds."""

    def __init__(self) -> None:
        self._file = -1
        with contextlib.suppress(OSError):
            self._file = os.open("/proc/self/schedstat", os.O_RDONLY)

    @property
    def known(self) -> bool:
        return self._file >= 0

    def seconds(self) -> float:
        return int(os.pread(self._file, 64, 0).split()[1]) / 1e9 if self.known else 0.0


def as_line(phase: Phase) -> str:
    fields = asdict(phase)
    fields["stalls"] = [(stall.due, stall.woke, stall.queued_s) for stall in phase.stalls]
    return json.dumps(fields)


def watch() -> Iterator[Phase]:
    """Blocks; a phase for each line of standard input, until that ends."""
    queue = Queue()
    tally, waited = Tally(time.monotonic()), queue.seconds()
    for sleep_ms in itertools.cycle(SLEEPS_MS):
        due = time.monotonic() + sleep_ms / 1000
        called = bool(select.select([0], [], [], sleep_ms / 1000)[0])
        woke, before, waited = time.monotonic(), waited, queue.seconds()
        if not called:
            tally.add(due, woke, waited - before)
        elif not os.read(0, 1):
            return
        else:
            yield tally.close(woke, queue.known)
            tally = Tally(time.monotonic())


def main() -> int:
    for phase in watch():
        print(as_line(phase), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
