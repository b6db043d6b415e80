"""One session, heard by somebody who did not open it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from worker.bus import Message
from worker.client_events import Inlet, SpeechEvent, TimedAudio, WorkerGone
from worker.connection import Hook
from worker.errors import WireError
from worker.wire.codec import decode_event
from worker.wire.events import Audio, ControlEvent, End, Info, Ready

log = logging.getLogger(__name__)

SILENCE_S = 5.0
"""A living session says ``ready`` every 2 s."""
TAKE_OVER_S = 15.0
"""The same for a session that another worker may take over."""


class Listening:
    """A session that was opened with ``fanout``; made by ``Client.listen``, used on the event loop's thread by one
    reader, as a context manager.

    As an async iterator it gives every event from now on in order, ``End`` last; ``stream`` gives what belongs into a
    file. Guarantees: those of ``Inlet`` from the first audio on; and nothing that a listener does or fails to do
    reaches the session or its other listeners.
    """

    def __init__(self, queue_bytes: int, *, tick_s: float, on_over: Hook) -> None:
        self._inlet = Inlet(queue_bytes, late=True)
        self._tick_s, self._on_over = tick_s, on_over
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ready: Ready | None = None
        self._quiet_ticks = 0
        self._heard = False
        self._whole = False
        self._over = False

    @property
    def ready(self) -> Ready:
        """The last one that was heard."""
        assert self._ready is not None, "await begun() first"
        return self._ready

    async def begun(self) -> Ready:
        """Waits until the session says what it is, every 2 s once it lives. Meanwhile audio waits here.

        Raises WorkerGone.
        """
        await asyncio.shield(self._begun)
        return self.ready

    @property
    def header(self) -> bytes:
        """What goes before the first audio that was heard: the container's header, if the session's beginning was
        missed and its format has one. Known when ``begun`` has returned and audio has been read."""
        return b"" if self._whole else self.ready.header_bytes

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SpeechEvent:
        """Raises WorkerGone. Safe to cancel."""
        event = await self._inlet.get()
        if event is None:
            raise StopAsyncIteration
        return event

    async def stream(self) -> AsyncIterator[bytes]:
        """The session as a file of its format from the first audio on; what was lost is left out. Raises WorkerGone."""
        await self.begun()
        header_due = True
        async for event in self:
            if isinstance(event, TimedAudio):
                yield self.header + event.payload if header_due else event.payload
                header_due = False

    # --- the client's side ----------------------------------------------------------------------------------------

    def hear(self, message: Message) -> None:
        if self._over:
            return
        try:
            event = decode_event(message.headers, message.payload)
        except WireError:
            log.warning("what arrived for a listener is no event of the wire contract; passed over")
            return
        self._heard = True
        self._quiet_ticks = 0
        self._take(event)

    def tick(self) -> None:
        """Silence counts once something was heard: a session may begin later."""
        if self._over or not self._heard:
            return
        self._quiet_ticks += 1
        limit_s = TAKE_OVER_S if self._ready is not None and self._ready.resume else SILENCE_S
        if self._quiet_ticks * self._tick_s > limit_s:
            self.fail(WorkerGone(f"nothing heard for {limit_s:g} s"))

    def fail(self, error: Exception) -> None:
        """The reader gets what has arrived, then the error."""
        if not self._over:
            self._inlet.fail(error)
            if not self._begun.done():
                self._begun.set_exception(error)
                self._begun.exception()  # nobody may be waiting for it
            self._leave()

    def _take(self, event: ControlEvent | Audio) -> None:
        match event:
            case Ready():
                self._ready = event
                if not self._begun.done():
                    self._begun.set_result(None)
            case Audio():
                self._whole = self._whole or event.seq == 0
                at = asyncio.get_running_loop().time()
                self._inlet.put_audio(TimedAudio(event.payload, event.seq, event.pts, event.gen, event.encoding, at))
            case End():
                self._inlet.end(event)
                self._leave()
            case Info():
                pass
            case _:
                self._inlet.put(event)

    def _leave(self) -> None:
        self._over = True
        self._on_over()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._over:
            self._leave()
