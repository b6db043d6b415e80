from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.integration.conftest import MakeBus, MakeServer
from tests.integration.mailbox import until
from worker.bus import Bus, Message
from worker.errors import NoResponders
from worker.tokens import SPARE_LIMIT, SlotTokens
from worker.wire.subjects import pool_subject, pool_wildcard


class Desk:
    """A worker's front desk: takes good opens while slots are free, refuses bad ones."""

    def __init__(self, bus: Bus, pool: str, slots: int) -> None:
        self.bus = bus
        self.free = slots
        self.taken = 0
        self.refused = 0
        self.late = 0
        self.most_armed = 0
        self.tokens = SlotTokens(bus, pool_wildcard("open", pool), pool, self.on_open)
        self.tokens.set_target(slots)

    def on_open(self, message: Message) -> None:
        self.most_armed = max(self.most_armed, self.tokens.armed)
        if message.payload == b"crash":
            raise RuntimeError
        if message.payload == b"bad":
            self.tokens.refuse()
            self.refused += 1
            self.bus.publish(message.reply, b"bad_request")
        elif self.free == 0:
            self.tokens.give_back()
            self.late += 1
            self.bus.publish(message.reply, b"no_capacity")
        else:
            self.free -= 1
            self.taken += 1
            self.bus.publish(message.reply, b"ready")

    def end(self, sessions: int = 1) -> None:
        self.free += sessions
        self.tokens.set_target(self.free)


async def ask(bus: Bus, pool: str, payload: bytes = b"good") -> str:
    """A time-out is an answer that no test here expects."""
    try:
        return (await bus.request(pool_subject("open", "default", pool), payload, timeout_s=5.0)).payload.decode()
    except NoResponders:
        return "503"


async def burst(bus: Bus, pool: str, count: int) -> Counter[str]:
    return Counter(await asyncio.gather(*(ask(bus, pool) for _ in range(count))))


async def test_a_burst_fills_every_slot_and_the_rest_is_told_at_once(make_bus: MakeBus, pool: str) -> None:
    """Surprise 1: 200 opens, 13 slots on three workers."""
    desks = [Desk(await make_bus(), pool, slots) for slots in (8, 4, 1)]
    for desk in desks:
        await desk.bus.barrier()
    client = await make_bus()
    assert await burst(client, pool, 200) == {"ready": 13, "503": 187}
    assert [desk.free for desk in desks] == [0, 0, 0]
    assert [desk.late for desk in desks] == [0, 0, 0]
    assert [desk.tokens.armed for desk in desks] == [0, 0, 0]


async def test_slots_come_back_when_sessions_end(make_bus: MakeBus, pool: str) -> None:
    desk, client = Desk(await make_bus(), pool, 3), await make_bus()
    await desk.bus.barrier()
    for _ in range(5):
        assert await burst(client, pool, 10) == {"ready": 3, "503": 7}
        desk.end(3)
        await desk.bus.barrier()
    assert desk.most_armed == 2  # of three, one being taken


async def test_a_restart_of_the_server_restores_the_tokens(
    make_server: MakeServer, make_bus: MakeBus, pool: str
) -> None:
    server = await make_server()
    desks = [Desk(await make_bus(server.url), pool, slots) for slots in (2, 1)]
    client = await make_bus(server.url)
    for desk in desks:
        await desk.bus.barrier()
    assert await ask(client, pool) == "ready"
    await server.stop(kill=True)
    await until(lambda: not any(bus.connected for bus in (desks[0].bus, desks[1].bus, client)))
    desks[0].tokens.set_target(desks[0].free + 1)  # offline: armed at the next connection
    desks[0].free += 1
    await server.start()
    for bus in (desks[0].bus, desks[1].bus, client):
        await until(lambda bus=bus: bus.connected)  # type: ignore[misc]
        await bus.barrier()
    assert await burst(client, pool, 50) == {"ready": 3, "503": 47}
    assert [desk.late for desk in desks] == [0, 0]


async def test_a_bad_open_costs_no_slot_and_the_token_is_back_before_the_answer(make_bus: MakeBus, pool: str) -> None:
    desk, client = Desk(await make_bus(), pool, 1), await make_bus()
    await desk.bus.barrier()
    for _ in range(50):
        assert await ask(client, pool, b"bad") == "bad_request"
        await asyncio.sleep(0.001)
    assert await ask(client, pool) == "ready"
    assert desk.refused == 50


async def test_good_opens_are_served_beside_a_flood_of_bad_ones(make_bus: MakeBus, pool: str) -> None:
    """One free slot. Without spare tokens a good open finds every token away in a third of the cases."""
    desk, client, attacker = Desk(await make_bus(), pool, 1), await make_bus(), await make_bus()
    await desk.bus.barrier()
    subject, stop = pool_subject("open", "t1", pool), asyncio.Event()

    async def flood() -> None:
        while not stop.is_set():
            for _ in range(5):
                attacker.publish(subject, b"bad", reply="_INBOX_t1.nobody")
            await asyncio.sleep(0.005)

    async def insist() -> str:
        """As clients do: two more attempts."""
        for _ in range(2):
            if (answer := await ask(client, pool)) == "ready":
                return answer
        return await ask(client, pool)

    flooding = asyncio.create_task(flood())
    await until(lambda: desk.refused > 50)
    for _ in range(40):
        assert await insist() == "ready"
        assert desk.free == 0
        desk.end()
        await asyncio.sleep(0.01)
    stop.set()
    await flooding
    assert desk.most_armed <= 1 + SPARE_LIMIT
    await until(lambda: desk.tokens.armed == 1)
    await desk.bus.barrier()
    assert await burst(client, pool, 20) == {"ready": 1, "503": 19}


async def test_a_message_that_meets_a_shrinking_target_is_answered(make_bus: MakeBus, pool: str) -> None:
    desk, client = Desk(await make_bus(), pool, 4), await make_bus()
    await desk.bus.barrier()
    for _ in range(30):
        asks = [asyncio.create_task(ask(client, pool)) for _ in range(4)]
        await asyncio.sleep(0)
        desk.free = 1
        desk.tokens.set_target(1)  # three tokens go while opens are on their way
        assert {await answer for answer in asks} <= {"ready", "no_capacity", "503"}
        assert desk.free >= 0
        desk.free = 4
        desk.tokens.set_target(4)
        await desk.bus.barrier()
    assert desk.tokens.armed == 4
    desk.taken = 0
    assert await burst(client, pool, 10) == {"ready": 4, "503": 6}


async def test_a_handler_that_raises_loses_no_slot(make_bus: MakeBus, pool: str) -> None:
    desk, client = Desk(await make_bus(), pool, 1), await make_bus()
    await desk.bus.barrier()
    client.publish(pool_subject("open", "default", pool), b"crash", reply="_INBOX.nobody")
    await until(lambda: desk.bus.stats.handler_errors == 1)
    await desk.bus.barrier()
    assert await ask(client, pool) == "ready"


async def test_closing_retires_every_token_and_answers_what_was_under_way(make_bus: MakeBus, pool: str) -> None:
    desk, client = Desk(await make_bus(), pool, 20), await make_bus()
    await desk.bus.barrier()
    asks = [asyncio.create_task(ask(client, pool)) for _ in range(10)]
    await asyncio.sleep(0)
    await desk.tokens.aclose()
    assert {await answer for answer in asks} <= {"ready", "503"}
    assert desk.tokens.armed == 0
    assert await ask(client, pool) == "503"
    desk.end(5)
    await desk.bus.barrier()
    assert await ask(client, pool) == "503"


@pytest.mark.parametrize("target", [0, -3])
async def test_no_target_no_tokens(make_bus: MakeBus, pool: str, target: int) -> None:
    desk, client = Desk(await make_bus(), pool, 2), await make_bus()
    desk.tokens.set_target(target)
    assert desk.tokens.target == 0
    await desk.bus.barrier()
    await until(lambda: desk.tokens.armed == 0)
    assert await ask(client, pool) == "503"
