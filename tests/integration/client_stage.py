"""A client and a scripted worker on one server, and sessions between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from tests.integration.scripted_worker import LIMITS, ScriptedSession, ScriptedWorker
from worker.client import Client, Speech
from worker.wire.events import Limits
from worker.wire.requests import Open

LONG_S = 10.0

T = TypeVar("T")


async def read(source: AsyncIterator[T], into: list[T]) -> None:
    """To its end, or to what it raises."""
    async for item in source:
        into.append(item)


class Stage:
    def __init__(self, client: Client, worker: ScriptedWorker) -> None:
        self.client, self.worker = client, worker

    async def open(self, *, limits: Limits = LIMITS, **options: Any) -> tuple[Speech, ScriptedSession]:
        """``options``: of ``Client.open``; an ``Open`` may be among them as ``request``."""
        request = options.pop("request", Open())
        opening = asyncio.ensure_future(self.client.open(request, timeout_s=LONG_S, **options))
        session = await self.worker.session()
        session.ready(limits)
        return await opening, session

    async def settle(self) -> None:
        """Return when what either side has said before has been handled by the other."""
        for _ in range(2):
            await self.client._bus.barrier()
            await self.worker.bus.barrier()


MakeStage = Callable[..., Awaitable[Stage]]
