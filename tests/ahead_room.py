"""The built-in voice in the CPU's kernels, run the way graphs run it: static buffers, and the host a step ahead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.checkpoint import Checkpoint
from engine.contract import SlotFrame
from engine.device import HostDevice
from engine.dsm import DsmEngine
from engine.loading import model_info
from engine.native import NativeKernels
from scheduler.clock import FakeClock
from scheduler.loop import StepLoop
from scheduler.messages import Cancelled, Command, Ended, Event, Failed, Flushed, Frame


class StaticNative(NativeKernels):
    """What a captured step asks of kernels, from the CPU's."""

    @property
    def tail_samples(self) -> int:
        return self._codec_config.overlap

    def codec_tails(self, slots: Tensor, over: Tensor) -> Tensor:
        tails = torch.zeros(len(slots), self.tail_samples)
        for row in over.nonzero()[:, 0].tolist():
            tails[row] = self.codec_tail(int(slots[row]))
        return tails

    def addresses(self) -> tuple[int, ...]:
        return ()


def engine_ahead(model: Checkpoint, capacity: int) -> DsmEngine:
    """Queued work is done when its results are waited for, and not before."""
    kernels = StaticNative(model, capacity + 1, capacity + 1)
    cpu = torch.device("cpu")
    return DsmEngine(model, model_info(model), kernels, capacity, cpu, graphs=HostDevice(late=True))


def engine_at_once(model: Checkpoint, capacity: int) -> DsmEngine:
    kernels = NativeKernels(model, capacity, capacity)
    return DsmEngine(model, model_info(model), kernels, capacity, torch.device("cpu"))


class Heard:
    """What a loop over an engine delivered, by session and generation."""

    def __init__(self, engine: DsmEngine) -> None:
        self.engine = engine
        self.clock = FakeClock(100.0)
        self.loop = StepLoop(engine, self.clock, self._deliver)
        self.frames: dict[tuple[str, int], list[SlotFrame]] = defaultdict(list)
        self.ends: dict[str, list[Event]] = defaultdict(list)

    def _deliver(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Frame):
                self.frames[event.session, event.generation].append(event.frame)
            elif isinstance(event, Flushed | Ended | Cancelled | Failed):
                self.ends[event.session].append(event)

    def submit(self, command: Command) -> None:
        self.loop.submit(command)

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            self.clock.advance(0.01)
            self.loop.tick()

    def run_out(self, most: int = 3000) -> None:
        for _ in range(most):
            self.run(1)
            if not self.loop.active:
                self.loop.tick()
                return
        raise AssertionError("the sessions do not end")
