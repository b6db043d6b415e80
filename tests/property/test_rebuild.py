"""A slot that is rebuilt from its records goes on as the slot that was recorded: byte for byte, wherever it is cut."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.checkpoint import Checkpoint, load_checkpoint
from engine.contract import Entry, FrameEngine, SlotFrame, SlotOptions
from engine.dsm import DsmEngine
from engine.errors import UnusableRecord
from engine.fake import FakeEngine
from engine.kernels import Kernels, TorchKernels
from engine.loading import BUILTIN, model_info
from engine.native import NativeKernels
from engine.native import Precision as NativePrecision
from tests.ahead_room import engine_ahead
from tests.unit.engine_helpers import step, words

CAPACITY = 2
CONTEXT = 24
Order = Sequence[Entry] | str
"""Entries to push, or ``flush`` or ``finish``."""


def short_ring() -> Checkpoint:
    """The built-in voice with a ring that wraps soon."""
    model = load_checkpoint(BUILTIN)
    return dataclasses.replace(model, config=dataclasses.replace(model.config, context=CONTEXT))


def small(make: Callable[[Checkpoint], Kernels], threads: int = 0) -> DsmEngine:
    model = short_ring()
    return DsmEngine(model, model_info(model), make(model), CAPACITY, torch.device("cpu"), threads=threads)


PRECISIONS: list[NativePrecision] = ["float32", "fixed16"]


@pytest.fixture(scope="module", params=[*PRECISIONS, "one call", "ahead"])
def native(request: pytest.FixtureRequest) -> DsmEngine:
    """Operation by operation, a step as one call, and a host that runs a step ahead."""
    if request.param == "ahead":
        return engine_ahead(short_ring(), CAPACITY)
    if request.param == "one call":
        return small(lambda model: NativeKernels(model, CAPACITY, CAPACITY, "fixed16"), threads=2)
    return small(lambda model: NativeKernels(model, CAPACITY, CAPACITY, request.param))


def chosen(engine: FrameEngine, rng: random.Random) -> SlotOptions:
    defaults = engine.info.defaults
    return dataclasses.replace(
        defaults, seed=rng.getrandbits(64), generation=rng.randrange(3), temperature_text=0.9, recorded=True
    )


def random_orders(rng: random.Random, most: int) -> list[Order]:
    """Words, breaks and flushes in any cuts, and the finish."""
    orders: list[Order] = []
    for _ in range(rng.randint(1, most)):
        batch = [
            Entry((), padding=rng.randint(1, 6))
            if rng.random() < 0.15
            else Entry(tuple(rng.randint(4, 2047) for _ in range(rng.randint(1, 4))))
            for _ in range(rng.randint(1, 5))
        ]
        orders.append(batch)
        if rng.random() < 0.25:
            orders.append("flush")
    return [*orders, "finish"]


def give(engine: FrameEngine, slot: int, order: Order) -> None:
    if order == "flush":
        engine.flush(slot)
    elif order == "finish":
        engine.finish(slot)
    else:
        engine.push(slot, order)  # type: ignore[arg-type]


def spoken(
    engine: FrameEngine, slot: int, orders: list[Order], rng: random.Random
) -> tuple[list[SlotFrame], list[int]]:
    """Frames to the end, and how many orders had been given when each came; text comes at random and after stalls."""
    frames: list[SlotFrame] = []
    given: list[int] = []
    count, asleep = 0, True
    while not (frames and frames[-1].ended):
        if count < len(orders) and (asleep or rng.random() < 0.2):
            give(engine, slot, orders[count])
            count += 1
            asleep = asleep and orders[count - 1] == "flush"
            continue
        (frame,) = step(engine, [slot])  # type: ignore[arg-type]
        if frame.committed:
            frames.append(frame)
            given.append(count)
        asleep = not frame.committed or frame.flushed
    return frames, given


def check(engine: FrameEngine, rng: random.Random, orders: list[Order], cuts: int) -> None:
    """The whole run in slot 0, then for some cuts the rest of it in slot 1."""
    options = chosen(engine, rng)
    engine.open(0, options)
    frames, given = spoken(engine, 0, orders, rng)
    engine.close(0)
    for _ in range(cuts):
        cut = rng.randrange(1, len(frames))
        engine.open(1, options)
        for order in orders[: given[cut - 1]]:
            give(engine, 1, order)
        rebuilt = rebuild(engine, 1, frames[:cut], rng)
        assert [bare(frame) for frame in rebuilt] == [bare(frame) for frame in frames[:cut]]
        rest = list(rebuilt[-1:])
        for order in orders[given[cut - 1] :]:
            give(engine, 1, order)
        while not rest[-1].ended:
            rest += step(engine, [1])  # type: ignore[arg-type]
        assert [dataclasses.replace(frame, slot=0) for frame in rest[1:]] == frames[cut:]
        engine.close(1)


def rebuild(engine: FrameEngine, slot: int, frames: Sequence[SlotFrame], rng: random.Random) -> list[SlotFrame]:
    """In slices; the sound of the last frames only, now and then of all."""
    reach = engine.sound_reach
    assert reach is not None
    quiet = 0 if rng.random() < 0.3 else max(0, len(frames) - reach)
    rebuilt: list[SlotFrame] = []
    while len(rebuilt) < len(frames):
        size = rng.randint(1, 40)
        end = min(len(rebuilt) + size, quiet) if len(rebuilt) < quiet else len(rebuilt) + size
        records = [frame.record for frame in frames[len(rebuilt) : end]]
        rebuilt += engine.rebuild(slot, records, sound=len(rebuilt) >= quiet)
    if quiet == 0:
        assert [frame.pcm for frame in rebuilt] == [frame.pcm for frame in frames]
    return rebuilt


def bare(frame: SlotFrame) -> SlotFrame:
    return dataclasses.replace(frame, slot=0, pcm=bytes(len(frame.pcm)))


def test_it_goes_on_as_if_nothing_had_happened(native: DsmEngine) -> None:
    """Cut inside the delay, in stalls and flushes, behind the wrap of the ring."""
    rng = random.Random(34)
    orders = random_orders(rng, 3)
    assert any(not entry.is_word for order in orders if not isinstance(order, str) for entry in order), "a break, too"
    check(native, rng, orders, cuts=3)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_it_goes_on_wherever_it_is_cut(native: DsmEngine, seed: int) -> None:
    rng = random.Random(seed)
    check(native, rng, random_orders(rng, 6), cuts=6)


@pytest.mark.long
def test_a_text_longer_than_the_rings(native: DsmEngine) -> None:
    check(native, random.Random(1), [words(560), "flush", words(30), "finish"], cuts=2)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), overlap=st.sampled_from([0, 720]))
def test_the_fake_keeps_the_promise_too(seed: int, overlap: int) -> None:
    rng = random.Random(seed)
    check(FakeEngine(CAPACITY, overlap=overlap), rng, random_orders(rng, 6), cuts=3)


def test_without_a_compiler() -> None:
    rng = random.Random(2)
    engine = small(lambda model: TorchKernels(model, CAPACITY, torch.device("cpu"), row_by_row=True))
    check(engine, rng, [words(2), "finish"], cuts=1)


def test_what_does_not_fit_is_refused(native: DsmEngine) -> None:
    rng = random.Random(3)
    native.open(0, chosen(native, rng))
    give(native, 0, words(4))
    frames = [step(native, [0])[0] for _ in range(8)]
    records = [frame.record for frame in frames]
    native.close(0)
    for text, told in ((words(4, start=900), records), (words(4), [b"short"]), ([], records)):
        native.open(0, chosen(native, rng))
        give(native, 0, text)
        with pytest.raises(UnusableRecord):
            native.rebuild(0, told, sound=False)
        native.close(0)


def test_a_generation_of_which_the_beginning_is_left_out(native: DsmEngine) -> None:
    """From a word on the slot is rebuilt in its own way: the words are the rest of the text, the steps count on."""
    rng = random.Random(4)
    options, entries = chosen(native, rng), words(9)
    native.open(0, options)
    frames, _ = spoken(native, 0, [entries, "finish"], rng)
    native.close(0)
    at = [index for index, frame in enumerate(frames) if frame.word][3]
    native.open(1, options)
    native.seek(1, at)
    for order in (entries[3:], "finish"):
        give(native, 1, order)
    told = frames[at : at + 12]
    rebuilt = [*native.rebuild(1, [frame.record for frame in told], sound=True)]
    assert [(frame.step, frame.word, frame.model_start) for frame in rebuilt] == [
        (frame.step, frame.word, frame.model_start) for frame in told
    ]
    while not rebuilt[-1].ended:
        rebuilt += step(native, [1])
    native.close(1)
    assert sum(frame.word for frame in rebuilt) == 6
    assert rebuilt[-1].step > at


def test_only_recorded_generations_pay(native: DsmEngine) -> None:
    native.open(0, dataclasses.replace(chosen(native, random.Random(1)), recorded=False))
    native.push(0, words(2))
    assert step(native, [0])[0].record == b""
    native.close(0)
