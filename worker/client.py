"""A client of the worker: ``Client`` opens sessions at a pool, each of them a ``Speech``."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import secrets
from types import TracebackType
from typing import Self

from worker.bus import Bus, Message, Subscription
from worker.client_events import AudioGap, ClientError, Gap, Moved, SpeechEvent, TimedAudio, WorkerGone
from worker.client_line import Patience
from worker.client_listener import Listening
from worker.client_session import Speech
from worker.connection import BusOptions
from worker.errors import BusUnavailable, RequestTimeout, WireError
from worker.wire.codec import ContentType, decode_event, encode
from worker.wire.events import Error, Info
from worker.wire.requests import InfoRequest, Open
from worker.wire.subjects import out_subject, pool_subject

__all__ = [
    "AudioGap",
    "Client",
    "ClientError",
    "Gap",
    "Listening",
    "Moved",
    "Patience",
    "Speech",
    "SpeechEvent",
    "TimedAudio",
    "WorkerGone",
]

GHOST_S = 60.0
"""How long an open that timed out may still come to life, or a worker that was given up come back, and be cancelled."""
QUEUE_BYTES = 32 * 1024 * 1024
OWN_INBOX = "_INBOX"


class Client:
    """One connection for any number of sessions, all of which are heard through one subscription, but for those that
    others may hear too."""

    def __init__(self, bus: Bus, *, tenant: str, pool: str, patience: Patience) -> None:
        """``connect`` makes one."""
        self._bus, self._tenant, self._patience = bus, tenant, patience
        self._open_subject = pool_subject("open", tenant, pool)
        self._info_subject = pool_subject("info", tenant, pool)
        self._loop = asyncio.get_running_loop()
        self._inbox = bus.new_inbox()
        self._speeches: dict[str, Speech] = {}
        self._ghosts: dict[str, Speech] = {}
        """Given up, but their worker may come back."""
        self._fanned: dict[str, Subscription] = {}
        self._listenings: set[Listening] = set()
        self._opens = 0
        self._ticker: asyncio.TimerHandle | None = None

    @classmethod
    async def connect(
        cls,
        options: BusOptions,
        *,
        tenant: str = "default",
        pool: str = "std",
        patience: Patience | None = None,
        timeout_s: float = 5.0,
    ) -> Client:
        """A tenant other than ``default`` is answered below ``_INBOX_<tenant>``, unless ``options`` name another inbox.

        Raises BusUnavailable, WireError (bad_request: tenant or pool is no subject token).
        """
        if tenant != "default" and options.inbox_prefix == OWN_INBOX:
            options = dataclasses.replace(options, inbox_prefix=f"{OWN_INBOX}_{tenant}")
        pool_subject("open", tenant, pool)
        bus = await Bus.connect(options, timeout_s=timeout_s)
        client = cls(bus, tenant=tenant, pool=pool, patience=patience or Patience())
        bus.subscribe(f"{client._inbox}.*", client._hear)
        bus.on_online(client._online)
        client._tick()
        try:
            await bus.barrier()
        except BaseException:
            await client.close()
            raise
        return client

    async def info(self, timeout_s: float = 2.0) -> Info:
        """What the pool offers. Raises NoResponders (no worker), RequestTimeout, BusUnavailable, WireError."""
        packet = encode(InfoRequest(), ContentType.MSGPACK)
        answer = await self._bus.request(
            self._info_subject, packet.payload, headers=packet.headers, timeout_s=timeout_s
        )
        event = decode_event(answer.headers, answer.payload)
        if isinstance(event, Error):
            raise event.as_exception()
        if not isinstance(event, Info):
            raise WireError("internal", "the answer to an info request is no info")
        return event

    async def open(
        self,
        request: Open,
        *,
        timeout_s: float = 0.3,
        retries: int = 2,
        queue_bytes: int = QUEUE_BYTES,
        pings: bool = False,
    ) -> Speech:
        """Open a session.

        An attempt that nobody answers within ``timeout_s`` is repeated under a fresh session id, unless the request
        names one; should it live on as a ghost, it is cancelled. A voice that the worker has to fetch first may take it
        half a minute, so whoever asks for a new one gives it that. ``queue_bytes``: audio that may wait to be read.
        ``pings``: ask the worker every second whether it is there, also while it has nothing to say. A request with
        ``resume`` survives its worker: another goes on with it, and ``Moved`` says so.

        Raises WireError (no_capacity at once if no slot is free), RequestTimeout, BusUnavailable, MessageTooLarge.
        """
        attempts = 1 if request.session is not None else 1 + retries
        opened_at = self._loop.time()
        for attempt in range(attempts):
            speech = self._publish(request, opened_at, queue_bytes, pings)
            try:
                async with asyncio.timeout(timeout_s):
                    await speech.opened()
                    return speech
            except TimeoutError:
                self._give_up_on(speech)
            except BaseException:
                self._give_up_on(speech)
                raise
            if attempt + 1 < attempts:
                await asyncio.sleep(random.uniform(0.0, timeout_s))
        raise RequestTimeout(self._open_subject, timeout_s)

    async def listen(self, session: str, *, queue_bytes: int = QUEUE_BYTES) -> Listening:
        """Hear a session that somebody opens with ``fanout``, or has opened. ``queue_bytes``: audio that may wait to be
        read; what exceeds it is lost to this listener alone.

        Raises WireError (bad_request: not a session's name), BusUnavailable.
        """

        def forget() -> None:
            subscription.close()
            self._listenings.discard(listening)

        subject = out_subject(self._tenant, session)
        listening = Listening(queue_bytes, tick_s=self._patience.tick_s, on_over=forget)
        subscription = self._bus.subscribe(subject, listening.hear)
        self._listenings.add(listening)
        await self._bus.barrier()
        return listening

    async def close(self) -> None:
        """Cancel what is live, then leave."""
        if self._ticker is not None:
            self._ticker.cancel()
        for speech in list(self._speeches.values()):
            await speech.cancel()
            speech.fail(ClientError("the client was closed"))
        for listening in list(self._listenings):
            listening.fail(ClientError("the client was closed"))
        await self._bus.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- sessions -----------------------------------------------------------------------------------------------

    def _publish(self, request: Open, opened_at: float, queue_bytes: int, pings: bool) -> Speech:
        """Raises BusUnavailable, MessageTooLarge."""
        if request.session is None:
            request = request.model_copy(update={"session": secrets.token_hex(16)})
        self._opens += 1
        token = str(self._opens)
        reply = f"{self._inbox}.{token}"
        speech = Speech(
            self._bus,
            reply,
            request,
            self._patience,
            opened_at=opened_at,
            queue_bytes=queue_bytes,
            pings=pings,
            on_over=lambda: self._forget(token),
            reopen=lambda: self._reopen(request, reply),
        )
        if request.fanout:
            self._hear_fanned(token, request)
        packet = encode(request, ContentType.MSGPACK)
        if not self._bus.publish(self._open_subject, packet.payload, headers=packet.headers, reply=reply):
            self._forget(token)
            raise BusUnavailable("not connected")
        self._speeches[token] = speech
        return speech

    def _reopen(self, request: Open, reply: str) -> None:
        """The session's options are known to whoever takes it over."""
        packet = encode(Open(session=request.session, resume=True), ContentType.MSGPACK)
        self._bus.publish(self._open_subject, packet.payload, headers=packet.headers, reply=reply)

    def _hear_fanned(self, token: str, request: Open) -> None:
        """Before the open is said: everything but its answer comes here."""
        assert request.session is not None

        def hear(message: Message) -> None:
            speech = self._speeches.get(token)
            if speech is not None:
                speech.hear(message, 0, self._loop.time())

        self._fanned[token] = self._bus.subscribe(out_subject(self._tenant, request.session), hear)

    def _give_up_on(self, speech: Speech) -> None:
        if speech.over:
            return
        speech.abandon()
        self._loop.call_later(GHOST_S, speech.fail, ClientError("never opened"))

    def _forget(self, token: str) -> None:
        speech = self._speeches.pop(token, None)
        if speech is not None and speech.given_up:
            self._ghosts[token] = speech
            self._loop.call_later(GHOST_S, self._ghosts.pop, token, None)
        fanned = self._fanned.pop(token, None)
        if fanned is not None:
            fanned.close()

    # --- inbound ------------------------------------------------------------------------------------------------

    def _hear(self, message: Message) -> None:
        token, _, note = message.subject.rpartition(".")[2].partition("-")
        speech = self._speeches.get(token) or self._ghosts.get(token)
        if speech is not None:
            speech.hear(message, int(note) if note.isdecimal() else 0, self._loop.time())

    def _online(self) -> None:
        for speech in list(self._speeches.values()):
            speech.online()

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(self._patience.tick_s, self._tick)
        for speech in list(self._speeches.values()):
            speech.tick()
        for listening in list(self._listenings):
            listening.tick()
