"""A checkpoint folder -> named weights, as stored. Tensors are asked for by name and shape; none may be left."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.config import ModelConfig, SpectralConfig, load_model_config, load_spectral_config
from engine.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One backbone layer; matrices are [out, in]."""

    norm1: Tensor
    qkv: Tensor
    out: Tensor
    norm2: Tensor
    up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class TextTables:
    """Text embeddings with their projections multiplied in: float32 [text_card + 2, dim], the last row zero."""

    main: Tensor
    second: Tensor


@dataclass(frozen=True, slots=True)
class BackboneWeights:
    audio: Tensor
    """float32 [codebooks * (card + 1) + 1, dim]: the codebooks' embeddings one after another, the last row zero."""
    text: TextTables
    layers: tuple[LayerWeights, ...]
    out_norm: Tensor
    text_head: Tensor


@dataclass(frozen=True, slots=True)
class DepthLayerWeights:
    """One depth layer; the norms serve all codebooks, the matrices come one a weight set."""

    norm1: Tensor
    norm2: Tensor
    qkv: tuple[Tensor, ...]
    out: tuple[Tensor, ...]
    up: tuple[Tensor, ...]
    down: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class DepthWeights:
    inputs: tuple[Tensor, ...]
    """One a weight set: [depth_dim, dim]."""
    text: TextTables
    audio: tuple[Tensor, ...]
    """For each codebook but the last: [card + 1, depth_dim]."""
    layers: tuple[DepthLayerWeights, ...]
    heads: tuple[Tensor, ...]


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
    folder: Path
    config: ModelConfig
    codec: SpectralConfig
    backbone: BackboneWeights
    depth: DepthWeights
    spectral: SpectralWeights
    digest: str
    """SHA-256 over the names and contents of the folder's files."""


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a folder in Kyutai's layout with a spectral codec.

    Raises:
        CheckpointError: a file or tensor is missing, misshapen, damaged or left over.
        UnsupportedModel: the configuration asks for what this engine does not run.
    """
    config, codec = load_model_config(folder), load_spectral_config(folder)
    lm = _Tensors.read(folder / config.lm_name)
    backbone, depth = _backbone(lm, config), _depth(lm, config)
    lm.all_taken()
    tables = _Tensors.read(folder / config.codec_name)
    spectral = _spectral(tables, codec)
    tables.all_taken()
    names = ("config.json", "codec.json", config.lm_name, config.codec_name, config.tokenizer_name)
    return Checkpoint(folder, config, codec, backbone, depth, spectral, _digest(folder, names))


@dataclass(slots=True)
class _Tensors:
    path: Path
    left: dict[str, Tensor]

    @classmethod
    def read(cls, path: Path) -> _Tensors:
        try:
            with safe_open(path, framework="pt") as file:
                return cls(path, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise CheckpointError(str(path), f"cannot be read as safetensors ({error})") from error

    def take(self, name: str, *shape: int) -> Tensor:
        tensor = self.left.pop(name, None)
        if tensor is None:
            raise CheckpointError(str(self.path), f"tensor {name!r} is missing")
        if tuple(tensor.shape) != shape:
            raise CheckpointError(str(self.path), f"tensor {name!r} is {list(tensor.shape)}, expected {list(shape)}")
        return tensor

    def all_taken(self) -> None:
        if self.left:
            raise CheckpointError(str(self.path), f"unexpected tensor {sorted(self.left)[0]!r}")


def _text_tables(tensors: _Tensors, prefix: str, text_card: int, dim: int) -> TextTables:
    """moshi ``lm_utils.py`` ScaledEmbedding, demuxed: out1(embedding[left]) + out2(embedding[right])."""
    rows = tensors.take(f"{prefix}.weight", text_card + 1, dim).float()
    tables = [rows @ tensors.take(f"{prefix}.{name}.weight", dim, dim).float().T for name in ("out1", "out2")]
    zero = torch.zeros(1, dim)
    return TextTables(torch.cat([tables[0], zero]), torch.cat([tables[1], zero]))


def _backbone(tensors: _Tensors, config: ModelConfig) -> BackboneWeights:
    c, dim = config.backbone, config.backbone.dim

    def layer(index: int) -> LayerWeights:
        at = f"transformer.layers.{index}"
        return LayerWeights(
            norm1=tensors.take(f"{at}.norm1.alpha", 1, 1, dim).reshape(dim),
            qkv=tensors.take(f"{at}.self_attn.in_projs.0.weight", 3 * dim, dim),
            out=tensors.take(f"{at}.self_attn.out_projs.0.weight", dim, dim),
            norm2=tensors.take(f"{at}.norm2.alpha", 1, 1, dim).reshape(dim),
            up=tensors.take(f"{at}.gating.linear_in.weight", 2 * c.hidden, dim),
            down=tensors.take(f"{at}.gating.linear_out.weight", dim, c.hidden),
        )

    audio = [tensors.take(f"emb.{book}.weight", config.card + 1, dim).float() for book in range(config.codebooks)]
    return BackboneWeights(
        audio=torch.cat([*audio, torch.zeros(1, dim)]),
        text=_text_tables(tensors, "text_emb", config.text_card, dim),
        layers=tuple(layer(index) for index in range(c.layers)),
        out_norm=tensors.take("out_norm.alpha", 1, 1, dim).reshape(dim),
        text_head=tensors.take("text_linear.weight", config.text_card_out, dim),
    )


def _depth(tensors: _Tensors, config: ModelConfig) -> DepthWeights:
    c, dim, sets = config.depth, config.depth.dim, range(config.depth_sets)

    def layer(index: int) -> DepthLayerWeights:
        at = f"depformer.layers.{index}"
        return DepthLayerWeights(
            norm1=tensors.take(f"{at}.norm1.alpha", 1, 1, dim).reshape(dim),
            norm2=tensors.take(f"{at}.norm2.alpha", 1, 1, dim).reshape(dim),
            qkv=tuple(tensors.take(f"{at}.self_attn.in_projs.{s}.weight", 3 * dim, dim) for s in sets),
            out=tuple(tensors.take(f"{at}.self_attn.out_projs.{s}.weight", dim, dim) for s in sets),
            up=tuple(tensors.take(f"{at}.gating.{s}.linear_in.weight", 2 * c.hidden, dim) for s in sets),
            down=tuple(tensors.take(f"{at}.gating.{s}.linear_out.weight", dim, c.hidden) for s in sets),
        )

    books = range(config.codebooks)
    return DepthWeights(
        inputs=tuple(tensors.take(f"depformer_in.{s}.weight", dim, config.backbone.dim) for s in sets),
        text=_text_tables(tensors, "depformer_text_emb", config.text_card, dim),
        audio=tuple(tensors.take(f"depformer_emb.{book}.weight", config.card + 1, dim) for book in books[:-1]),
        layers=tuple(layer(index) for index in range(c.layers)),
        heads=tuple(tensors.take(f"linears.{book}.weight", config.card, dim) for book in books),
    )


def _spectral(tensors: _Tensors, c: SpectralConfig) -> SpectralWeights:
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


def _digest(folder: Path, names: tuple[str, ...]) -> str:
    total = hashlib.sha256()
    for name in sorted(names):
        path = folder / name
        try:
            with path.open("rb") as file:
                total.update(name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise CheckpointError(str(path), f"cannot be read ({error.strerror})") from error
    return total.hexdigest()
