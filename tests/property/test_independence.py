"""A session's tokens are bit for bit the same alone and in a batch where others join, stall, cancel and leave."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract import Entry, SlotOptions
from engine.dsm import DsmEngine, Ticket
from engine.loading import load_engine

CAPACITY = 16


@pytest.fixture(scope="module", params=["float32", "auto"])
def native(request: pytest.FixtureRequest) -> DsmEngine:
    """``auto`` is the precision that ``serve`` uses by default."""
    return load_engine(capacity=CAPACITY, kernels="native", precision=request.param)


@pytest.fixture(scope="module")
def plain() -> DsmEngine:
    """What ``serve`` falls back on without a C++ compiler."""
    return load_engine(capacity=CAPACITY, kernels="torch")


def random_entries(rng: random.Random, least: int, most: int) -> list[Entry]:
    return [
        Entry(tuple(rng.randint(4, 2047) for _ in range(rng.randint(1, 4)))) for _ in range(rng.randint(least, most))
    ]


def options(engine: DsmEngine, rng: random.Random) -> SlotOptions:
    return dataclasses.replace(
        engine.info.defaults,
        seed=rng.getrandbits(64),
        temperature=rng.choice([0.0, 0.4, 0.9]),
        top_k=rng.choice([0, 20]),
    )


def alone(
    engine: DsmEngine, slot: int, chosen: SlotOptions, entries: Sequence[Entry], steps: int
) -> list[tuple[object, ...]]:
    engine.open(slot, chosen)
    engine.push(slot, entries)
    engine.finish(slot)
    out = []
    for _ in range(steps):
        out.append(stepped(engine, [slot])[slot])
    engine.close(slot)
    return out


def stepped(engine: DsmEngine, slots: Sequence[int]) -> dict[int, tuple[object, ...]]:
    ticket = engine.launch(slots)
    assert isinstance(ticket, Ticket)
    frames = engine.collect(ticket)
    tokens = ticket.output.tokens.tolist()
    return {
        slot: (*row, frame.pcm) if frame.committed else ()
        for slot, row, frame in zip(slots, tokens, frames, strict=True)
    }


@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_same_alone_and_in_company(native: DsmEngine, seed: int) -> None:
    check(native, seed, steps=24)


@settings(max_examples=1, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_same_alone_and_in_company_without_a_compiler(plain: DsmEngine, seed: int) -> None:
    check(plain, seed, steps=14)


def check(engine: DsmEngine, seed: int, steps: int) -> None:
    rng = random.Random(seed)
    mine, entries, slot = options(engine, rng), random_entries(rng, 4, 8), rng.randrange(CAPACITY)
    want = alone(engine, rng.randrange(CAPACITY), mine, entries, steps)
    others: set[int] = set()
    engine.open(slot, mine)
    text = list(entries)
    got: list[tuple[object, ...]] = []
    closed = False
    while len(got) < steps:
        for _ in range(rng.randint(0, 4)):
            disturb(engine, rng, slot, others)
        if text and rng.random() < 0.6:
            engine.push(slot, [text.pop(0)])
        elif not text and not closed:
            engine.finish(slot)
            closed = True
        company = [other for other in others if rng.random() < 0.8]
        order = [*company, slot]
        rng.shuffle(order)
        result = stepped(engine, order)[slot]
        if result:
            got.append(result)
    for open_slot in (*others, slot):
        engine.close(open_slot)
    assert got == want


def disturb(engine: DsmEngine, rng: random.Random, mine: int, others: set[int]) -> None:
    """A neighbour joins with some text, leaves, or gets more text; most stall sooner or later."""
    other = rng.randrange(CAPACITY)
    if other == mine:
        return
    if other not in others:
        engine.open(other, options(engine, rng))
        engine.push(other, random_entries(rng, 0, 5))
        others.add(other)
    elif rng.random() < 0.2:
        engine.close(other)
        others.remove(other)
    else:
        engine.push(other, random_entries(rng, 0, 3))
