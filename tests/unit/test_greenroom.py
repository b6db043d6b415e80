"""Errands: each once, a few at a time, dropped when nobody wants them before they begin."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import defaultdict
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from worker.greenroom import Courier
from worker.wire.lookalikes import CLOSE, FEW, Lookalikes


class Shop:
    """Hands out a voice when its gate is open."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.gates: defaultdict[str, threading.Event] = defaultdict(threading.Event)
        self.errors: dict[str, Exception] = {}

    def fetch(self, voice: str) -> None:
        self.begun.append(voice)
        self.gates[voice].wait(30)
        if voice in self.errors:
            raise self.errors[voice]


@pytest_asyncio.fixture
async def shop() -> AsyncIterator[Shop]:
    one = Shop()
    yield one
    for gate in list(one.gates.values()):
        gate.set()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_voice_is_fetched_once_for_all(shop: Shop) -> None:
    courier = Courier(shop.fetch)
    waits = [asyncio.create_task(courier.bring("a")) for _ in range(3)]
    await turns()
    waits[1].cancel()
    await turns()
    shop.gates["a"].set()
    await waits[0]
    await waits[2]
    assert shop.begun == ["a"]
    await courier.bring("a")
    assert shop.begun == ["a", "a"], "what has been brought is not the courier's to remember"


async def test_everybody_hears_what_went_wrong(shop: Shop) -> None:
    courier = Courier(shop.fetch)
    shop.errors["a"] = OSError("the road is closed")
    waits = [asyncio.create_task(courier.bring("a")) for _ in range(2)]
    await turns()
    shop.gates["a"].set()
    for wait in waits:
        with pytest.raises(OSError, match="closed"):
            await wait


async def test_no_more_than_so_many_at_a_time_and_what_nobody_wants_is_not_begun(shop: Shop) -> None:
    courier = Courier(shop.fetch, most=2)
    waits = {voice: asyncio.create_task(courier.bring(voice)) for voice in "abcd"}
    await turns()
    assert sorted(shop.begun) == ["a", "b"]
    waits["c"].cancel()
    waits["a"].cancel()
    await turns()
    assert sorted(courier._errands) == ["a", "b", "d"], "a has begun, c has not"
    shop.gates["d"].set()
    shop.gates["b"].set()
    await waits["b"]
    await waits["d"]
    assert sorted(shop.begun) == ["a", "b", "d"]


def test_a_fetch_that_ends_after_its_loop_troubles_nobody() -> None:
    shop = Shop()

    async def leave() -> None:
        courier = Courier(shop.fetch)
        wait = asyncio.create_task(courier.bring("a"))
        await turns()
        wait.cancel()
        await turns()

    asyncio.run(leave())
    shop.gates["a"].set()
    for thread in threading.enumerate():
        if thread.name == "voice":
            thread.join(30)
    # An exception in a thread is a warning, and so an error, of the test that follows.


def test_few_names_are_all_shown() -> None:
    assert Lookalikes(["b", "a"]).of("nothing like it") == ["b", "a"]


def test_of_many_names_those_that_look_alike() -> None:
    names = [f"vctk/p{number}_{mood}.wav" for number in range(300) for mood in ("calm", "glad")]
    alike = Lookalikes(names)
    assert alike.of("vctk/p217-calm")[0] == "vctk/p217_calm.wav"
    assert alike.of("VCTK/P217_CALM.WAV")[0] == "vctk/p217_calm.wav"
    assert len(alike.of("p21_glad")) == CLOSE
    assert alike.of("zzzz") == names[:FEW]
    assert alike.of("") == names[:FEW]


def test_a_name_that_is_hostile_is_answered_too() -> None:
    rng = random.Random(1)
    alike = Lookalikes([f"vctk/p{number}.wav" for number in range(2_000)])
    for _ in range(50):
        name = "".join(rng.choice("vctk/p0123456789.wav\n\x01é") for _ in range(rng.randrange(257)))
        assert len(alike.of(name)) <= FEW
