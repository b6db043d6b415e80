"""A worker that says only what a test tells it to, on the real wire."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.integration.mailbox import PATIENCE_S
from worker.bus import Bus, Message
from worker.wire.codec import ContentType, Packet, decode_input, decode_open, encode, encode_audio
from worker.wire.events import Audio, ControlEvent, End, EndReason, Limits, Ready, Usage
from worker.wire.requests import Input, Open
from worker.wire.subjects import input_subject, input_wildcard, parse_input_subject, pool_subject

FRAME = b"\1\0" * 1920
"""80 ms at 24 kHz."""
LIMITS = Limits(text_chars=100_000, buffer_chars=200_000, session_s=3600.0, idle_s=600.0)


class ScriptedSession:
    def __init__(self, worker: ScriptedWorker, request: Message) -> None:
        self.opening: Open = decode_open(request.headers, request.payload)
        self.heard: asyncio.Queue[Input] = asyncio.Queue()
        self.reply = request.reply
        self.seq = self.pts = 0
        self._worker = worker

    @property
    def id(self) -> str:
        assert self.opening.session is not None
        return self.opening.session

    def ready(self, limits: Limits = LIMITS) -> None:
        self.event(
            Ready.answering(
                self.opening,
                session=self.id,
                input=input_subject(self._worker.tenant, self._worker.name, self.id),
                worker=self._worker.name,
                model="scripted",
                engine="0",
                frame_ms=80.0,
                limits=limits,
            )
        )

    def event(self, event: ControlEvent) -> None:
        self._publish(encode(event, ContentType.MSGPACK))

    def audio(self, payload: bytes = FRAME, *, gen: int = 0) -> None:
        self._publish(encode_audio(Audio(payload, self.seq, self.pts, gen, "pcm_s16le")))
        self.lose_audio(payload)

    def lose_audio(self, payload: bytes = FRAME) -> None:
        """It is numbered, but not sent."""
        self.seq += 1
        self.pts += len(payload) // 2

    def end(self, reason: EndReason = "finished") -> None:
        usage = Usage(characters=1, words=2, frames=3, audio_ms=4.0, first_audio_ms=5.0, queued_ms=6.0, stalled_ms=7.0)
        self.event(End(reason=reason, usage=usage))

    async def next(self) -> Input:
        """What the producer said next."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.heard.get()

    def _publish(self, packet: Packet) -> None:
        assert self._worker.bus.publish(self.reply, packet.payload, headers=packet.headers)


class ScriptedWorker:
    """Takes every open and answers none by itself."""

    def __init__(self, bus: Bus, pool: str, *, tenant: str = "default", name: str = "scripted") -> None:
        self.bus, self.pool, self.tenant, self.name = bus, pool, tenant, name
        self._new: asyncio.Queue[ScriptedSession] = asyncio.Queue()
        self._sessions: dict[str, ScriptedSession] = {}
        bus.subscribe(pool_subject("open", tenant, pool), self._open, queue="tts")
        self.listen()

    @classmethod
    async def start(cls, bus: Bus, pool: str, **options: Any) -> ScriptedWorker:
        worker = cls(bus, pool, **options)
        await bus.barrier()
        return worker

    def listen(self) -> None:
        self._inputs = self.bus.subscribe(input_wildcard(self.name), self._input)

    async def stop_listening(self) -> None:
        """As if it were dead, to those who speak to it."""
        self._inputs.close()
        await self.bus.barrier()

    async def session(self) -> ScriptedSession:
        """The next one that is asked for."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._new.get()

    def _open(self, message: Message) -> None:
        session = ScriptedSession(self, message)
        self._sessions[session.id] = session
        self._new.put_nowait(session)

    def _input(self, message: Message) -> None:
        session = self._sessions[parse_input_subject(message.subject).session]
        session.heard.put_nowait(decode_input(message.headers, message.payload))
