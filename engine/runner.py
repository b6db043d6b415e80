"""How a step is run: at once (the CPU, and CUDA without graphs), or from captured graphs (``engine/graphs.py``).

The host side of an engine (``engine/dsm.py``) hands a ``Batch`` over and gets it back as ``Landed``, in order.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.control import Control, PlainControl
from engine.kernels import Kernels
from engine.step import Forced, FusedStep, Report, StepOutput, to_int16


@dataclass(frozen=True, slots=True)
class Batch:
    slots: tuple[int, ...]
    guided: tuple[int, ...]
    """Rows (places in ``slots``) under guidance."""
    full: bool
    """False: all rows are inside the text delay."""
    forced: Forced | None = None


@dataclass(frozen=True, slots=True)
class Landed:
    """What a step left on the host, rows in the batch's order. Valid until ``run_ahead`` + 1 later steps are begun."""

    reports: list[list[int]]
    """Columns: ``Report``."""
    pcm: Tensor
    """int16 [rows, frame_samples]; only rows that are sounding mean anything."""
    tokens: Tensor
    """int64 [rows, 1 + codebooks]: what the model reads at the next step."""
    tails: dict[int, Tensor]
    """Row -> int16 [overlap], for rows that are flushed or ended."""


class Runner(Protocol):
    """``run_ahead`` batches may be in flight when another is launched."""

    control: Control

    @property
    def run_ahead(self) -> int: ...

    def context(self) -> contextlib.AbstractContextManager[object]:
        """Everything that touches the slots' buffers happens inside."""
        ...

    def launch(self, batch: Batch) -> object: ...

    def collect(self, flight: object) -> Landed:
        """Blocks until the step is done."""
        ...


def over(reports: list[list[int]]) -> list[int]:
    """Rows whose tail is due."""
    return [row for row, report in enumerate(reports) if report[Report.FLUSHED] or report[Report.ENDED]]


class DirectRunner:
    """The step as a plain call; a flight is its ``StepOutput``."""

    run_ahead = 0

    def __init__(self, step: FusedStep, kernels: Kernels, device: torch.device) -> None:
        self.control: Control = PlainControl()
        self._step, self._kernels, self._device = step, kernels, device

    def context(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def launch(self, batch: Batch) -> tuple[Batch, StepOutput]:
        guided = torch.tensor(batch.guided, device=self._device) if batch.guided else None
        slots = torch.tensor(batch.slots, device=self._device)
        return batch, self._step(slots, batch.full, batch.forced, guided)

    def collect(self, flight: object) -> Landed:
        assert isinstance(flight, tuple)
        batch, output = flight
        reports: list[list[int]] = output.report.tolist()
        tails = {row: to_int16(self._kernels.codec_tail(batch.slots[row])).cpu() for row in over(reports)}
        return Landed(reports, output.pcm.cpu(), output.tokens.cpu(), tails)
