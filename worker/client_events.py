"""What a client hears of one session: its events in order, with the times of arrival and every hole in the audio."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from worker.errors import WorkerError
from worker.wire.events import Audio, Cancelled, End, Error, Flushed, Mark, NeedText, Pulse


class ClientError(WorkerError):
    """A session that the client had to give up."""


class WorkerGone(ClientError):
    """Nothing is heard of the session's worker any more; the session may be opened again at another."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the worker is gone: {reason}")
        self.reason = reason


class AudioGap(ClientError):
    """``Speech.audio`` met a hole: ``missing`` payloads from ``seq`` on."""

    def __init__(self, seq: int, missing: int) -> None:
        super().__init__(f"{missing} audio messages are missing from number {seq} on")
        self.seq = seq
        self.missing = missing


@dataclass(frozen=True, slots=True)
class TimedAudio(Audio):
    """``at``: the event loop's time when the message reached the subscription, however late it is read."""

    at: float


@dataclass(frozen=True, slots=True)
class Gap:
    """``missing`` audio payloads from ``seq`` on were shed or lost on the way, or did not fit the session's queue."""

    seq: int
    missing: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Another worker has taken the session over. ``exact``: what follows is what would have followed."""

    worker: str
    exact: bool


SpeechEvent = TimedAudio | Gap | Moved | Mark | NeedText | Flushed | Cancelled | Error | End | Pulse


class Inlet:
    """Events between the connection's callback and the one reader.

    Guarantees: audio comes out in the order of ``seq``, each payload once, none of a generation below ``gen`` (nor a
    mark of one), and a ``Gap`` stands where some are missing, at the end too. At most ``limit_bytes`` of audio wait;
    what exceeds that is dropped, so that a reader who stops reading loses audio rather than memory. Everything else
    always fits.
    """

    def __init__(self, limit_bytes: int, *, late: bool = False) -> None:
        """``late``: the session may have begun before; what was missed then is no gap."""
        self._limit_bytes = limit_bytes
        self._late = late
        self._events: deque[SpeechEvent] = deque()
        self._bytes = 0
        self._next_seq = 0
        self._last_seq = -1
        self._wake = asyncio.Event()
        self._ended = False
        self._failure: Exception | None = None
        self.gen = 0
        self._from_gen = 0
        self._begins = False  # after a take-over the first of a generation may have the number of one that was cut

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    def put_audio(self, audio: TimedAudio) -> None:
        if self._late:
            self._late = False
            self._next_seq = audio.seq
        if audio.gen < self._from_gen:
            return
        if self._begins and audio.gen >= self.gen:
            self._begins = False
            self._next_seq = min(self._next_seq, audio.seq)
        self._last_seq = max(self._last_seq, audio.seq)
        if audio.seq < self._next_seq:
            return
        if audio.gen >= self.gen and self._bytes + len(audio.payload) > self._limit_bytes:
            return
        self._note_gap(audio.seq)
        self._next_seq = audio.seq + 1
        if audio.gen >= self.gen:
            self._bytes += len(audio.payload)
            self._append(audio)

    def put(self, event: Moved | Mark | NeedText | Flushed | Cancelled | Error | Pulse) -> None:
        self._append(event)

    def end(self, event: End) -> None:
        """The last event."""
        self._note_gap(self._last_seq + 1)
        self._append(event)
        self._ended = True

    def fail(self, error: Exception) -> None:
        """No more events: the reader gets what has come, then the error."""
        self._failure = self._failure or error
        self._wake.set()

    def begin(self, gen: int) -> None:
        """Audio and marks of older generations are not wanted any more, what waits here included."""
        if gen == self.gen:
            return
        self.gen = gen
        self._begins = True
        kept = [event for event in self._events if not _is_old(event, gen)]
        self._events = deque(kept)
        self._bytes = sum(len(event.payload) for event in kept if isinstance(event, Audio))

    def moved(self, gen: int) -> None:
        """Another worker speaks, from this generation on: what its predecessor may still say is not wanted."""
        self._from_gen = gen

    async def get(self) -> SpeechEvent | None:
        """None after ``end``. Raises the failure. Safe to cancel."""
        while not self._events:
            if self._ended:
                return None
            if self._failure is not None:
                raise self._failure
            self._wake.clear()
            await self._wake.wait()
        event = self._events.popleft()
        if isinstance(event, Audio):
            self._bytes -= len(event.payload)
        return event

    def _note_gap(self, seq: int) -> None:
        if seq > self._next_seq:
            self._append(Gap(self._next_seq, seq - self._next_seq))
            self._next_seq = seq

    def _append(self, event: SpeechEvent) -> None:
        self._events.append(event)
        self._wake.set()


def _is_old(event: SpeechEvent, gen: int) -> bool:
    """A mark has come before its generation was cancelled, so it is of an older one."""
    return isinstance(event, Mark) or (isinstance(event, Audio) and event.gen < gen)
