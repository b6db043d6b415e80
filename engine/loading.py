"""A checkpoint folder -> a ready engine on a device."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

import torch

from cuda_ext.build import BuildError
from cuda_ext.kernels import has_tiles
from engine import native
from engine.checkpoint import Checkpoint, load_checkpoint
from engine.contract import ModelInfo, SlotOptions
from engine.dsm import DsmEngine
from engine.errors import KernelError
from engine.kernels import TorchKernels
from engine.native import NativeKernels

log = logging.getLogger(__name__)

BUILTIN = Path(__file__).parent / "builtin"
"""Folder of the voice that is shipped with the package."""
OPTIONS = frozenset(
    {"seed", "temperature", "top_k", "padding_bonus", "padding_between", "max_padding", "voice", "language"}
)


def model_info(model: Checkpoint) -> ModelInfo:
    sampling = model.config.sampling
    builtin = model.folder.resolve() == BUILTIN.resolve()
    return ModelInfo(
        name="antiphon-builtin-1" if builtin else model.folder.name,
        digest=model.digest,
        voices=("default",),
        languages=("en",),
        sample_rate=model.codec.sample_rate,
        frame_samples=model.codec.frame_samples,
        defaults=SlotOptions(
            seed=0,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            temperature_text=sampling.temperature_text,
            top_k_text=sampling.top_k_text,
            max_padding=model.config.text.max_padding,
        ),
        options=OPTIONS,
    )


def load_engine(
    folder: Path = BUILTIN,
    *,
    capacity: int = 16,
    device: str = "cpu",
    kernels: Literal["auto", "native", "torch"] = "auto",
    precision: Literal["auto", "float32", "bf16x3"] = "auto",
) -> DsmEngine:
    """Load a model.

    kernels: ``native`` (C++ on the CPU), ``torch``, or ``auto`` (native where it can be). precision: of matrix products
    (``engine/native.py``); ``auto`` takes ``bf16x3`` where the CPU has matrix tiles.

    Raises:
        CheckpointError, UnsupportedModel: the folder cannot be used.
        KernelError: ``native`` or a precision was demanded that this machine does not have.
    """
    model = load_checkpoint(folder)
    place = torch.device(device)
    chosen = _native(model, capacity, kernels, precision) if place.type == "cpu" and kernels != "torch" else None
    if chosen is None and precision == "bf16x3":
        raise KernelError("bf16x3 needs the native kernels")
    row_by_row = place.type == "cpu"
    return DsmEngine(
        model, model_info(model), chosen or TorchKernels(model, capacity, place, row_by_row), capacity, place
    )


def _native(model: Checkpoint, capacity: int, kernels: str, precision: str) -> NativeKernels | None:
    try:
        if native.supports(model):
            return NativeKernels(model, capacity, capacity, _precision(precision))
        reason = "the model's widths are not multiples of 16"
    except BuildError as error:
        reason = str(error)
    if kernels == "native":
        raise KernelError(reason)
    log.warning("native kernels are not used, speech is several times slower: %s", reason)
    return None


def _precision(wanted: str) -> native.Precision:
    tiles = has_tiles()
    if wanted == "bf16x3" and not tiles:
        raise KernelError("bf16x3 needs a CPU with matrix tiles (AMX)")
    return "bf16x3" if tiles and wanted != "float32" else "float32"
