"""A checkpoint folder -> a ready engine on a device."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from cuda_ext.build import BuildError
from engine import native
from engine.checkpoint import Checkpoint, load_checkpoint
from engine.contract import ModelInfo, SlotOptions
from engine.dsm import DsmEngine
from engine.kernels import Kernels, TorchKernels

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


def load_engine(folder: Path = BUILTIN, *, capacity: int = 16, device: str = "cpu", kernels: str = "auto") -> DsmEngine:
    """Load a model. kernels: ``native`` (C++ on the CPU), ``torch``, or ``auto`` (native where it can be).

    Raises:
        CheckpointError, UnsupportedModel: the folder cannot be used.
        BuildError: ``native`` was demanded and cannot be built.
    """
    model = load_checkpoint(folder)
    place = torch.device(device)
    chosen = _native(model, capacity, kernels) if place.type == "cpu" and kernels != "torch" else None
    row_by_row = place.type == "cpu"
    return DsmEngine(
        model, model_info(model), chosen or TorchKernels(model, capacity, place, row_by_row), capacity, place
    )


def _native(model: Checkpoint, capacity: int, kernels: str) -> Kernels | None:
    try:
        if native.supports(model):
            return native.NativeKernels(model, capacity, capacity)
        reason = "the model's widths are not multiples of 16"
    except BuildError as error:
        if kernels == "native":
            raise
        reason = str(error)
    log.warning("native kernels are not used, speech is several times slower: %s", reason)
    return None
