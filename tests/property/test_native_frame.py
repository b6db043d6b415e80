"""The frame as one call against its slow twin, operation by operation: reports, tokens, logits, sound, bit for bit."""

from __future__ import annotations

import dataclasses
import random
from typing import Literal, NamedTuple

import pytest
import torch

from engine.contract import Entry, SlotFrame
from engine.dsm import DsmEngine
from engine.loading import load_engine
from engine.step import Forced, Report

CAPACITY = 9
Precision = Literal["float32", "fixed16"]


class Seen(NamedTuple):
    frames: list[SlotFrame]
    report: torch.Tensor
    text_logits: torch.Tensor
    tokens: torch.Tensor
    """Of rows that committed."""
    audio_logits: torch.Tensor


def words(dice: random.Random, most: int) -> list[Entry]:
    lengths = (dice.randrange(1, 5) for _ in range(dice.randrange(most)))
    entries = [Entry(tuple(dice.randrange(2048) for _ in range(length))) for length in lengths]
    return [*entries, Entry((), dice.randrange(4))] if dice.random() < 0.3 else entries


def disturb(engine: DsmEngine, dice: random.Random, live: set[int]) -> None:
    """Anything that may happen to slots between two steps."""
    for slot in range(CAPACITY):
        chance = dice.random()
        if slot not in live and chance < 0.3:
            options = dataclasses.replace(
                engine.info.defaults,
                seed=dice.randrange(1 << 64),
                generation=dice.randrange(3),
                temperature=dice.choice([0.0, 0.4, 1.0]),
                top_k=dice.choice([0, 1, 100]),
                padding_bonus=dice.choice([0.0, 1.5]),
            )
            engine.open(slot, options)
            if dice.random() < 0.2:
                engine.seek(slot, dice.randrange(1, 90))
            engine.push(slot, words(dice, 8))
            live.add(slot)
        elif slot in live and chance < 0.1:
            engine.push(slot, words(dice, 6))
        elif slot in live and chance < 0.13:
            engine.flush(slot)
        elif slot in live and chance < 0.16:
            engine.finish(slot)
        elif slot in live and chance < 0.17:
            engine.close(slot)
            live.discard(slot)


def run(engine: DsmEngine, seed: int, steps: int) -> list[Seen]:
    dice, live, seen = random.Random(seed), set[int](), list[Seen]()
    for _ in range(steps):
        disturb(engine, dice, live)
        rows = [slot for slot in sorted(live, key=lambda _: dice.random()) if dice.random() < 0.8]
        if not rows:
            continue
        forced = Forced(
            torch.tensor([dice.choice([-1, -1, 0, 3]) for _ in rows]),
            torch.tensor([[dice.choice([-1, dice.randrange(512)]) for _ in range(8)] for _ in rows]),
        )
        ticket = engine.launch(rows, forced if dice.random() < 0.3 else None)
        output, audio = ticket.output, engine.kernels.logits  # type: ignore[attr-defined]  # native kernels
        frames = list(engine.collect(ticket))
        moved = output.report[:, Report.COMMIT] == 1
        whole = audio if audio is not None and len(audio) == len(rows) and moved.all() else torch.empty(0)
        seen.append(Seen(frames, output.report, output.text_logits, output.tokens[moved], whole))
        for frame in frames:
            if frame.ended or frame.failed:
                engine.close(frame.slot)
                live.discard(frame.slot)
    return seen


def load(precision: Precision, threads: int) -> DsmEngine:
    return load_engine(capacity=CAPACITY, kernels="native", precision=precision, threads=threads)


@pytest.mark.parametrize("precision", ["float32", "fixed16"])
def test_the_frame_equals_its_operations(precision: Precision) -> None:
    twin, alone, shared = (run(load(precision, threads), 7, 90) for threads in (0, 1, 3))
    frames = [frame for seen in twin for frame in seen.frames]
    assert sum(bool(frame.pcm) for frame in frames) > 150
    assert sum(frame.pause for frame in frames) > 5
    assert {(f.committed, f.flushed, f.ended) for f in frames} >= {
        (False, False, False),
        (True, True, False),
        (True, False, True),
    }
    for want, *others in zip(twin, alone, shared, strict=True):
        for got in others:
            assert got.frames == want.frames
            assert torch.equal(got.report, want.report)
            assert torch.equal(got.text_logits, want.text_logits)
            assert torch.equal(got.tokens, want.tokens)


def test_a_row_that_is_not_finite_fails_alone() -> None:
    engine = load("fixed16", 2)
    for slot in range(5):
        engine.open(slot, dataclasses.replace(engine.info.defaults, seed=slot))
        engine.push(slot, [Entry((5, 6))] * 30)
    for _ in range(9):
        engine.collect(engine.launch(range(5)))
    engine.kernels._kv[:, :, 3] = 255  # type: ignore[attr-defined]  # white box: scales of the cache that are no numbers
    frames = engine.collect(engine.launch(range(5)))
    assert [frame.failed for frame in frames] == [False, False, False, True, False]
    assert [frame.committed for frame in frames] == [True, True, True, False, True]
