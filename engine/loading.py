"""A checkpoint folder -> a ready engine on a device."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cuda_ext.build import BuildError
from cuda_ext.kernels import has_tiles
from engine import native
from engine.casting import Casting
from engine.checkpoint import (
    Checkpoint,
    MimiCheckpoint,
    digest,
    load_checkpoint,
    load_codec_config,
    load_mimi_checkpoint,
    mimi_files,
)
from engine.codec.mimi.config import MimiConfig
from engine.codec.mimi.encoder import encode_clip
from engine.codec.streams import CodecStream
from engine.config import MOST_SPEAKERS, ModelConfig, SpectralConfig
from engine.contract import ModelInfo
from engine.dsm import DsmEngine
from engine.errors import CheckpointError, KernelError, UnsupportedModel, UnusableVoice
from engine.kernels import moved
from engine.manifest import load_model_config
from engine.native import NativeKernels
from engine.placing import Steps, device_kernels, queue_of
from engine.tensors import stored_dtype
from engine.voices import VoicedOptions, VoiceLibrary, open_library

log = logging.getLogger(__name__)

BUILTIN = Path(__file__).parent / "builtin"
"""Folder of the voice that is shipped with the package."""
OPTIONS = frozenset(
    {"seed", "temperature", "top_k", "padding_bonus", "padding_between", "max_padding", "voice", "language"}
)


Precision = Literal["auto", "float32", "fixed16", "bfloat16", "int8"]


def model_info(model: Checkpoint | MimiCheckpoint, library: VoiceLibrary | None = None) -> ModelInfo:
    """library: the voices of a model that has any."""
    return _info(model.folder, model.config, model.codec, model.digest, library)


def describe(folder: Path, voices: Path | str | None = None, codebooks: int | None = None) -> ModelInfo:
    """What ``load_engine`` would make of a folder, without loading a model with Mimi (but its files are read once, for
    the digest). Raises as ``load_engine``."""
    if (folder / "codec.json").exists():
        return model_info(load_checkpoint(folder))
    config = load_model_config(folder, codebooks)
    codec = load_codec_config(folder, config)
    return _info(folder, config, codec, digest(folder, mimi_files(config)), _library(folder, config, voices))


def tokenizer_file(folder: Path) -> Path:
    """The SentencePiece model of a checkpoint folder. Raises CheckpointError or UnsupportedModel."""
    path = folder / load_model_config(folder).tokenizer_name
    if not path.is_file():
        raise CheckpointError(str(path), "is missing")
    return path


def _info(
    folder: Path, config: ModelConfig, codec: SpectralConfig | MimiConfig, total: str, library: VoiceLibrary | None
) -> ModelInfo:
    sampling = config.sampling
    builtin = folder.resolve() == BUILTIN.resolve()
    guided = config.guided or config.guidance_values
    return ModelInfo(
        name="antiphon-builtin-1" if builtin else folder.name,
        digest=total,
        voices=(library.names if library else ()) or (() if config.hears_voices else ("default",)),
        languages=_languages(folder.name),
        sample_rate=codec.sample_rate,
        frame_samples=codec.frame_samples,
        defaults=VoicedOptions(
            seed=0,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            temperature_text=sampling.temperature_text,
            top_k_text=sampling.top_k_text,
            max_padding=config.text.max_padding,
        ),
        options=OPTIONS | {"cfg"} if guided else OPTIONS,
        speakers=MOST_SPEAKERS if config.hears_voices else 1,
    )


def _languages(name: str) -> tuple[str, ...]:
    """By the name's ending, as Kyutai names its models (``tts-1.6b-en_fr``, ``tts-0.75b-en-public``)."""
    found = re.search(r"-((?:[a-z]{2}_)*[a-z]{2})(?:-|$)", name)
    return tuple(found[1].split("_")) if found else ("en",)


def load_engine(
    folder: Path = BUILTIN,
    *,
    capacity: int = 16,
    device: str = "cpu",
    kernels: Literal["auto", "native", "torch"] = "auto",
    precision: Precision = "auto",
    voices: Path | str | None = None,
    codebooks: int | None = None,
    threads: int | None = None,
    steps: Steps = "auto",
) -> DsmEngine:
    """Load a model: one with the spectral codec if the folder has a ``codec.json``, otherwise one with Mimi.

    kernels: ``native`` (C++ on the CPU; the phases of ``cuda_ext`` on CUDA), ``torch``, or ``auto`` (on the CPU native
    where it can be, on CUDA torch). steps: how they are run (``engine/placing.py``). precision: of matrix products
    (``engine/native.py``), or of the language model's weights too: ``bfloat16``, or ``int8`` for the matrices and what
    the file holds for the rest. ``auto`` takes ``fixed16`` where the CPU has matrix tiles, and for a model with Mimi
    what its file holds. voices: a folder or ``hf://`` repository; without it the folder's ``voices``. codebooks:
    generate only so many. threads: that share the rows of a native step; None: two where there are two cores; 0: the
    step's operations are called one by one (the slow twin).

    Raises:
        CheckpointError, UnsupportedModel: the folder cannot be used.
        KernelError: ``native`` or a precision was demanded that this machine or model does not have.
    """
    place = torch.device(device)
    if not (folder / "codec.json").exists():
        if precision == "fixed16" or (kernels == "native" and place.type == "cpu"):
            raise KernelError("there are no native kernels for models with the Mimi codec")
        return load_mimi_engine(folder, capacity, place, precision, voices, codebooks, kernels == "native", steps)
    model = load_checkpoint(folder)
    if codebooks not in (None, model.config.codebooks):
        raise UnsupportedModel("n_q", codebooks)
    graphs = queue_of(place, steps)
    wanted = place.type == "cpu" and kernels != "torch" and graphs is None
    chosen = _native(model, capacity, kernels, precision) if wanted else None
    if chosen is None and precision == "fixed16":
        raise KernelError("fixed16 needs the native kernels")
    if chosen is None and precision in ("bfloat16", "int8"):
        raise KernelError("without native kernels models with the spectral codec are run in float32")
    ready = chosen or device_kernels(model, capacity + (graphs is not None), place, kernels == "native")
    casting = Casting(model.config, VoiceLibrary(), conditions=None)
    hands = min(2, len(os.sched_getaffinity(0))) if threads is None else threads
    return DsmEngine(model, model_info(model), ready, capacity, place, casting, graphs, threads=hands)


def load_mimi_engine(
    folder: Path,
    capacity: int,
    device: torch.device,
    precision: Precision = "auto",
    voices: Path | str | None = None,
    codebooks: int | None = None,
    native_kernels: bool = False,
    steps: Steps = "auto",
) -> DsmEngine:
    """As ``load_engine``, for a folder as Kyutai publishes it."""
    config = load_model_config(folder, codebooks)
    dtype = _dtype(folder / config.lm_name, precision)
    model = load_mimi_checkpoint(folder, codebooks, dtype)
    return torch_engine(
        model,
        capacity,
        device,
        dtype=dtype,
        voices=voices,
        int8=precision == "int8",
        native_kernels=native_kernels,
        steps=steps,
    )


def torch_engine(
    model: MimiCheckpoint,
    capacity: int,
    device: torch.device,
    *,
    dtype: torch.dtype = torch.float32,
    voices: Path | str | None = None,
    codec: CodecStream | None = None,
    row_by_row: bool | None = None,
    int8: bool = False,
    native_kernels: bool = False,
    steps: Steps = "auto",
) -> DsmEngine:
    """codec: in the place of the model's own. row_by_row, int8: as ``TorchKernels``; None: on the CPU."""
    graphs = queue_of(device, steps)
    slots = capacity + (graphs is not None)
    kernels = device_kernels(model, slots, device, native_kernels, row_by_row, dtype, codec, int8)
    if graphs is not None and kernels.conditions is not None:
        kernels.conditions.reserve()
    library = _library(model.folder, model.config, voices)
    casting = Casting(model.config, library, kernels.conditions, _encoder(model, device))
    return DsmEngine(model, model_info(model, library), kernels, capacity, device, casting, graphs)


def _library(folder: Path, config: ModelConfig, voices: Path | str | None) -> VoiceLibrary:
    if voices is not None:
        return open_library(voices, config)
    own = folder / "voices"
    return open_library(own, config) if own.is_dir() else VoiceLibrary()


def _encoder(model: MimiCheckpoint, device: torch.device) -> Callable[[Path], Tensor]:
    """Recordings -> codes int64 [codebooks, frames]; moshi leaves the last two frames out (``get_prefix``)."""
    # What is not used must not be held: the language model's file may have been copied to another precision.
    stored, codec, books = (model.mimi.encoder if model.mimi else None), model.codec, model.config.generated

    def encode(path: Path) -> Tensor:
        assert stored is not None
        mono = torch.from_numpy(_recording(path, codec.sample_rate))
        weights = moved(stored, device, torch.float32)
        return encode_clip(weights, codec, mono.to(device)[None], books)[0, :, :-2].cpu()

    return encode


def _recording(path: Path, rate: int) -> NDArray[np.float32]:
    """One channel at ``rate``. Raises UnusableVoice."""
    import soundfile
    import soxr

    try:
        samples, own = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError) as error:
        raise UnusableVoice(path.stem, f"cannot be read as a recording ({error})") from error
    return np.asarray(soxr.resample(samples.mean(axis=1), own, rate), dtype=np.float32)


def _dtype(path: Path, precision: Precision) -> torch.dtype:
    if precision in ("auto", "int8"):
        return stored_dtype(path)
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def _native(model: Checkpoint, capacity: int, kernels: str, precision: str) -> NativeKernels | None:
    try:
        if native.supports(model):
            return NativeKernels(model, capacity, capacity, _precision(precision))
        reason = "the model's structure or widths are not those of the kernels"
    except BuildError as error:
        reason = str(error)
    if kernels == "native":
        raise KernelError(reason)
    log.warning("native kernels are not used, speech is several times slower: %s", reason)
    return None


def _precision(wanted: str) -> native.Precision:
    if wanted != "auto":
        return cast(native.Precision, wanted)
    return "fixed16" if has_tiles() else "float32"
