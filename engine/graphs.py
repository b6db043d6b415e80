"""The step from captured graphs: one replay launches it whole, and the host runs one step ahead of the device.

A graph is captured for each bucket of rows, once with everything and once for steps inside the text delay. It reads its
slots from a static vector that is filled up with a scratch slot, asleep for ever, and leaves its results in a ring on
the device, at the turn that the host wrote beside the slots: a replay never overwrites what has not been read. Per step
the host makes one copy to the device (slots, turn and the slots' text), one launch, one copy back, and one wait.
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from engine.control import Control, StagedControl
from engine.device import Body, Device, Mark, Strictness
from engine.garbage import frozen_garbage
from engine.kernels import Kernels
from engine.runner import Batch, Landed, over
from engine.slots import SlotBuffers
from engine.step import FusedStep, Report, to_int16
from engine.text import Field

log = logging.getLogger(__name__)

BUCKETS = (1, 4, 16, 64, 128, 256)
RING = 3
"""Steps whose results are kept on the device and on the host: one being read, one in flight, one being launched."""
WARM_UPS = 2
"""Plain runs ahead of a capture: libraries choose algorithms and allocate what they keep."""
REPORT = 4 * len(Report)
"""int16 columns of a report."""


@runtime_checkable
class StaticKernels(Kernels, Protocol):
    """Kernels whose operations may be captured: they look at no value, and keep their state where it is."""

    tail_samples: int
    keep_logits: bool
    """Whether audio logits outlive a step."""
    logits: Tensor | None

    def codec_tails(self, slots: Tensor, over: Tensor) -> Tensor:
        """``codec_tail`` of the rows of a step, float32 [rows, tail_samples]; cleared where ``over``."""
        ...

    def addresses(self) -> tuple[int, ...]:
        """Of the state that may move, between steps. Graphs that know it elsewhere are useless."""
        ...


class Key(NamedTuple):
    """Which graph. Larger ones can do the work of smaller ones, at their price."""

    rows: int
    full: bool
    guided: bool


class Flight(NamedTuple):
    rows: int
    turn: int
    landed: Mark


@dataclass(frozen=True, slots=True)
class Captured:
    """What the captures ahead of serving took."""

    graphs: int
    failed: int
    """Bodies that could not be captured and are called kernel by kernel instead."""
    seconds: float
    bytes: int | None
    """Of the device's memory; None: the device does not tell."""

    def __str__(self) -> str:
        memory = "" if self.bytes is None else f", {self.bytes / 2**20:.0f} MiB"
        failed = f"; {self.failed} steps could not be captured" if self.failed else ""
        return f"{self.graphs} graphs in {self.seconds:.1f} s{memory}{failed}"


def buckets(capacity: int) -> tuple[int, ...]:
    """Rows of the graphs, ascending; the last is ``capacity``."""
    return (*(rows for rows in BUCKETS if rows < capacity), capacity)


def spare(capacity: int) -> int:
    """Numbers that ``SlotBuffers`` must set aside for the runner's inputs."""
    return capacity + 1


class GraphRunner:
    """Slots are ``range(capacity)``; the buffers have one more, the scratch slot. The thread that makes it owns it.

    Raises nothing for a graph that cannot be captured: its step is then called kernel by kernel, and the log says so.
    """

    run_ahead = 1

    def __init__(self, step: FusedStep, kernels: StaticKernels, buffers: SlotBuffers, device: Device) -> None:
        self._step, self._kernels, self._device = step, kernels, device
        kernels.keep_logits = False  # they would hold memory of the graphs' pool
        device.synchronise()  # the buffers' zeros may have been written on another stream
        arena = buffers.arena
        self._capacity = capacity = len(buffers.text.state) - 1
        self._inputs = arena[len(arena) - spare(capacity) :][None]  # [1, capacity + 1]: the slots, then the turn
        self._every = torch.arange(capacity, device=arena.device)
        self._buckets = buckets(capacity)
        self._staged = StagedControl(arena, device)
        self.control: Control = self._staged
        sizes = (REPORT, 4 * step.token_count, step.frame_samples, kernels.tail_samples)
        width = sum(sizes)
        self._ring = torch.zeros(RING, capacity, width, dtype=torch.int16, device=arena.device)
        self._landed = device.pinned(RING, capacity, width, dtype=torch.int16)
        ends = tuple(accumulate(sizes))
        self._tokens, self._frame, self._tail = (slice(*part) for part in pairwise(ends))
        self._graphs: dict[Key, Body] = {}
        self._addresses: tuple[int, ...] = ()
        self._failed = 0
        self._launched = self._collected = 0
        with device.context():
            buffers.text.state[capacity] = scratch_state(step.tail_steps, arena.device)

    def context(self) -> contextlib.AbstractContextManager[object]:
        return self._device.context()

    # -- steps -------------------------------------------------------------------------------------------------------

    def launch(self, batch: Batch) -> Flight:
        assert batch.forced is None, "tokens are forced in plain steps only"
        assert self._launched - self._collected <= self.run_ahead, "collect first"
        rows = len(batch.slots)
        turn = self._launched % RING
        replay = self._graph(Key(self._bucket(rows), batch.full, bool(batch.guided)), turn)
        padding = (self._capacity,) * (self._bucket(rows) - rows)
        self._staged.put(self._inputs, 0, 0, (*batch.slots, *padding))
        self._staged.put(self._inputs, 0, self._capacity, (turn,))
        self._staged.apply()
        replay()
        landed = self._device.download(self._landed[turn, :rows], self._ring[turn, :rows])
        self._launched += 1
        return Flight(rows, turn, landed)

    def collect(self, flight: object) -> Landed:
        assert isinstance(flight, Flight)
        self._collected += 1
        flight.landed.wait()
        block = self._landed[flight.turn, : flight.rows]
        reports: list[list[int]] = block[:, :REPORT].contiguous().view(torch.int64).tolist()
        tokens = block[:, self._tokens].contiguous().view(torch.int64)
        tails = {row: block[row, self._tail] for row in over(reports)}
        return Landed(reports, block[:, self._frame], tokens, tails)

    def _bucket(self, rows: int) -> int:
        return next(size for size in self._buckets if size >= rows)

    # -- captures ----------------------------------------------------------------------------------------------------

    def capture(self, guided: bool = False) -> Captured:
        """Capture what every step may need, the largest first, so that the smaller find their memory in the pool.
        guided: of a model whose sessions are under guidance unless they refuse it. Blocks for seconds."""
        began, free = time.perf_counter(), self._device.free_bytes()
        with frozen_garbage():
            for rows in reversed(self._buckets):
                for full in (True, False):
                    self._graph(Key(rows, full, guided), 0, "global")
        left = self._device.free_bytes()
        taken = free - left if free is not None and left is not None else None
        made = Captured(len(self._graphs) - self._failed, self._failed, time.perf_counter() - began, taken)
        log.info("steps are captured: %s", made)
        return made

    def _graph(self, key: Key, turn: int, strictness: Strictness = "thread_local") -> Body:
        """turn: of the results' ring, one that nobody reads."""
        addresses = self._kernels.addresses()
        if addresses != self._addresses and self._graphs:
            log.warning(
                "buffers of the model have moved: %d graphs are captured anew as they are needed", len(self._graphs)
            )
            self._graphs.clear()
            self._device.forget()
        self._addresses = addresses
        if key not in self._graphs:
            self._graphs[key] = self._capture(key, turn, strictness)
        return self._graphs[key]

    @torch.inference_mode()
    def _capture(self, key: Key, turn: int, strictness: Strictness) -> Body:
        def body() -> None:
            self._run(key)

        began = time.perf_counter()
        with self._device.context():
            self._device.do(lambda: self._inputs.fill_(self._capacity))  # rows of others must not step here
            self._device.do(lambda: self._inputs[0, self._capacity :].fill_(turn))
            for _ in range(WARM_UPS):
                self._device.do(body)
        try:
            replay = self._device.capture(body, strictness)
        except RuntimeError:
            log.exception("%s cannot be captured as a graph and is called kernel by kernel: slow", key)
            self._failed += 1
            return lambda: self._device.do(body)
        finally:
            self._kernels.logits = None  # where they are kept all the same, they are memory of the graphs' pool
        log.debug("captured %s in %.2f s", key, time.perf_counter() - began)
        return replay

    def _run(self, key: Key) -> None:
        """The step of a graph, on static tensors only."""
        slots = self._inputs[0, : key.rows]
        output = self._step(slots, key.full, None, self._every[: key.rows] if key.guided else None)
        report = output.report
        parts = [report.view(torch.int16), output.tokens.view(torch.int16)]
        if key.full:
            over = (report[:, Report.FLUSHED] | report[:, Report.ENDED]) != 0
            parts += [output.pcm, to_int16(self._kernels.codec_tails(slots, over))]
        results = torch.cat(parts, dim=1)
        ring = self._ring[:, : key.rows, : results.shape[1]]
        ring.index_copy_(0, self._inputs[0, self._capacity :], results[None])


def scratch_state(tail_steps: int, device: torch.device) -> Tensor:
    """A row of the text machine that is over, and so is never committed."""
    state = torch.zeros(len(Field), dtype=torch.int64)
    state[Field.CLOSED] = 1
    state[Field.STEP] = tail_steps
    state[Field.FLUSH_AT] = -1
    return state.to(device)
