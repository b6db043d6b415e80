from __future__ import annotations

import asyncio
import gc
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.integration.conftest import MakeBus, MakeServer
from tests.integration.mailbox import Mailbox, relay_to, until
from worker.bus import Bus
from worker.connection import BusOptions
from worker.embedded import EmbeddedServer
from worker.errors import BusUnavailable


async def test_no_server_is_a_typed_error_that_names_the_address_and_no_password() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(BusUnavailable) as error:
            await Bus.connect(BusOptions((f"nats://me:secret@127.0.0.1:{port}",)), timeout_s=0.2)
    assert f"127.0.0.1:{port}" in str(error.value)
    assert "refused" in str(error.value) or "failed" in str(error.value)
    assert "secret" not in str(error.value)


async def test_what_is_not_nats_is_a_typed_error() -> None:
    listener = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(BusUnavailable):
            await Bus.connect(BusOptions((f"nats://127.0.0.1:{port}",)), timeout_s=0.2)
    with pytest.raises(BusUnavailable):
        await Bus.connect(BusOptions(("nats://",)), timeout_s=0.2)


async def test_a_wrong_password_is_said_to_be_one(make_server: MakeServer, make_bus: MakeBus) -> None:
    server = await make_server(extra="authorization { user: me, password: right }")
    with pytest.raises(BusUnavailable, match="Authorization"):
        await Bus.connect(BusOptions((server.url,), user="me", password="wrong"), timeout_s=1.0)
    bus = await make_bus(server.url, user="me", password="right")
    assert bus.connected


async def test_a_server_that_refuses_and_then_resets_is_quoted() -> None:
    dialled = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dialled
        dialled += 1
        if dialled == 1:
            writer.write(b'INFO {"server_id":"a","max_payload":1048576}\r\n-ERR \'Authorization Violation\'\r\n')
            await reader.readline()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        options = BusOptions((f"nats://127.0.0.1:{port}",), reconnect_wait_s=0.2)  # none is under way at the end
        with pytest.raises(BusUnavailable, match="Authorization"):
            await Bus.connect(options, timeout_s=0.5)
    assert dialled > 1


async def test_a_restart_of_the_server_costs_frames_and_nothing_else(
    make_server: MakeServer, make_bus: MakeBus, pool: str
) -> None:
    server = await make_server()
    bus, other = await make_bus(server.url), await make_bus(server.url)
    always, once, offline, back, gone = Mailbox(), Mailbox(), Mailbox(), asyncio.Event(), asyncio.Event()
    bus.on_online(back.set)
    bus.on_offline(gone.set)
    bus.subscribe(f"{pool}.always", always)
    bus.subscribe(f"{pool}.once", once, queue="q", once=True)
    closing = bus.subscribe(f"{pool}.closing", always)
    draining = bus.subscribe(f"{pool}.draining", always)
    await bus.barrier()

    await server.stop(kill=True)
    await asyncio.wait_for(gone.wait(), 10)
    assert not bus.connected
    assert not bus.publish(f"{pool}.always", b"lost", droppable=True)
    assert not bus.publish(f"{pool}.always", b"lost")
    assert bus.stats.shed == 2
    bus.subscribe(f"{pool}.offline", offline, once=True)
    closing.close()
    await draining.drain()
    with pytest.raises(BusUnavailable):
        await bus.request(pool)

    await server.start()
    await asyncio.wait_for(back.wait(), 10)
    await until(lambda: other.connected)
    await bus.barrier()
    for name in ("always", "once", "once", "offline", "offline", "closing", "draining", "always"):
        other.publish(f"{pool}.{name}", name.encode())
    await always.first(2)
    await bus.barrier()
    assert always.payloads == [b"always", b"always"]
    assert once.payloads == [b"once"]
    assert offline.payloads == [b"offline"]
    assert (bus.stats.reconnects, bus.stats.rebuilds) == (1, 0)


async def test_an_interest_begun_offline_is_said_once(make_server: MakeServer, make_bus: MakeBus, pool: str) -> None:
    """nats-py replays its subscriptions and then sends what was waiting: a one-shot said twice would, if its message
    came in between, be renewed by the second."""
    server = await make_server()
    async with relay_to(server.url) as relay:
        bus, back = await make_bus(relay.url), asyncio.Event()
        bus.on_online(back.set)
        await server.stop(kill=True)
        await until(lambda: not bus.connected)
        bus.subscribe(pool, Mailbox(), once=True)
        await server.start()
        await asyncio.wait_for(back.wait(), 10)
        await bus.barrier()
        assert relay.said.count(f"SUB {pool}".encode()) == 1
        await bus.close()


async def test_attempts_that_are_refused_leave_no_socket_open(
    make_server: MakeServer, make_bus: MakeBus, tmp_path: Path
) -> None:
    """An unclosed socket is a ResourceWarning, which fails the test."""
    server = await make_server(extra="authorization { user: me, password: old }")
    bus = await make_bus(server.url, user="me", password="old")
    await server.stop()
    changed = EmbeddedServer(port=urlsplit(server.url).port, extra="authorization { user: me, password: new }")
    async with changed:
        await until(lambda: "Authorization" in bus._connection._last_error)
        await until(lambda: sum(server.reconnects for server in bus._connection.link.server_pool) > 4)
        gc.collect()
    await bus.close()
    gc.collect()


async def test_a_client_that_gets_nowhere_is_replaced(make_server: MakeServer, make_bus: MakeBus, pool: str) -> None:
    server = await make_server()
    bus, mailbox, back = await make_bus(server.url, rebuild_after_s=0.05), Mailbox(), asyncio.Event()
    bus.on_online(back.set)
    bus.subscribe(pool, mailbox)
    await server.stop(kill=True)
    first = bus._connection.link
    await until(lambda: bus._connection.link is not first)
    await server.start()
    await asyncio.wait_for(back.wait(), 10)
    assert bus.stats.rebuilds == 1
    bus.publish(pool, b"hello")
    await mailbox.first(1)


async def test_a_raising_hook_neither_stops_the_others_nor_the_reconnect(
    make_server: MakeServer, make_bus: MakeBus
) -> None:
    """nats-io/nats.py#204: an exception in a callback of the client ends its reconnecting."""
    server = await make_server()
    bus, back = await make_bus(server.url), asyncio.Event()

    def broken() -> None:
        raise RuntimeError

    for register in (bus.on_offline, bus.on_online):
        register(broken)
    bus.on_online(back.set)
    await server.stop()
    await server.start()
    await asyncio.wait_for(back.wait(), 10)
    assert bus.stats.handler_errors == 2


async def test_closing_sends_what_is_pending_and_is_final(make_bus: MakeBus, pool: str) -> None:
    bus, other, mailbox = await make_bus(), await make_bus(), Mailbox()
    other.subscribe(pool, mailbox)
    await other.barrier()
    went = asyncio.Event()
    bus.on_offline(went.set)
    for n in range(100):
        bus.publish(pool, str(n).encode())
    await bus.close()
    await mailbox.first(100)
    assert not bus.connected
    assert not went.is_set()
    await bus.close()
    with pytest.raises(BusUnavailable):
        await bus.barrier()


async def test_no_task_is_left_behind(make_server: MakeServer, pool: str) -> None:
    server = await make_server()
    before = asyncio.all_tasks()
    for _ in range(3):
        bus = await Bus.connect(BusOptions((server.url,)))
        bus.subscribe(pool, Mailbox())
        bus.subscribe(pool, Mailbox(), once=True)
        await bus.close()
    await until(lambda: asyncio.all_tasks() == before)
