"""What tests listen and speak with."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from worker.bus import Message

PATIENCE_S = 10.0


class Mailbox:
    """A handler that keeps what it is given, and can be waited on."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._arrived = asyncio.Event()

    def __call__(self, message: Message) -> None:
        self.messages.append(message)
        self._arrived.set()

    async def first(self, count: int) -> list[Message]:
        """Waits until ``count`` messages have come."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.messages) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.messages[:count]

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]


async def until(condition: Callable[[], bool]) -> None:
    """For conditions that nothing announces."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def speak(url: str, *commands: bytes) -> bytes:
    """Say raw protocol to a server, as a client that checks nothing; returns its answer up to the PONG or the end."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        await reader.readline()  # INFO
        writer.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n' + b"".join(commands))
        writer.write(b"PING\r\n")
        answer = b""
        async with asyncio.timeout(PATIENCE_S):
            while not answer.endswith(b"PONG\r\n"):
                line = await reader.readline()
                if not line:
                    break
                answer += line
        return answer
    finally:
        writer.close()
        await writer.wait_closed()


@dataclass
class Relay:
    """Stands between a client and a server, remembers what the client said; can stop listening to it, or fall silent
    to both as a cable that is cut: nothing is closed, and what is said meanwhile arrives when it is mended."""

    url: str = ""
    said: bytearray = field(default_factory=bytearray)
    listening: asyncio.Event = field(default_factory=asyncio.Event)
    telling: asyncio.Event = field(default_factory=asyncio.Event)

    def cut(self) -> None:
        self.listening.clear()
        self.telling.clear()

    def mend(self) -> None:
        self.listening.set()
        self.telling.set()


@asynccontextmanager
async def relay_to(url: str, *, buffer_bytes: int | None = None) -> AsyncIterator[Relay]:
    """``buffer_bytes``: what the kernel takes of a client's words before the relay does, or as much as it likes."""
    address = urlsplit(url)
    relay = Relay()
    relay.mend()
    pumps: set[asyncio.Task[None]] = set()

    async def pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: bytearray, opened: asyncio.Event
    ) -> None:
        try:
            while data := await reader.read(65_536):
                heard.extend(data)
                await opened.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream, upstream_writer = await asyncio.open_connection(address.hostname, address.port)
        except OSError:  # the server is away
            writer.close()
            return
        pumps.add(asyncio.create_task(pump(reader, upstream_writer, relay.said, relay.listening)))
        pumps.add(asyncio.create_task(pump(upstream, writer, bytearray(), relay.telling)))

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    if buffer_bytes is not None:
        listener.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    relay.url = f"nats://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        relay.mend()
        listener.close()
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
