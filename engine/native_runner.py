"""The step as one C++ call: ``cuda_ext/frame.cpp`` over the slots' buffers, its rows shared by a few threads.

The fast path of ``FusedStep`` with ``NativeKernels``; a test holds the two equal, bit for bit.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref

import torch

from cuda_ext import kernels as k
from engine.config import ModelConfig
from engine.control import Control, PlainControl
from engine.native import NativeKernels
from engine.runner import Batch, Landed, over
from engine.slots import SlotBuffers
from engine.step import Report, StepOutput, to_int16


class NativeRunner:
    """Outputs are made anew each step, for a flight may be kept; nothing else is allocated once every size has run."""

    run_ahead = 0

    def __init__(
        self, config: ModelConfig, kernels: NativeKernels, buffers: SlotBuffers, frame_samples: int, threads: int
    ) -> None:
        """threads: that share the rows of a step, the caller's included."""
        self.control: Control = PlainControl()
        self._config, self._kernels, self._samples = config, kernels, frame_samples
        self._lib = k.load()
        self._frame = kernels.frame(buffers)
        self._stage = self._lib.antiphon_stage(threads - 1)
        weakref.finalize(self, self._lib.antiphon_stage_close, self._stage)

    def context(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def launch(self, batch: Batch) -> tuple[Batch, StepOutput]:
        assert not batch.guided, "the native kernels know no guidance"
        rows, books, kernels = len(batch.slots), self._config.codebooks, self._kernels
        slots = (ctypes.c_int32 * rows)(*batch.slots)
        output = StepOutput(
            torch.empty(rows, len(Report), dtype=torch.int64),
            torch.empty(rows, self._samples, dtype=torch.int16),
            torch.empty(rows, kernels.text_choices),
            torch.empty(rows, 1 + books, dtype=torch.int64),
        )
        kernels.logits = torch.zeros(rows, books, self._config.card) if kernels.keep_logits else None
        logits = kernels.logits.data_ptr() if kernels.logits is not None else None
        made = (output.report, output.pcm, output.text_logits, output.tokens)
        outputs = k.OutputsStruct(*(tensor.data_ptr() for tensor in made), logits)
        forced = None
        if batch.forced is not None:
            given = batch.forced.text.contiguous(), batch.forced.audio.contiguous()
            forced = ctypes.byref(k.ForcedStruct(given[0].data_ptr(), given[1].data_ptr()))
        self._lib.antiphon_frame(ctypes.byref(self._frame), self._stage, rows, slots, forced, ctypes.byref(outputs))
        return batch, output

    def collect(self, flight: object) -> Landed:
        assert isinstance(flight, tuple)
        batch, output = flight
        reports: list[list[int]] = output.report.tolist()
        tails = {row: to_int16(self._kernels.codec_tail(batch.slots[row])) for row in over(reports)}
        return Landed(reports, output.pcm, output.tokens, tails)
