"""A whole worker with the built-in voice for a test session, and what a stock NATS client says to it and hears.

Nothing here uses the worker's own client or codec: bodies are ``json`` and ``msgpack``, headers are strings.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import msgpack
import nats
import numpy as np
import numpy.typing as npt
from nats.aio.client import Client
from nats.aio.msg import Msg

from scheduler.loop import LoopRules
from tests.listening import pages
from worker.sections import ModelSettings, NatsSettings, ProbesSettings, Settings
from worker.service import Service, running

PATIENCE_S = 30.0
"""How long a test waits for what must come; a loaded machine is slow."""
JSON = "application/json"
MSGPACK = "application/msgpack"
WIDTHS = {"audio/x-pcm-s16le": 2, "audio/x-pcm-f32le": 4, "audio/PCMU": 1, "audio/PCMA": 1, "audio/wav": 2}
OGG = "audio/ogg; codecs=opus"
WAV_HEADER_BYTES = 44

Fields = dict[str, Any]


def live_settings(slots: int = 4, **sections: Any) -> Settings:
    """Settings of a worker for tests, with a server of its own. The fewer slots, the sooner it is warm."""
    defaults: Fields = {
        "nats": NatsSettings(embedded="on"),
        "probes": ProbesSettings(port=0),
        "model": ModelSettings(device="cpu", slots=slots),
    }
    return Settings(**{**defaults, **sections})


@dataclass(frozen=True, slots=True)
class Heard:
    """One event as it came."""

    kind: str
    """``Tts-Event``, or ``status 503``."""
    headers: dict[str, str]
    payload: bytes

    @classmethod
    def of(cls, message: Msg) -> Heard:
        headers = dict(message.headers or {})
        kind = headers.get("Tts-Event") or f"status {headers.get('Status', '')}"
        return cls(kind, headers, message.data)

    @property
    def fields(self) -> Fields:
        assert self.kind not in ("audio", "status 503"), self.kind
        if self.headers["Content-Type"] == MSGPACK:
            loaded: Fields = msgpack.unpackb(self.payload)
        else:
            assert self.headers["Content-Type"] == JSON
            loaded = json.loads(self.payload)
        assert loaded["type"] == self.kind
        return loaded

    def number(self, name: str) -> int:
        return int(self.headers[name])


class OpenRefused(Exception):
    """``code``: of the ``error`` event, or ``503``."""

    def __init__(self, code: str, fields: Fields) -> None:
        super().__init__(code)
        self.code, self.fields = code, fields


class Session:
    """One session as a stock client has it: an inbox, and messages to the subject that ``ready`` names."""

    def __init__(self, client: Client, *, tenant: str = "default", pool: str = "std", content: str = JSON) -> None:
        self.client, self.tenant, self.pool, self.content = client, tenant, pool, content
        self.events: list[Heard] = []
        self.ready: Fields = {}
        self.inbox = ""
        self._arrived = asyncio.Event()
        self._read = 0

    async def open(self, fields: Fields | bytes, headers: dict[str, str] | None = None) -> Self:
        """Raises OpenRefused."""
        await self.ask(fields, headers)
        first = await self.next()
        if first.kind != "ready":
            raise OpenRefused(*_refusal(first))
        self.ready = first.fields
        return self

    async def ask(self, fields: Fields | bytes, headers: dict[str, str] | None = None) -> None:
        prefix = "_INBOX" if self.tenant == "default" else f"_INBOX_{self.tenant}"
        self.inbox = self.client.new_inbox().replace("_INBOX", prefix, 1)
        self._subscription = await self.client.subscribe(self.inbox, cb=self._hear)
        body, typed = self._body(fields)
        subject = f"tts.v1.{self.tenant}.open.{self.pool}"
        await self.client.publish(subject, body, reply=self.inbox, headers={**typed, **(headers or {})} or None)

    async def say(self, kind: str, reply: str = "", **fields: Any) -> None:
        body, headers = self._body({"type": kind, **fields})
        await self.client.publish(self.ready["input"], body, reply=reply, headers=headers)

    async def text(self, seq: int, text: str, **fields: Any) -> None:
        await self.say("text", seq=seq, text=text, **fields)

    async def next(self) -> Heard:
        """The next event that was not read yet, but for pings: those come whenever a machine is slow for a second."""
        event = await self._next()
        while event.kind == "ping":
            event = await self._next()
        return event

    async def until(self, *kinds: str) -> Heard:
        """The next event of one of these kinds, past all others."""
        while True:
            event = await self._next()
            if event.kind in kinds:
                return event
            assert event.kind != "end", f"end ({event.fields}) before {kinds}"

    async def _next(self) -> Heard:
        async with asyncio.timeout(PATIENCE_S):
            while self._read == len(self.events):
                self._arrived.clear()
                await self._arrived.wait()
        self._read += 1
        return self.events[self._read - 1]

    async def to_end(self) -> Fields:
        return (await self.until("end")).fields

    async def deafen(self) -> None:
        """Stop listening, as a listener that has gone."""
        await self._subscription.unsubscribe()

    def kinds(self) -> list[str]:
        """Of all events so far, without pings; runs of the same kind once."""
        kinds = [event.kind for event in self.events if event.kind != "ping"]
        return [kind for index, kind in enumerate(kinds) if index == 0 or kinds[index - 1] != kind]

    def count(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.events)

    @property
    def audio(self) -> list[Heard]:
        return [event for event in self.events if event.kind == "audio"]

    @property
    def pcm(self) -> bytes:
        return b"".join(event.payload for event in self.audio)

    @property
    def samples(self) -> npt.NDArray[np.float32]:
        """Of a session with the default format."""
        return np.frombuffer(self.pcm, "<i2").astype(np.float32) / np.float32(32_768.0)

    def sample_count(self) -> int:
        """Checks that every payload holds whole samples or pages, that ``seq`` has no hole and that ``pts`` counts."""
        samples = 0
        for index, event in enumerate(self.audio):
            assert event.number("Tts-Seq") == index
            assert event.number("Tts-Pts") == samples
            if event.headers["Content-Type"] == OGG:
                granule = max(page.granule for page in pages(event.payload))
                samples = (granule - 312) * self.ready["format"]["sample_rate"] // 48_000
                continue
            payload = len(event.payload)
            if event.headers["Content-Type"] == "audio/wav" and index == 0:
                payload -= WAV_HEADER_BYTES
            count, rest = divmod(payload, WIDTHS[event.headers["Content-Type"]])
            assert rest == 0, "whole samples"
            assert count > 0
            samples += count
        return samples

    def _body(self, fields: Fields | bytes) -> tuple[bytes, dict[str, str]]:
        if isinstance(fields, bytes):
            return fields, {}
        packed = msgpack.packb(fields) if self.content == MSGPACK else json.dumps(fields).encode()
        return packed, {"Content-Type": self.content}

    async def _hear(self, message: Msg) -> None:
        self.events.append(Heard.of(message))
        self._arrived.set()


def _refusal(event: Heard) -> tuple[str, Fields]:
    if event.kind == "status 503":
        return "503", {}
    assert event.kind == "error", event.kind
    return event.fields["code"], event.fields


@dataclass
class House:
    """A worker, and clients of its server."""

    service: Service
    pool: str
    url: str
    _clients: list[Client] = field(default_factory=list)

    async def client(self) -> Client:
        client = await nats.connect(self.url)
        self._clients.append(client)
        return client

    async def session(self, fields: Fields | bytes, *, content: str = JSON, tenant: str = "default") -> Session:
        """An open one. Where no slot is free it waits for one: opens follow each other faster than tokens return."""
        client = self._clients[0] if self._clients else await self.client()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                session = Session(client, pool=self.pool, content=content, tenant=tenant)
                try:
                    return await session.open(fields)
                except OpenRefused as refused:
                    await session.deafen()
                    if refused.code not in ("503", "no_capacity"):
                        raise
                await asyncio.sleep(0.02)

    async def spoken(self, text: str, **options: Any) -> Session:
        """A session that has spoken a whole text as fast as it can, with nothing unusual on the way."""
        session = await self.session({"text": text, "final": True, "pace": "fast", **options})
        end = await session.to_end()
        assert end["reason"] == "finished"
        assert session.kinds() == ["ready", "audio", "end"], session.kinds()
        session.sample_count()
        return session

    async def empty(self) -> None:
        """Returns when the worker has no session left."""
        await eventually(lambda: self.service.desk.sessions == 0)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def house(settings: Settings | None = None, **options: Any) -> AsyncIterator[House]:
    """``options``: those of ``running``. How many sessions a busy machine can keep live is not what is tested here, so
    admission lets in as many as there are rows."""
    settings = settings or live_settings(slots=24)
    async with running(settings, **{"rules": LoopRules(headroom=100.0), **options}) as service:
        home = House(service, settings.worker.pool, service.bus_options.servers[0])
        try:
            yield home
        finally:
            await home.close()


async def eventually(condition: Callable[[], bool]) -> None:
    """For conditions that nothing announces."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
