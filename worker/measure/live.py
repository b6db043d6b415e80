"""Live sessions as voice agents make them: so many callers at once, each of whom plays one scene after another."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field

from engine.garbage import frozen_garbage
from worker.bus import Bus
from worker.measure.live_call import Exchange, noted
from worker.measure.live_record import CallRecord, LiveSummary, Scene, summarise_live
from worker.measure.live_scenes import PERFORMANCES
from worker.measure.record import Outcome
from worker.measure.rig import Rig
from worker.measure.stalls import Phase
from worker.measure.texts import in_turn, seeds

ROTATION = (
    Scene.INTERRUPTED,
    Scene.STALLED,
    Scene.SLOW_LISTENER,
    Scene.HUNG_UP,
    Scene.INTERRUPTED,
    Scene.TYPED,
    Scene.INTERRUPTED,
    Scene.INTERRUPTED,
)
"""Every caller goes round in it, each from another place on. Every other call is interrupted: that tail is what the
measurement is for, and it takes many values."""
JOINING = 0.2
"""Share of the time for joins, after all else: everybody at once, again and again."""
LEAST_JOINS = 4
AFTER_REFUSAL_S = 0.25


@dataclass(frozen=True, slots=True)
class LivePlan:
    sessions: int
    seconds: float
    token_ms: float = 25.0
    """Between two words: 40 a second, as language models of 2026 give them."""


@dataclass(frozen=True, slots=True)
class LiveRun:
    summary: LiveSummary
    stalls: Phase


@dataclass(slots=True)
class Live:
    """``run`` once. Calls that have begun when the time is over are heard to their end."""

    exchange: Exchange
    plan: LivePlan
    records: list[CallRecord] = field(default_factory=list)

    async def run(self) -> list[CallRecord]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        places = range(self.plan.sessions)
        await _together(self._caller(place, began + (1 - JOINING) * self.plan.seconds) for place in places)
        for joins in itertools.count(1):
            await _together(self._play(Scene.JOINED) for _ in places)
            if joins >= LEAST_JOINS and loop.time() >= began + self.plan.seconds:
                break
        return self.records

    async def _caller(self, place: int, until: float) -> None:
        """At least one scene."""
        for scene in itertools.islice(itertools.cycle(ROTATION), place % len(ROTATION), None):
            await self._play(scene)
            if asyncio.get_running_loop().time() >= until:
                return

    async def _play(self, scene: Scene) -> None:
        record = CallRecord(scene)
        self.records.append(record)
        with noted(record):
            await PERFORMANCES[scene](self.exchange, record)
        if record.outcome is Outcome.REFUSED:
            await asyncio.sleep(AFTER_REFUSAL_S)


async def measure_live(rig: Rig, plan: LivePlan, pool: str) -> LiveRun:
    """Needs a stack of our own: callers hang up on it, and slow ones lag behind."""
    assert rig.own is not None
    options = rig.own.bus
    bus = await Bus.connect(options)
    try:
        rng = random.Random(rig.seed)
        texts = in_turn(rig.texts, rig.seed)
        exchange = Exchange(rig.client, bus, options, pool, texts, seeds(rig.seed), rng, plan.token_ms / 1000)
        await rig.control.lap()
        with frozen_garbage():
            records = await Live(exchange, plan).run()
        stalls = await rig.control.lap()
    finally:
        await bus.close()
    return LiveRun(summarise_live(records, plan.sessions, plan.seconds), stalls)


async def _together(work: Iterable[Coroutine[object, object, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)
