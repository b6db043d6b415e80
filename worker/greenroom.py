"""The green room: sessions whose voices are on their way wait here, and nobody waits for them.

A voice comes from a file or from the hub, and may have to be encoded: the event loop and the engine's thread are kept
free of all that. Threads of our own do it, because an executor's would be waited for when the process leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.contract import SlotOptions
from engine.errors import EngineError, UnsupportedOption, UnusableVoice, VoiceNotFound, VoiceOutOfReach
from worker.errors import WireError, unsupported_option, voice_not_found
from worker.relocation import Arrival

log = logging.getLogger(__name__)

FETCHES = 4
"""Voices that are fetched at a time."""


class VoiceSource(Protocol):
    """What of ``engine.contract.FrameEngine`` is used here: the two calls that any thread may make."""

    def lacking(self, options: SlotOptions) -> Sequence[str]: ...

    def fetch(self, voice: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Guest:
    """Whose open is in order."""

    session: str
    arrival: Arrival
    options: SlotOptions
    came_at: float
    """Loop time."""


@dataclass(slots=True)
class Errand:
    """One voice on its way. ``done`` holds what went wrong, or None."""

    voice: str
    done: asyncio.Future[Exception | None]
    begun: bool = False
    awaited_by: int = 0


class Courier:
    """Fetches voices, each once for all who want it. An errand that has begun goes on when nobody wants it any more,
    for the next one may; one that has not is dropped. A fetch that hangs keeps its thread until it gives up, and later
    requests for its voice wait for it, as long as they have patience."""

    def __init__(self, fetch: Callable[[str], None], most: int = FETCHES) -> None:
        self._fetch, self._most = fetch, most
        self._loop = asyncio.get_running_loop()
        self._errands: dict[str, Errand] = {}
        self._queue: deque[Errand] = deque()
        self._busy = 0

    async def bring(self, voice: str) -> None:
        """Raises what the fetch raised."""
        errand = self._errands.get(voice) or self._order(voice)
        errand.awaited_by += 1
        try:
            await asyncio.wait([errand.done])  # which a cancelled wait leaves alone
        finally:
            errand.awaited_by -= 1
            self._drop_unwanted(errand)
        if (error := errand.done.result()) is not None:
            raise error

    def _order(self, voice: str) -> Errand:
        errand = self._errands[voice] = Errand(voice, self._loop.create_future())
        self._queue.append(errand)
        self._begin()
        return errand

    def _drop_unwanted(self, errand: Errand) -> None:
        if not errand.awaited_by and not errand.begun:
            self._queue.remove(errand)
            del self._errands[errand.voice]

    def _begin(self) -> None:
        while self._queue and self._busy < self._most:
            errand = self._queue.popleft()
            errand.begun = True
            self._busy += 1
            # A daemon, so that a fetch that hangs keeps nobody from leaving.
            threading.Thread(target=self._run, args=(errand,), name="voice", daemon=True).start()

    def _run(self, errand: Errand) -> None:
        error: Exception | None = None
        try:
            self._fetch(errand.voice)
        except Exception as raised:  # the thread's root: whoever waits gets it
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has closed, and nobody waits
            self._loop.call_soon_threadsafe(self._settle, errand, error)

    def _settle(self, errand: Errand, error: Exception | None) -> None:
        self._busy -= 1
        del self._errands[errand.voice]
        errand.done.set_result(error)
        self._begin()


class GreenRoom:
    """Guarantees: whoever waits here is called back exactly once, on the event loop: when all its voices are there, or
    with the error that it is to be told, no later than ``limit_s`` after it came, whatever becomes of the fetch."""

    def __init__(self, voices: VoiceSource, limit_s: float) -> None:
        self._voices, self._limit_s = voices, limit_s
        self._courier = Courier(voices.fetch)
        self._waits: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def __contains__(self, session: str) -> bool:
        return session in self._waits

    def lacking(self, options: SlotOptions) -> Sequence[str]:
        """Voices that a session has to wait for. Raises WireError for what cannot be honoured. Waits for nothing."""
        try:
            return self._voices.lacking(options)
        except EngineError as error:
            raise _told(error) from None

    def wait(self, guest: Guest, done: Callable[[Guest, WireError | None], None]) -> None:
        task = asyncio.get_running_loop().create_task(self.bring(guest.options))
        self._waits[guest.session] = task
        task.add_done_callback(lambda task: self._leave(guest, task, done))

    async def close(self) -> None:
        """Turn everybody out."""
        for task in (waits := list(self._waits.values())):
            task.cancel()
        if waits:
            await asyncio.wait(waits)  # their own callbacks come before ours

    async def bring(self, options: SlotOptions) -> None:
        """Raises WireError."""
        try:
            async with asyncio.timeout(self._limit_s):
                while lacking := self.lacking(options):  # again, for what was there may have given way
                    for voice in lacking:
                        await self._courier.bring(voice)
        except TimeoutError:
            log.warning("a voice could not be fetched within %g s", self._limit_s)
            raise voice_not_found("it cannot be fetched in time", retryable=True) from None
        except EngineError as error:
            log.warning("a voice cannot be used: %s", error)
            raise _told(error) from None

    def _leave(self, guest: Guest, task: asyncio.Task[None], done: Callable[[Guest, WireError | None], None]) -> None:
        del self._waits[guest.session]
        error = WireError("no_capacity", "the worker is leaving") if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, WireError):
            log.error("a voice could not be fetched", exc_info=error)
            error = WireError("internal", "the voice could not be fetched")
        done(guest, error)


def _told(error: EngineError) -> WireError:
    """What a caller is told of it: nothing of our files."""
    match error:
        case VoiceNotFound():
            return voice_not_found("no such voice", close=error.close or error.known)
        case VoiceOutOfReach():
            return voice_not_found("it cannot be fetched now", retryable=True)
        case UnusableVoice():
            return voice_not_found("it does not fit this model, or the voice beside it")
        case UnsupportedOption():
            return unsupported_option(error.option, error.reason)
    return WireError("internal", "the voice could not be prepared")
