"""A checkpoint folder in Kyutai's layout -> its parts, with the spectral codec's weights or Mimi's."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine.codec.mimi.config import PUBLISHED, MimiConfig, load_mimi_config
from engine.codec.mimi.weights import MimiWeights, load_mimi
from engine.config import FRAME_RATE, ModelConfig, SpectralConfig, load_spectral_config
from engine.errors import CheckpointError, UnsupportedModel
from engine.language import BackboneWeights, ConditionerWeights, DepthWeights, LanguageModel, read_language_model
from engine.manifest import load_model_config
from engine.tensors import TensorFile


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """A causal ConvNeXt block of the codec."""

    taps: Tensor
    """[kernel, dim], oldest first."""
    taps_bias: Tensor
    norm: Tensor
    norm_bias: Tensor
    up: Tensor
    up_bias: Tensor
    down: Tensor
    down_bias: Tensor
    gamma: Tensor


@dataclass(frozen=True, slots=True)
class SpectralWeights:
    codebooks: tuple[Tensor, ...]
    project: tuple[Tensor, Tensor]
    frame_blocks: tuple[BlockWeights, ...]
    expand: tuple[Tensor, Tensor]
    sub_blocks: tuple[BlockWeights, ...]
    norm: tuple[Tensor, Tensor]
    head: tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model with the spectral codec."""

    folder: Path
    config: ModelConfig
    codec: SpectralConfig
    backbone: BackboneWeights
    depth: DepthWeights
    conditioners: tuple[ConditionerWeights, ...]
    spectral: SpectralWeights
    digest: str
    """SHA-256 over the names and contents of the folder's files."""


@dataclass(frozen=True, slots=True)
class MimiCheckpoint:
    """A model with the Mimi codec, as Kyutai publishes it."""

    folder: Path
    config: ModelConfig
    codec: MimiConfig
    backbone: BackboneWeights
    depth: DepthWeights
    conditioners: tuple[ConditionerWeights, ...]
    mimi: MimiWeights
    digest: str


def load_language_model(
    folder: Path, codebooks: int | None = None, derived: torch.dtype = torch.float32
) -> LanguageModel:
    """Read the language model alone. codebooks: generate only so many; derived: precision of projected tables.

    Raises:
        CheckpointError: a file or tensor is missing, misshapen, damaged or left over.
        UnsupportedModel: the configuration asks for what this engine does not run.
    """
    config = load_model_config(folder, codebooks)
    return read_language_model(TensorFile.read(folder / config.lm_name, derived), config)


def load_mimi_checkpoint(
    folder: Path, codebooks: int | None = None, derived: torch.dtype = torch.float32
) -> MimiCheckpoint:
    """Read a folder as Kyutai publishes it (see ``load_language_model``).

    Raises:
        CheckpointError: a file or tensor is missing, misshapen, damaged or left over.
        UnsupportedModel: the configuration asks for what this engine does not run.
    """
    lm = load_language_model(folder, codebooks, derived)
    config, codec = lm.config, load_codec_config(folder, lm.config)
    mimi = load_mimi(folder / config.codec_name, codec, config.generated)
    total = digest(folder, mimi_files(config))
    return MimiCheckpoint(folder, config, codec, lm.backbone, lm.depth, lm.conditioners, mimi, total)


def load_codec_config(folder: Path, config: ModelConfig) -> MimiConfig:
    """Of the Mimi that belongs to a language model. Raises as ``load_mimi_checkpoint``."""
    codec = load_mimi_config(folder / config.codec_config_name) if config.codec_config_name else PUBLISHED
    if codec.bins != config.card:
        raise UnsupportedModel("card", config.card)
    if codec.frame_rate != FRAME_RATE:
        raise UnsupportedModel("frame_rate", codec.frame_rate)
    return codec


def mimi_files(config: ModelConfig) -> tuple[str, ...]:
    """Names of the files of a model with Mimi."""
    names = ("config.json", config.lm_name, config.codec_name, config.tokenizer_name)
    return (*names, config.codec_config_name) if config.codec_config_name else names


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a folder in Kyutai's layout with a spectral codec.

    Raises:
        CheckpointError: a file or tensor is missing, misshapen, damaged or left over.
        UnsupportedModel: the configuration asks for what this engine does not run.
    """
    codec, lm = load_spectral_config(folder), load_language_model(folder)
    config = lm.config
    tables = TensorFile.read(folder / config.codec_name)
    spectral = _spectral(tables, codec)
    tables.all_taken()
    names = ("config.json", "codec.json", config.lm_name, config.codec_name, config.tokenizer_name)
    return Checkpoint(folder, config, codec, lm.backbone, lm.depth, lm.conditioners, spectral, digest(folder, names))


def _spectral(tensors: TensorFile, c: SpectralConfig) -> SpectralWeights:
    def linear(name: str, outputs: int, inputs: int) -> tuple[Tensor, Tensor]:
        at = f"decoder.{name}"
        return tensors.take(f"{at}.weight", outputs, inputs), tensors.take(f"{at}.bias", outputs)

    def block(name: str, dim: int, hidden: int, kernel: int) -> BlockWeights:
        at = f"decoder.{name}"
        taps = tensors.take(f"{at}.dw.weight", dim, 1, kernel).reshape(dim, kernel).T.contiguous()
        taps_bias = tensors.take(f"{at}.dw.bias", dim)
        norm, norm_bias = tensors.take(f"{at}.n.weight", dim), tensors.take(f"{at}.n.bias", dim)
        up, down = linear(f"{name}.a", hidden, dim), linear(f"{name}.b", dim, hidden)
        return BlockWeights(taps, taps_bias, norm, norm_bias, *up, *down, tensors.take(f"{at}.g", dim))

    return SpectralWeights(
        codebooks=tuple(tensors.take(f"quantizer.{q}.embedding", c.bins, c.latent_dim) for q in range(c.codebooks)),
        project=linear("pd", c.frame_dim, c.latent_dim),
        frame_blocks=tuple(
            block(f"c1.{i}", c.frame_dim, c.frame_hidden, c.frame_kernel) for i in range(c.frame_layers)
        ),
        expand=linear("up", c.subframes * c.dim, c.frame_dim),
        sub_blocks=tuple(block(f"c2.{i}", c.dim, c.hidden, c.kernel) for i in range(c.layers)),
        norm=(tensors.take("decoder.n.weight", c.dim), tensors.take("decoder.n.bias", c.dim)),
        head=linear("h", c.n_fft + 2, c.dim),
    )


def digest(folder: Path, names: tuple[str, ...]) -> str:
    """SHA-256 over the names and contents of a folder's files. Raises CheckpointError."""
    total = hashlib.sha256()
    for name in sorted(names):
        path = folder / name
        try:
            with path.open("rb") as file:
                total.update(name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise CheckpointError(str(path), f"cannot be read ({error.strerror})") from error
    return total.hexdigest()
