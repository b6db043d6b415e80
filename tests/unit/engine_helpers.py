"""Small drivers of an engine for the tests of this folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from engine.contract import Entry, SlotFrame, SlotOptions
from engine.dsm import DsmEngine


def options(engine: DsmEngine, seed: int, **changes: float) -> SlotOptions:
    return dataclasses.replace(engine.info.defaults, seed=seed, **changes)  # type: ignore[arg-type]


def words(count: int, start: int = 10) -> list[Entry]:
    """Arbitrary words of one to three tokens."""
    return [Entry(tuple(start + (7 * i + j) % 2000 for j in range(1 + i % 3))) for i in range(count)]


def step(engine: DsmEngine, slots: Sequence[int]) -> list[SlotFrame]:
    return list(engine.collect(engine.launch(slots)))


def run_to_end(engine: DsmEngine, slot: int, most: int = 2000) -> list[SlotFrame]:
    frames = []
    for _ in range(most):
        frames += step(engine, [slot])
        if frames[-1].ended or frames[-1].flushed:
            return frames
    raise AssertionError(f"no end within {most} steps")


def run_to_stall(engine: DsmEngine, slot: int, most: int = 2000) -> list[SlotFrame]:
    """Committed frames up to the stall."""
    frames: list[SlotFrame] = []
    for _ in range(most):
        frame = step(engine, [slot])[0]
        if not frame.committed:
            return frames
        frames.append(frame)
    raise AssertionError(f"no stall within {most} steps")


def audio(frames: Sequence[SlotFrame]) -> bytes:
    return b"".join(frame.pcm for frame in frames)
