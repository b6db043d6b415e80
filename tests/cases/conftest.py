from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.live import House, house


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def home() -> AsyncIterator[House]:
    """A whole worker with the built-in voice, for the tests of one module; they run on its event loop."""
    async with house() as one:
        yield one
