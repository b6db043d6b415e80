"""The tensor text machine equals moshi's ``StateMachine`` step for step: random text, arrivals, holds and stalls."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from engine.config import NEW_WORD, TextMachineConfig
from engine.contract import Entry
from engine.control import PlainControl
from engine.dsm import Feed, write_entries
from engine.text import Field, TextBuffers, advance, initial_state

pytest.importorskip("moshi")
from moshi.models.tts import Entry as MachineEntry
from moshi.models.tts import StateMachine, TokenIds

CARD, PAD = 8001, 3


@dataclass
class Row:
    """One slot beside its oracle, which has the whole text from the start."""

    entries: list[Entry]
    samples: list[int]
    oracle: Any
    feed: Feed = field(default_factory=Feed)
    given: int = 0
    step: int = 0


def random_entries(rng: random.Random, most: int) -> list[Entry]:
    def entry() -> Entry:
        if rng.random() < 0.15:
            return Entry((), rng.randint(0, 6))
        tokens = tuple(rng.choice([0] + [rng.randint(4, 7999)] * 12) for _ in range(rng.randint(1, 4)))
        return Entry(tokens, rng.choice([0, 0, len(tokens)]))

    return [entry() for _ in range(rng.randint(0, most))]


def run(seed: int, most_entries: int, steps: int) -> tuple[int, int, int]:
    """Returns slot-steps compared, stalls, tokens given to slot 0."""
    rng = random.Random(seed)
    ahead, max_padding, initial = rng.choice([0, 1, 2, 3]), rng.choice([1, 3, 6, 8]), rng.choice([0, 2, 4])
    config = TextMachineConfig(5, ahead, initial, max_padding, 3)
    machine = StateMachine(TokenIds(CARD), ahead, max_padding, initial)
    count = rng.randint(1, 5)
    buffers = TextBuffers.empty(count, torch.device("cpu"))
    rows = []
    for slot in range(count):
        entries = random_entries(rng, most_entries)
        oracle = machine.new_state([MachineEntry(list(e.tokens), "w" if e.tokens else "", e.padding) for e in entries])
        samples = [rng.choice([NEW_WORD, PAD, PAD, PAD, 7]) for _ in range(steps)]
        rows.append(Row(entries, samples, oracle))
        buffers.state[slot] = torch.tensor(initial_state(config, max_padding))
    streaming = rng.random() < 0.7
    compared = stalls = 0
    for _ in range(steps):
        for slot, row in enumerate(rows):
            give(rng, buffers, slot, row, streaming)
        slots = [slot for slot in range(count) if rng.random() < 0.85]
        if not slots:
            continue
        index = torch.tensor(slots)
        sampled = torch.tensor([rows[slot].samples[rows[slot].step] for slot in slots])
        result = advance(buffers, index, sampled, ahead, CARD, PAD)
        buffers.state[index] = result.state
        for at, slot in enumerate(slots):
            row = rows[slot]
            if not result.commit[at]:
                stalls += 1
                continue
            token, word = machine.process(row.step, row.oracle, int(sampled[at]))
            state = buffers.state[slot]
            assert int(result.token[at]) == token, (seed, slot, row.step)
            assert bool(result.word[at]) == (word and bool(row.entries[len(row.oracle.consumption_times) - 1].tokens))
            assert int(state[Field.REMAINING_PADDING]) == row.oracle.remaining_padding
            assert int(state[Field.FORCED_PADDING]) == row.oracle.forced_padding
            end = row.oracle.end_step
            assert int(state[Field.END_STEP]) == (-1 if end is None else end)
            row.step += 1
            row.feed.tokens_read = int(min(state[Field.CUR], state[Field.AHEAD]) if ahead else state[Field.CUR])
            row.feed.words_read, row.feed.entries_read = int(state[Field.WORDS_TAKEN]), int(state[Field.ENTRIES_TAKEN])
            compared += 1
    return compared, stalls, rows[0].feed.tokens


def give(rng: random.Random, buffers: TextBuffers, slot: int, row: Row, streaming: bool) -> None:
    """Push what has arrived by now and fits; close when all is given."""
    if streaming and rng.random() > 0.25:
        return
    while row.given < len(row.entries) and row.feed.fits(row.entries[row.given]):
        write_entries(buffers, slot, row.feed, [row.entries[row.given]], PlainControl())
        row.given += 1
        if streaming:
            break
    if row.given == len(row.entries) and (not streaming or rng.random() < 0.3):
        buffers.state[slot, Field.CLOSED] = 1


def test_equals_reference_over_random_texts() -> None:
    results = [run(seed, 25, 250) for seed in range(40)]
    assert sum(result[0] for result in results) > 10_000
    assert sum(result[1] for result in results) > 100, "no run stalled: the test lost its point"


def test_equals_reference_over_ring_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings of 32 tokens and 24 entries wrap ten times and more."""
    for module in ("engine.text", "engine.dsm"):
        monkeypatch.setattr(f"{module}.TOKEN_RING", 32)
        monkeypatch.setattr(f"{module}.ENTRY_RING", 24)
    results = [run(seed, 300, 1500) for seed in range(100, 106)]
    assert max(result[2] for result in results) > 10 * 32
