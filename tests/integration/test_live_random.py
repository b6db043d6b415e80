"""Sessions of random behaviour against a real nats-server: each caller gets all of its own frames, once, in order.

The engine is the fake one, so that time goes into what is tested here; its audio says of which seed, generation and
step it is. ``tests/property/test_live_walk.py`` holds such behaviour to ARCHITECTURE.md's table, on a fake clock.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator
from typing import cast

import pytest
import pytest_asyncio

from engine.contract import FrameEngine
from engine.fake import DEFAULTS, FakeEngine, pattern
from tests.integration.live import House, Session, house, live_settings

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOTS = 24
FIRST_AUDIO_STEP = 7
WORDS = ("one ", "two three ", "four five six ", "sev", "en ", "eight nine ten. ")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def home() -> AsyncIterator[House]:
    async with house(
        live_settings(slots=SLOTS), load=lambda: cast(FrameEngine, FakeEngine(SLOTS, run_ahead=1, overlap=720))
    ) as one:
        yield one


@dataclasses.dataclass
class Caller:
    """Says anything, and knows which text is in which generation."""

    session: Session
    rng: random.Random
    generation: int = 0
    seq: int = 0
    texts: list[str] = dataclasses.field(default_factory=lambda: [""])
    flushes: int = 0

    async def live(self) -> None:
        for _ in range(self.rng.randrange(12)):
            await self.act()
            await asyncio.sleep(self.rng.choice([0.0, 0.0, 0.002, 0.02]))
        await self.leave()
        self.check(await self.session.to_end())

    async def act(self) -> None:
        match self.rng.choices(["text", "twice", "flush", "cancel", "old", "ping"], [6, 1, 2, 2, 1, 1])[0]:
            case "text":
                await self.speak()
            case "twice" if self.seq:
                await self.session.text(self.seq - 1, "again ", gen=self.generation)
            case "flush":
                await self.session.say("flush", seq=self.seq, gen=self.generation)
            case "cancel":
                await self.session.say("cancel", gen=self.generation, keep=True)
                self.generation, self.seq = self.generation + 1, 0
                self.texts.append("")
            case "old" if self.generation:
                await self.session.text(self.seq, "late ", gen=self.generation - 1)
            case _:
                await self.session.say("ping")

    async def speak(self) -> None:
        text = self.rng.choice(WORDS)
        await self.session.text(self.seq, text, gen=self.generation)
        self.seq += 1
        self.texts[-1] += text

    async def leave(self) -> None:
        if self.rng.random() < 0.3:
            await self.session.say("cancel", gen=self.generation)
            self.generation += 1
        else:
            await self.session.say("finish", gen=self.generation)

    def check(self, end: dict[str, object]) -> None:
        self.session.sample_count()
        assert self.session.count("end") == 1
        assert self.session.events[-1].kind == "end"
        assert self.session.count("error") == 0
        cancels = [event.fields for event in self.session.events if event.kind == "cancelled"]
        assert [cancel["gen"] for cancel in cancels] == list(range(1, self.generation + 1))
        for cancel, text in zip(cancels, self.texts, strict=False):
            assert cancel["spoken"] + cancel["unspoken"] == text
        assert end["reason"] == ("cancelled" if len(cancels) == len(self.texts) else "finished")
        self.check_frames()

    def check_frames(self) -> None:
        """One payload a frame: it tells its seed, its generation and its step."""
        generation, step = 0, FIRST_AUDIO_STEP
        for event in self.session.events:
            if event.kind == "cancelled":
                generation, step = event.fields["gen"], FIRST_AUDIO_STEP
            elif event.kind == "audio":
                assert event.number("Tts-Gen") == generation, "a stale frame"
                options = dataclasses.replace(DEFAULTS, seed=self.session.ready["seed"], generation=generation)
                assert event.payload == pattern(options, step, len(event.payload) // 2), "lost, doubled or another's"
                step += 1


async def crowd(home: House, seed: int, sessions: int) -> None:
    rng = random.Random(seed)
    todo = iter(range(sessions))

    async def one_after_another() -> None:
        for number in todo:
            own = random.Random(f"{seed} {number}")
            session = await home.session({"pace": own.choice(["live", "fast", "fast"]), "seed": rng.randrange(2**32)})
            await Caller(session, own).live()
            await session.deafen()

    await asyncio.gather(*(one_after_another() for _ in range(SLOTS)))
    await home.empty()
    assert home.service.desk._tokens.target == SLOTS
    assert home.service.bus._watches == {}


async def test_300_random_sessions(home: House) -> None:
    await crowd(home, seed=1, sessions=300)


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_10_000_random_sessions(home: House) -> None:
    await crowd(home, seed=2, sessions=10_000)
