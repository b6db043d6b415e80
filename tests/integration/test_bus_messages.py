from __future__ import annotations

import asyncio

import pytest

from tests.integration.conftest import MakeBus, MakeClient
from tests.integration.mailbox import Mailbox, relay_to, until
from worker.bus import HARD_BACKLOG_BYTES, Message
from worker.embedded import EmbeddedServer
from worker.errors import BusUnavailable, NoResponders, RequestTimeout


async def test_messages_arrive_whole_and_in_order(make_bus: MakeBus, pool: str) -> None:
    one, other, mailbox = await make_bus(), await make_bus(), Mailbox()
    one.subscribe(pool, mailbox)
    await one.barrier()
    for n in range(500):
        assert other.publish(pool, n.to_bytes(2, "big"), headers={"Tts-Seq": str(n)}, reply=f"{pool}.reply")
    messages = await mailbox.first(500)
    assert [int.from_bytes(message.payload, "big") for message in messages] == list(range(500))
    assert [message.headers["Tts-Seq"] for message in messages] == [str(n) for n in range(500)]
    assert {(message.subject, message.reply) for message in messages} == {(pool, f"{pool}.reply")}


async def test_a_stock_client_is_understood_and_understands(
    make_bus: MakeBus, make_client: MakeClient, pool: str
) -> None:
    bus, stock = await make_bus(), await make_client()

    def answer(message: Message) -> None:
        bus.publish(message.reply, message.payload, headers={"Seen": message.headers.get("A", "none")})

    bus.subscribe(pool, answer)
    await bus.barrier()
    reply = await stock.request(pool, b"hi", headers={"A": "b"})
    assert (reply.data, reply.headers) == (b"hi", {"Seen": "b"})
    assert (await stock.request(pool, b"hi")).headers == {"Seen": "none"}


async def test_requests_fail_by_type(make_bus: MakeBus, pool: str) -> None:
    bus = await make_bus()
    with pytest.raises(NoResponders) as unheard:
        await bus.request(pool)
    assert unheard.value.subject == pool
    bus.subscribe(pool, Mailbox())
    with pytest.raises(RequestTimeout) as late:
        await bus.request(pool, timeout_s=0.05)
    assert late.value.timeout_s == 0.05
    await bus.close()
    with pytest.raises(BusUnavailable):
        await bus.request(pool)
    assert not bus.publish(pool)


async def test_no_responders_reaches_an_inbox_of_ones_own(make_bus: MakeBus, pool: str) -> None:
    """How a client opens a session: frames and the refusal come to the same inbox."""
    bus, mailbox = await make_bus(inbox_prefix="_INBOX_t1"), Mailbox()
    inbox = bus.new_inbox()
    assert inbox.startswith("_INBOX_t1.")
    bus.subscribe(inbox, mailbox)
    bus.publish(pool, b"open", reply=inbox)
    (message,) = await mailbox.first(1)
    assert message.no_responders


async def test_once_means_once_for_the_server_too(make_bus: MakeBus, pool: str) -> None:
    one, other, mailbox = await make_bus(), await make_bus(), Mailbox()
    subscription = one.subscribe(pool, mailbox, queue="q", once=True)
    await one.barrier()
    replies = await asyncio.gather(*(other.request(pool, timeout_s=0.2) for _ in range(5)), return_exceptions=True)
    assert sorted(type(reply).__name__ for reply in replies) == ["NoResponders"] * 4 + ["RequestTimeout"]
    assert len(mailbox.messages) == 1
    assert not subscription.active


async def test_a_closed_subscription_is_silent(make_bus: MakeBus, pool: str) -> None:
    bus, mailbox = await make_bus(), Mailbox()
    kept: list[bytes] = []

    def close_on_first(message: Message) -> None:
        kept.append(message.payload)
        subscription.close()

    subscription = bus.subscribe(pool, close_on_first)
    bus.subscribe(pool, mailbox)
    for n in (b"0", b"1", b"2"):
        bus.publish(pool, n)
    await mailbox.first(3)
    await bus.barrier()
    assert kept == [b"0"]
    subscription.close()
    await subscription.drain()


async def test_a_drain_outlives_its_caller(make_bus: MakeBus, pool: str) -> None:
    bus, other, mailbox = await make_bus(), await make_bus(), Mailbox()
    subscription = bus.subscribe(pool, mailbox)
    await bus.barrier()
    drain = asyncio.create_task(subscription.drain())
    await asyncio.sleep(0)
    drain.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drain
    await bus.barrier()
    with pytest.raises(NoResponders):
        await other.request(pool)
    assert bus.connected


async def test_only_what_may_be_dropped_is_shed_when_the_server_stops_reading(
    server: EmbeddedServer, make_bus: MakeBus, pool: str
) -> None:
    async with relay_to(server.url) as relay:
        bus, mailbox = await make_bus(relay.url), Mailbox()
        listener = await make_bus()
        listener.subscribe(pool, mailbox)
        await listener.barrier()
        relay.listening.clear()
        frame, sent = b"f" * 65_536, 0
        async with asyncio.timeout(20):
            while bus.publish(pool, frame, droppable=True):
                sent += 1
                await asyncio.sleep(0)
        assert bus.stats.shed == 1
        assert 256 * 1024 < bus.pending_bytes < HARD_BACKLOG_BYTES
        assert bus.publish(pool, b"end")
        assert not bus.publish(pool, frame, droppable=True)
        while bus.publish(pool, frame):
            sent += 1
        assert bus.pending_bytes > HARD_BACKLOG_BYTES
        relay.listening.set()
        await mailbox.first(sent + 1)
        await until(lambda: bus.pending_bytes == 0)
        assert bus.publish(pool, frame, droppable=True)


async def test_a_burst_larger_than_the_shedding_limit_is_no_backlog(make_bus: MakeBus, pool: str) -> None:
    """The frames of one fused step are published before the flusher gets its turn."""
    bus, mailbox = await make_bus(), Mailbox()
    bus.subscribe(pool, mailbox)
    frame = b"f" * 3_840
    assert all(bus.publish(pool, frame, droppable=True) for _ in range(256))
    await mailbox.first(256)
    assert bus.stats.shed == 0
