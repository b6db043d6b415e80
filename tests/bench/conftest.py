"""A real worker on a server of its own, each a process, for the tests that measure it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from blockbuster import blockbuster_ctx

from worker.measure.rig import Rig, rigged
from worker.measure.texts import UTTERANCES
from worker.settings import load

SLOTS = 4


@pytest.fixture
def nothing_blocks_the_loop() -> Iterator[None]:
    with blockbuster_ctx("worker"):
        yield


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rig() -> AsyncIterator[Rig]:
    async with rigged(load(["--model.slots", str(SLOTS)], env={}), UTTERANCES, own=True) as running:
        yield running
