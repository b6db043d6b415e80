"""A connection whose peer vanishes without a word, and one whose server says that it is to stop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.conftest import MakeBus, MakeServer
from tests.integration.mailbox import Mailbox, relay_to, until
from tests.integration.pair import cluster, lame
from worker.bus import Bus
from worker.embedded import EmbeddedServer

FRAME = b"\0" * 3840


@pytest_asyncio.fixture
async def pair(make_server: MakeServer) -> AsyncIterator[tuple[EmbeddedServer, EmbeddedServer]]:
    yield await cluster(make_server)


async def meet(one: Bus, other: Bus, subject: str) -> None:
    """Returns when what either says is heard by the other, wherever they are."""
    for speaker, listener in ((one, other), (other, one)):
        heard = Mailbox()
        greeting = listener.subscribe(f"{subject}.meet", heard)
        await listener.barrier()
        while not heard.messages:
            speaker.publish(f"{subject}.meet")
            await speaker.barrier()
        greeting.close()


async def test_a_silent_peer_is_left_although_the_socket_is_full(
    make_server: MakeServer, make_bus: MakeBus, pool: str
) -> None:
    """nats-py would wait for it to take what was written, for as long as the kernel tries."""
    server = await make_server()
    async with relay_to(server.url) as relay:
        bus, gone, back = await make_bus(relay.url, ping_interval_s=0.05), asyncio.Event(), asyncio.Event()
        mailbox = Mailbox()
        bus.subscribe(pool, mailbox)
        bus.on_offline(gone.set)
        bus.on_online(back.set)
        await bus.barrier()
        relay.cut()
        while bus.connected:
            bus.publish(f"{pool}.audio", FRAME * 16, droppable=True)
            await asyncio.sleep(0)
        await asyncio.wait_for(gone.wait(), 10)
        relay.mend()
        await asyncio.wait_for(back.wait(), 10)
        await bus.barrier()
        bus.publish(pool, b"hello")
        await mailbox.first(1)
        await bus.close()


async def test_what_nobody_received_is_told_before_it_is_confirmed(make_bus: MakeBus, pool: str) -> None:
    bus, other = await make_bus(), await make_bus()
    told: list[str] = []
    watch = bus.watch(lambda: told.append("unheard"))
    confirmed = asyncio.Event()

    def confirm() -> None:
        told.append("confirmed")
        confirmed.set()

    for _ in range(50):
        bus.publish(pool, reply=watch.subject)
        bus.confirm(confirm)
        await asyncio.wait_for(confirmed.wait(), 10)
        confirmed.clear()
    assert told == ["unheard", "confirmed"] * 50
    other.subscribe(pool, Mailbox())
    await other.barrier()
    bus.publish(pool, reply=watch.subject)
    bus.confirm(confirm)
    await asyncio.wait_for(confirmed.wait(), 10)
    assert told[-2:] == ["confirmed", "confirmed"]


async def test_nothing_is_confirmed_by_a_connection_that_is_lost(make_server: MakeServer, make_bus: MakeBus) -> None:
    server = await make_server()
    bus, back, confirmed = await make_bus(server.url), asyncio.Event(), asyncio.Event()
    bus.on_online(back.set)
    os.kill(server.pid or 0, signal.SIGSTOP)
    bus.confirm(lambda: pytest.fail("nothing was confirmed"))
    await asyncio.sleep(0)
    await server.stop(kill=True)
    await server.start()
    await asyncio.wait_for(back.wait(), 10)
    bus.confirm(confirmed.set)
    await asyncio.wait_for(confirmed.wait(), 10)


async def test_leaving_a_lame_server_loses_nothing_and_doubles_nothing(
    pair: tuple[EmbeddedServer, EmbeddedServer], make_bus: MakeBus, pool: str
) -> None:
    """Both ways at once, through a move: numbered messages to the bus that moves and from it, a queue member, a
    one-shot, a request under way."""
    staying, leaving = pair
    moving, fixed = await make_bus(leaving.url, move_within_s=0.0), await make_bus(staying.url)
    await meet(moving, fixed, pool)
    inbound, outbound, queued, once = Mailbox(), Mailbox(), Mailbox(), Mailbox()
    moving.subscribe(f"{pool}.in", inbound)
    moving.subscribe(f"{pool}.queue", queued, queue="q")
    moving.subscribe(f"{pool}.once", once, queue="q", once=True)
    fixed.subscribe(f"{pool}.out", outbound)
    questions = Mailbox()
    fixed.subscribe(f"{pool}.ask", questions)
    online = asyncio.Event()
    moving.on_online(online.set)
    await moving.barrier()
    await fixed.barrier()
    await meet(moving, fixed, pool)
    answer = asyncio.create_task(moving.request(f"{pool}.ask", timeout_s=10.0))
    asked = (await questions.first(1))[0]

    lame(leaving)
    said, told = 0, 0
    while not (online.is_set() and said > 200):
        fixed.publish(f"{pool}.in", str(said).encode())
        said += 1
        # What is not taken is said again: the speaker is told so.
        told += moving.publish(f"{pool}.out", str(told).encode())
        await asyncio.sleep(0.001)
    await inbound.first(said)
    await outbound.first(told)
    assert inbound.payloads == [str(number).encode() for number in range(said)]
    assert outbound.payloads == [str(number).encode() for number in range(told)]
    assert moving.stats.moves == 1
    assert moving.stats.reconnects == 0
    fixed.publish(asked.reply, b"at last")
    assert (await answer).payload == b"at last"

    await moving.barrier()
    await meet(moving, fixed, pool)
    for name in ("queue", "once", "once", "queue"):
        fixed.publish(f"{pool}.{name}", name.encode())
    await queued.first(2)
    await once.first(1)
    await fixed.barrier()
    await leaving.stop(kill=True)
    await moving.barrier()
    assert queued.payloads == [b"queue"] * 2
    assert once.payloads == [b"once"]
    assert moving.stats.reconnects == 0


async def test_a_lame_server_without_another_is_kept_to_its_end(make_server: MakeServer, make_bus: MakeBus) -> None:
    server = await make_server()
    bus, back = await make_bus(server.url, move_within_s=0.0), asyncio.Event()
    bus.on_online(back.set)
    lame(server)
    await until(lambda: bus._connection.link._server_info is not None and not bus._connection._lame)
    await bus.barrier()
    assert bus.stats.moves == 0
    await server.stop(kill=True)
    await server.start()
    await asyncio.wait_for(back.wait(), 10)


async def test_a_move_that_finds_nobody_changes_nothing(
    pair: tuple[EmbeddedServer, EmbeddedServer], make_bus: MakeBus, pool: str
) -> None:
    staying, leaving = pair
    bus, mailbox = await make_bus(leaving.url, move_within_s=0.0), Mailbox()
    bus.subscribe(pool, mailbox)
    await until(lambda: bool(bus._connection.link.elsewhere()))
    await staying.stop(kill=True)
    connection = bus._connection
    connection.link.set_server_pool([leaving.url, "nats://127.0.0.1:1"])
    lame(leaving)
    await until(lambda: connection._second is not None)
    await bus.barrier()
    bus.publish(pool, b"still here")
    await mailbox.first(1)
    await bus.close()
    assert bus.stats.moves == 0
