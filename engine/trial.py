"""A machine on trial: is what it computes what the reference computes, and how long does a step take?"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from engine.config import NEW_WORD
from engine.contract import Entry, FrameEngine, SlotFrame
from engine.dsm import DsmEngine
from engine.kernels import TorchKernels
from engine.step import Forced

REST = (Entry((), padding=1_000_000),)
"""A break without an end: rows step on and speak nothing, so the words of no language are needed."""


@dataclass(frozen=True, slots=True)
class Parity:
    """Largest differences over a number of steps with the same tokens forced on both sides."""

    text_logits: float
    audio_logits: float
    samples: int
    """Of int16."""


def parity(reference: DsmEngine, other: DsmEngine, rows: int, steps: int, seed: int = 1) -> Parity:
    """Both run plain steps of torch kernels, which keep their logits; the slots are free."""
    worst, config = [0.0, 0.0, 0.0], reference.config
    random = torch.Generator().manual_seed(seed)
    for engine in (reference, other):
        _open(engine, rows)
    for _ in range(steps):
        text = torch.where(torch.rand(rows, generator=random) < 0.2, NEW_WORD, config.padding_id)
        audio = torch.randint(config.card, (rows, config.generated), generator=random)
        seen = [_forced(engine, rows, text, audio) for engine in (reference, other)]
        worst = [max(bad, float((a - b).abs().max())) for bad, a, b in zip(worst, *seen, strict=True)]
    for engine in (reference, other):
        _close(engine, rows)
    return Parity(worst[0], worst[1], int(worst[2]))


def _forced(engine: DsmEngine, rows: int, text: torch.Tensor, audio: torch.Tensor) -> list[torch.Tensor]:
    """Text logits, audio logits, samples; on the host."""
    assert isinstance(engine.kernels, TorchKernels)
    assert engine.run_ahead == 0
    place, engine.kernels.logits = engine.device, None  # a step inside the text delay has none
    ticket = engine.launch(range(rows), Forced(text.to(place), audio.to(place)))
    output, logits = ticket.output, engine.kernels.logits
    engine.collect(ticket)
    heard = torch.zeros(1) if logits is None else logits.float().cpu()
    return [output.text_logits.cpu(), heard, output.pcm.cpu().float()]


def spoken(engine: FrameEngine, entries: Sequence[Entry], rows: int, most: int = 400) -> list[bytes]:
    """What so many free slots say of a text, stepped together, as far ahead as the engine goes."""
    _open(engine, rows, entries)
    for slot in range(rows):
        engine.finish(slot)
    sound, live = [b""] * rows, set(range(rows))
    for frame in _frames(engine, rows, most):
        if frame.slot in live:
            sound[frame.slot] += frame.pcm
            live -= {frame.slot} if frame.ended or frame.failed else set()
        if not live:
            break
    _close(engine, rows)
    return sound


def _frames(engine: FrameEngine, rows: int, steps: int) -> Iterator[SlotFrame]:
    """Frames of that many steps; what is in flight is brought home however the caller leaves."""
    flights: deque[object] = deque()
    try:
        for _ in range(steps):
            flights.append(engine.launch(range(rows)))
            if len(flights) > engine.run_ahead:
                yield from engine.collect(flights.popleft())
    finally:
        while flights:
            engine.collect(flights.popleft())


@dataclass(frozen=True, slots=True)
class StepTime:
    rows: int
    full_s: float
    """Of a whole frame, from one to the next, the host running ahead where it may."""
    text_s: float
    """Of a step inside the text delay; 0 for a model that has none."""
    alone_s: float
    """From the launch of a whole frame to its result, with nothing in flight before."""
    host_s: float
    """Of the host in ``launch``."""


def step_time(engine: FrameEngine, rows: int, repeats: int = 30) -> StepTime:
    """Medians; the slots are free. Every row is busy with a whole frame."""
    _open(engine, rows)
    text_s = []
    while engine.in_delay(0):
        text_s.append(_alone(engine, rows))
    _alone(engine, rows)  # finds its memory cold
    alone_s = [_alone(engine, rows) for _ in range(max(1, repeats // 3))]
    host_s, ends, flights = [], [], deque[object]()
    for _ in range(repeats + 1 + engine.run_ahead):
        began = time.perf_counter()
        flights.append(engine.launch(range(rows)))
        host_s.append(time.perf_counter() - began)
        if len(flights) > engine.run_ahead:
            engine.collect(flights.popleft())
            ends.append(time.perf_counter())
    while flights:
        engine.collect(flights.popleft())
    _close(engine, rows)
    gaps = [later - sooner for sooner, later in itertools.pairwise(ends)]
    return StepTime(
        rows=rows,
        full_s=statistics.median(gaps),
        text_s=statistics.median(text_s[1:] or text_s or [0.0]),
        alone_s=statistics.median(alone_s),
        host_s=statistics.median(host_s),
    )


def _alone(engine: FrameEngine, rows: int) -> float:
    began = time.perf_counter()
    engine.collect(engine.launch(range(rows)))
    return time.perf_counter() - began


def _open(engine: FrameEngine, rows: int, entries: Sequence[Entry] = REST) -> None:
    for slot in range(rows):
        engine.open(slot, dataclasses.replace(engine.info.defaults, seed=slot))
        engine.push(slot, entries)


def _close(engine: FrameEngine, rows: int) -> None:
    for slot in range(rows):
        engine.close(slot)
