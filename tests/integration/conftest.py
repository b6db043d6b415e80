"""A real nats-server on a free port for every test here, and connections that are closed behind it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import nats
import pytest
import pytest_asyncio
from blockbuster import blockbuster_ctx
from nats.aio.client import Client

from tests.integration.live import House, house
from worker.bus import Bus
from worker.connection import BusOptions
from worker.embedded import EmbeddedServer

MakeServer = Callable[..., Awaitable[EmbeddedServer]]
MakeBus = Callable[..., Awaitable[Bus]]
MakeClient = Callable[..., Awaitable[Client]]


@pytest.fixture(autouse=True)
def nothing_blocks_the_loop() -> Iterator[None]:
    with blockbuster_ctx("worker"):
        yield


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server() -> AsyncIterator[EmbeddedServer]:
    """Shared by the tests that leave it as they found it; they keep apart by ``pool``."""
    async with EmbeddedServer() as running:
        yield running


@pytest.fixture
def pool() -> str:
    """A pool, or any other subject token, of this test alone."""
    return uuid.uuid4().hex


@pytest_asyncio.fixture
async def make_server() -> AsyncIterator[MakeServer]:
    """A server of the test's own, to configure, stop and restart."""
    running: list[EmbeddedServer] = []

    async def make(**options: Any) -> EmbeddedServer:
        one = EmbeddedServer(**options)
        await one.start()
        running.append(one)
        return one

    yield make
    for one in running:
        await one.stop(kill=True)


@pytest_asyncio.fixture
async def make_bus(server: EmbeddedServer) -> AsyncIterator[MakeBus]:
    """A connected ``Bus``; keyword arguments are ``BusOptions``. It comes back quickly from a lost connection."""
    buses: list[Bus] = []

    async def make(url: str | None = None, **options: Any) -> Bus:
        options = {"reconnect_wait_s": 0.02, **options}
        bus = await Bus.connect(BusOptions((url or server.url,), **options))
        buses.append(bus)
        return bus

    yield make
    for bus in buses:
        await bus.close()


@pytest_asyncio.fixture
async def make_client(server: EmbeddedServer) -> AsyncIterator[MakeClient]:
    """A stock nats-py client; keyword arguments are those of ``nats.connect``."""
    clients: list[Client] = []

    async def make(url: str | None = None, **options: Any) -> Client:
        client = await nats.connect(url or server.url, **options)
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def home() -> AsyncIterator[House]:
    """A whole worker with the built-in voice, for the tests of one module; they run on its event loop."""
    async with house() as one:
        yield one
