"""What one session has cost and given: the figures of ``usage``."""

from __future__ import annotations

from dataclasses import dataclass, field

from worker.wire.events import Usage
from worker.wire.journal import Counters


@dataclass(slots=True)
class Stopwatch:
    """Times are seconds of the event loop's clock."""

    total_s: float = 0.0
    since: float | None = None

    def start(self, now: float) -> None:
        if self.since is None:
            self.since = now

    def stop(self, now: float) -> None:
        if self.since is not None:
            self.total_s += now - self.since
            self.since = None


@dataclass(slots=True)
class Tally:
    """Guarantee: at the end, ``queued`` and ``stalled`` are parts of the session's time that do not overlap."""

    opened_at: float
    characters: int = 0
    """Of the joined text of all generations: a surrogate pair that two deltas share is one."""
    words: int = 0
    frames: int = 0
    first_audio_at: float | None = None
    queued: Stopwatch = field(init=False)
    stalled: Stopwatch = field(default_factory=Stopwatch)
    stepped: bool = False

    def __post_init__(self) -> None:
        self.queued = Stopwatch(since=self.opened_at)

    def adopt(self, counters: Counters, opened_at: float) -> None:
        """Go on from what another worker has counted."""
        self.opened_at = opened_at
        self.characters, self.words, self.frames = counters.usage
        first = counters.first_audio_ms
        self.first_audio_at = None if first is None else opened_at + first / 1000
        self.queued = Stopwatch(counters.queued_ms / 1000)
        self.stalled = Stopwatch(counters.stalled_ms / 1000)
        self.stepped = True

    def first_step(self, now: float) -> None:
        self.stepped = True
        self.queued.stop(now)

    def wait_for_row(self, now: float) -> None:
        """A parked session has something to say."""
        self.queued.start(now)

    def stop_waiting(self, now: float) -> None:
        """It has its row, or does not want it any more. Until its first step a session waits all the same."""
        if self.stepped:
            self.queued.stop(now)

    def resume(self, now: float) -> None:
        """A stall, if there is one, is over."""
        self.stalled.stop(now)

    def close(self, now: float) -> None:
        self.queued.stop(now)
        self.stalled.stop(now)

    def usage(self, audio_ms: float) -> Usage:
        """``audio_ms``: what was sent."""
        first = None if self.first_audio_at is None else 1000 * (self.first_audio_at - self.opened_at)
        return Usage(
            characters=self.characters,
            words=self.words,
            frames=self.frames,
            audio_ms=audio_ms,
            first_audio_ms=first,
            queued_ms=1000 * self.queued.total_s,
            stalled_ms=1000 * self.stalled.total_s,
        )
