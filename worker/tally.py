"""What one session has cost and given: the figures of ``usage``."""

from __future__ import annotations

from dataclasses import dataclass

from worker.wire.events import Usage


@dataclass(slots=True)
class Tally:
    """Times are seconds of the event loop's clock."""

    opened_at: float
    characters: int = 0
    words: int = 0
    frames: int = 0
    first_audio_at: float | None = None
    queued_s: float = 0.0
    stalled_s: float = 0.0
    stalled_since: float | None = None

    def resume(self, now: float) -> None:
        """A stall, if there is one, is over."""
        if self.stalled_since is not None:
            self.stalled_s += now - self.stalled_since
            self.stalled_since = None

    def usage(self, audio_ms: float) -> Usage:
        """``audio_ms``: what was sent."""
        first = None if self.first_audio_at is None else 1000 * (self.first_audio_at - self.opened_at)
        return Usage(
            characters=self.characters,
            words=self.words,
            frames=self.frames,
            audio_ms=audio_ms,
            first_audio_ms=first,
            queued_ms=1000 * self.queued_s,
            stalled_ms=1000 * self.stalled_s,
        )
