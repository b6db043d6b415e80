"""Everything that a measurement needs, put together: stack, client, control process, clocks of the processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from engine.garbage import frozen_garbage
from worker.client import Client
from worker.measure.control import ControlProcess
from worker.measure.load import Load, Plan
from worker.measure.processes import Meter
from worker.measure.record import summarise
from worker.measure.report import Run
from worker.measure.soak import Soak
from worker.measure.stack import OwnStack
from worker.measure.stalls import Phase
from worker.measure.texts import in_turn, seeds
from worker.sections import Settings
from worker.service import bus_options
from worker.wire.requests import Open

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rig:
    client: Client
    control: ControlProcess
    meter: Meter
    texts: Sequence[str]
    seed: int
    own: OwnStack | None
    """None: the configured server, and whoever serves there."""

    async def warm_up(self) -> None:
        """One session that is not measured: a client's first open costs it what no later one does.

        Raises WireError or BusError if nobody takes it.
        """
        speech = await self.client.open(Open(text=self.texts[0], final=True, seed=self.seed), timeout_s=5.0)
        async for _ in speech:
            pass

    async def watch(self, seconds: float) -> Phase:
        """The machine with everything started and nothing to do."""
        await self.control.lap()
        await asyncio.sleep(seconds)
        return await self.control.lap()

    async def measure(self, plan: Plan) -> Run:
        load = Load(self.client, plan, in_turn(self.texts, self.seed), seeds(self.seed))
        await self.control.lap()
        await asyncio.to_thread(self.meter.lap)
        with frozen_garbage():  # a full collection of the client's would look like the worker's
            records = await load.run()
        stalls, costs = await self.control.lap(), await asyncio.to_thread(self.meter.lap)
        return Run(summarise(records, plan.sessions, plan.seconds, plan.format.sample_rate), stalls, costs)

    def soak(self, minutes: float) -> Soak:
        """Needs a stack of our own, for its worker's memory."""
        assert self.own is not None
        return Soak(self.client, self.own.worker_pid, minutes, in_turn(self.texts, self.seed), self.seed)

    async def guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` gives. Raises StackFailed if our own worker ends meanwhile."""
        return await (work if self.own is None else self.own.while_it_runs(work))


@contextlib.asynccontextmanager
async def rigged(
    settings: Settings,
    texts: Sequence[str],
    *,
    own: bool,
    tenant: str = "default",
    seed: int = 0,
    log: Path | None = None,
) -> AsyncIterator[Rig]:
    """``own``: start a nats-server and a worker for it, whose log goes to ``log``.

    Raises StackFailed, ServerError, BusError.
    """
    async with contextlib.AsyncExitStack() as stack:
        control = await stack.enter_async_context(ControlProcess())
        pids = {"client": os.getpid(), "control": control.pid}
        started: OwnStack | None = None
        if own:
            started = await stack.enter_async_context(OwnStack(settings, log))
            pids = {"worker": started.worker_pid, "nats-server": started.server_pid, **pids}
        options = bus_options(settings.nats) if started is None else started.bus
        client = await stack.enter_async_context(
            await Client.connect(options, tenant=tenant, pool=settings.worker.pool)
        )
        yield Rig(client, control, await asyncio.to_thread(Meter, pids), texts, seed, started)
