"""Who reads too slowly is cut off by the server or loses by himself; nobody else loses anything."""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nats
from nats.aio.client import Client

from engine.fake import FakeEngine
from tests.integration.conftest import MakeServer
from tests.integration.ear import Ear, whole
from tests.integration.live import House, Session, eventually, house, live_settings
from tests.integration.mailbox import relay_to
from worker.embedded import EmbeddedServer
from worker.sections import NatsSettings, Settings

DEPLOYED = Path(__file__).parents[2] / "deploy" / "nats" / "nats-server.conf"
WORDS = "word " * 30
FEW = "word " * 16
FLOAT = {"encoding": "pcm_f32le", "sample_rate": 48_000}
"""192 kB a second."""
PLAIN = {"encoding": "pcm_s16le", "sample_rate": 24_000}


def settings(url: str, **nats: object) -> Settings:
    return live_settings(nats=NatsSettings.model_validate({"url": url, "embedded": "off", **nats}))


def fake() -> FakeEngine:
    """Of a speed at which a worker's pauses come in time."""
    return FakeEngine(capacity=16, spend=lambda text_rows, frame_rows: time.sleep(0.005))


@asynccontextmanager
async def deaf_subscriber(server: EmbeddedServer, subject: str) -> AsyncIterator[socket.socket]:
    """It subscribes, and never reads again."""
    address = urlsplit(server.url)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(deaf, (address.hostname, address.port))
        await loop.sock_recv(deaf, 4096)
        connect = b'CONNECT {"verbose":false,"headers":true,"name":"deaf"}\r\n'
        await loop.sock_sendall(deaf, connect + f"SUB {subject} 1\r\nPING\r\n".encode())
        while b"PONG" not in await loop.sock_recv(deaf, 4096):
            pass
        yield deaf


async def ears(url: str, session: str) -> tuple[Client, Ear]:
    client = await nats.connect(url)
    return client, await Ear(client).attend(session)


async def speak(home: House, session: str, **options: object) -> Session:
    opening = {"text": WORDS, "final": True, "fanout": True, "session": session, "format": FLOAT, "pace": "fast"}
    return await home.session({**opening, **options})


async def test_a_supervisor_who_stops_reading_is_cut_off_and_harms_nobody(make_server: MakeServer) -> None:
    """With the deployed configuration, but for a shorter deadline. He listens to nine sessions; each has two good
    listeners, or one, who get all of it."""
    text = DEPLOYED.read_text()
    assert "no_fast_producer_stall: true" in text
    pending = re.search(r"^max_pending: \S+$", text, re.MULTILINE)
    assert pending is not None
    server = await make_server(extra=f'{pending[0]}\nwrite_deadline: "1s"')
    log = Path(str(server._folder)) / "log"
    async with house(settings(server.url), load=fake) as home, deaf_subscriber(server, "tts.v1.*.out.*"):
        names = [secrets.token_hex(16) for _ in range(9)]
        clients, listeners = zip(*[await ears(server.url, one) for one in (names[0], *names)], strict=True)
        rounds = 0
        while "Slow Consumer" not in await asyncio.to_thread(log.read_text):
            rounds += 1
            for listener in listeners:
                listener.events.clear()
                listener._read = 0
            await asyncio.gather(*(speak(home, one) for one in names))
            for end in await asyncio.gather(*(listener.to_end() for listener in listeners)):
                assert end["reason"] == "finished"
            for listener in listeners:
                assert listener.numbers == whole(len(listener.audio)), "nothing is missing"
            assert listeners[0].pcm == listeners[1].pcm
            await home.empty()
        assert rounds, "he was cut off before anybody spoke"
        said = await asyncio.to_thread(log.read_text)
        assert len(re.findall("Slow Consumer", said)) == 1
        for client in clients:
            await client.close()


async def test_what_the_worker_cannot_send_leaves_visible_holes(make_server: MakeServer) -> None:
    """The way to the server is blocked for a while: the worker sheds frames rather than fall behind, numbered all the
    same; control messages arrive."""
    server = await make_server()
    async with (
        relay_to(server.url, buffer_bytes=4096) as relay,
        house(settings(relay.url, pending_bytes=20_000), load=fake) as home,
    ):
        transport: Any = home.service.bus._connection.link._transport
        transport._io_writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        home.url = server.url  # our own clients have a way that is free
        client, listener = await ears(server.url, session := secrets.token_hex(16))
        opener = await speak(
            home, session, text="word ", final=False, format=PLAIN, pace="live", lead_ms=60_000, seed=7
        )
        await listener.until("need_text")
        live = home.service.desk._sessions[session]
        relay.listening.clear()
        await opener.text(0, FEW)
        await opener.say("finish")
        await eventually(lambda: live.egress.shed > 3)
        relay.listening.set()
        end = await listener.to_end()
        assert end["reason"] == "finished"
        numbers = listener.numbers
        assert numbers == sorted(set(numbers))
        assert live.egress.seq - len(numbers) == live.egress.shed
        assert numbers != whole(len(numbers))
        await client.close()
    async with house(settings(server.url), load=fake) as home:
        spoken = (await home.spoken("word " + FEW, seed=7)).pcm
    for event in listener.audio:
        start = 2 * event.number("Tts-Pts")
        assert event.payload == spoken[start : start + len(event.payload)]
