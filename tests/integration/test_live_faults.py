"""What breaks on our side: it costs the session that it happens to, tells it so, and leaves the others alone."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest
import pytest_asyncio

from engine.contract import FrameEngine, SlotFrame, SlotOptions
from engine.dsm import DsmEngine
from engine.loading import load_engine
from scheduler.loop import LoopRules
from tests.integration.live import House, OpenRefused, Session, house, live_settings

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "We looked at the old map together, and then we walked down to the river."
NOT_FINITE, RAISES = 1013, 1017
"""Seeds that bring bad luck."""
INBOX = 12


class Brittle:
    """The real engine, but for what two seeds do to it; and it can be held up, in any step or in one that stalls."""

    def __init__(self, engine: DsmEngine) -> None:
        self._engine = engine
        self._seeds: dict[int, int] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.waits = threading.Event()
        self.at_stalls = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def open(self, slot: int, options: SlotOptions) -> None:
        self._seeds[slot] = options.seed
        self._engine.open(slot, options)

    def launch(self, slots: Sequence[int]) -> object:
        if not self.at_stalls:
            self._pass()
        ticket = self._engine.launch(slots)
        if any(self._seeds[slot] == RAISES for slot in slots):
            raise RuntimeError("unlucky")
        return ticket

    def collect(self, ticket: object) -> Sequence[SlotFrame]:
        frames = self._engine.collect(ticket)
        if self.at_stalls and not all(frame.committed for frame in frames):
            self._pass()
        return [
            dataclasses.replace(frame, failed=self._seeds[frame.slot] == NOT_FINITE and frame.step > 9)
            for frame in frames
        ]

    def hold(self, at_stalls: bool) -> None:
        self.at_stalls = at_stalls
        self.waits.clear()
        self.gate.clear()

    def _pass(self) -> None:
        if not self.gate.is_set():
            self.waits.set()
            self.gate.wait()


@pytest.fixture(scope="module")
def brittle() -> Brittle:
    return Brittle(load_engine(capacity=4))


@pytest_asyncio.fixture(loop_scope="module")
async def home(brittle: Brittle, request: pytest.FixtureRequest) -> AsyncIterator[House]:
    """A test may give the number of commands that the engine's inbox holds."""
    rules = LoopRules(headroom=100.0, inbox=getattr(request, "param", 1_000))
    async with house(live_settings(), load=lambda: cast(FrameEngine, brittle), rules=rules) as one:
        yield one
        brittle.gate.set()


async def hold_up(home: House, brittle: Brittle) -> Session:
    """A session in whose step the engine is stuck."""
    brittle.hold(at_stalls=False)
    session = await home.session({"text": "Good morning to you.", "final": True, "pace": "fast"})
    await asyncio.to_thread(brittle.waits.wait)
    return session


async def fails(session: Session, code: str) -> None:
    """The session is told what happened and that it is over, in this order."""
    error = (await session.until("error")).fields
    assert (error["code"], error["retryable"]) == (code, True)
    end = await session.next()
    assert (end.kind, end.fields["reason"]) == ("end", "failed")


async def test_a_row_that_is_not_finite_ends_its_session_alone(home: House) -> None:
    beside = await home.session({"text": TEXT, "final": True, "seed": 71, "pace": "fast"})
    unlucky = await home.session({"text": TEXT, "final": True, "seed": NOT_FINITE, "pace": "fast"})
    await fails(unlucky, "model_failure")
    assert unlucky.audio
    await beside.to_end()
    assert beside.pcm == (await home.spoken(TEXT, seed=71)).pcm
    await home.empty()


async def test_a_step_that_raises_ends_the_sessions_in_it(home: House) -> None:
    unlucky = await home.session({"text": TEXT, "final": True, "seed": RAISES})
    await fails(unlucky, "model_failure")
    await home.empty()
    await home.spoken("Good morning.")


@pytest.mark.parametrize("home", [INBOX], indirect=True)
async def test_opens_and_text_that_a_stuck_engine_cannot_take_are_refused(home: House, brittle: Brittle) -> None:
    """Its inbox is full: a session that loses a command is over, an open that finds it full gets no slot."""
    stuck = await hold_up(home, brittle)
    waiting = await home.session({})  # one more in the inbox
    for _ in range(INBOX):
        await waiting.client.publish(waiting.ready["input"], b"Good morning to you ")
    await fails(waiting, "over_limit")
    with pytest.raises(OpenRefused, match="no_capacity"):
        await Session(await home.client(), pool=home.pool).open({"text": "One more.", "final": True})
    brittle.gate.set()
    assert (await stuck.to_end())["reason"] == "finished"
    await home.empty()
    for _ in range(5):
        await home.spoken("Good morning.")


async def test_a_session_that_was_accepted_before_the_drain_is_served(home: House, brittle: Brittle) -> None:
    """Its open had been answered, and had not reached the engine yet."""
    stuck = await hold_up(home, brittle)
    accepted = await home.session({"text": "Yes.", "final": True})
    draining = asyncio.create_task(home.service.drain())
    await asyncio.sleep(0)
    assert home.service.desk.draining
    brittle.gate.set()
    assert [(await session.to_end())["reason"] for session in (stuck, accepted)] == ["finished", "finished"]
    await draining


@pytest.mark.parametrize("message", ["finish", "flush", "more text"])
async def test_a_stall_that_crosses_with_its_end_is_not_told(home: House, brittle: Brittle, message: str) -> None:
    """The model found no word; what it lacked was on its way already."""
    brittle.hold(at_stalls=True)
    session = await home.session({"text": "Good ", "pace": "fast"})
    await asyncio.to_thread(brittle.waits.wait)
    if message == "more text":
        await session.text(0, "morning to you, " * 6_000)  # takes a while to read
    else:
        await session.say(message)
    await session.say("ping")
    await session.until("ping")
    brittle.gate.set()
    await session.until("audio")
    assert session.kinds() == ["ready", "audio"]
    await session.say("cancel")
    await session.to_end()
