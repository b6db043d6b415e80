"""A model's weights as the phases of ``cuda_ext`` read them: structures that point at the tensors, on their device.

Matrices stay where and as they are (float32, float16, bfloat16, or eight bits with a scale a row); norms, scales and
biases become float32. What the phases do not compute is refused by name, and torch computes it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cuda_ext import device as d
from engine.config import ModelConfig, SpectralConfig, TransformerConfig
from engine.language import BackboneWeights, CrossWeights, DepthLayerWeights, DepthWeights, LayerWeights
from engine.layers import NORM_EPS, NORM_EPSILONS, Int8Matrix, rope_frequencies
from engine.ops import KINDS

ROPES = {"rope": d.ROPE_PAIRS, "rope_concat": d.ROPE_HALVES, "none": d.NO_ROPE}


def _refused_layer(name: str, c: TransformerConfig, positions: Sequence[str]) -> str | None:
    for key, value, known in (("norm", c.norm, ["rms_norm_f32"]), ("gating", c.gating, ["silu"])):
        if value not in known:
            return f"{name} {key} {value!r}"
    if c.positions not in positions:
        return f"{name} positional embedding {c.positions!r}"
    if any(width % d.VECTOR for width in (c.dim, c.hidden)):
        return f"{name} widths that are no multiples of {d.VECTOR}"
    return None


def depth_refused(config: ModelConfig) -> str | None:
    """What of the depth transformer the phases do not compute; None: they compute it."""
    if config.depth_norm not in (None, "rms_norm_f32"):
        return f"depth norm {config.depth_norm!r} before the heads"
    if any(width % d.VECTOR for width in config.set_hidden):
        return f"depth widths that are no multiples of {d.VECTOR}"
    if config.generated > d.MOST_BOOKS:
        return f"{config.generated} codebooks"
    return _refused_layer("depth", config.depth, ("none",))


def backbone_refused(config: ModelConfig) -> str | None:
    """As ``depth_refused``, for the backbone."""
    if config.context > d.MOST_POSITIONS:
        return f"a context of {config.context}"
    width = config.backbone.dim // config.backbone.heads
    if width % d.VECTOR or width > 256 * d.VECTOR:
        return f"backbone heads of {width}"
    return _refused_layer("backbone", config.backbone, tuple(ROPES))


def spectral_refused(c: SpectralConfig) -> str | None:
    """As ``depth_refused``, for the end of the spectral codec."""
    return None if c.n_fft <= min(d.MOST_POINTS, c.frame_samples) else f"a transform of {c.n_fft} points"


@dataclass(slots=True)
class Keeper:
    """Holds what the structures point at."""

    device: torch.device
    kept: list[object] = field(default_factory=list)

    def floats(self, values: Tensor | None) -> int | None:
        """Address of a contiguous float32 copy on the device."""
        if values is None:
            return None
        copy = values.detach().to(self.device, torch.float32).contiguous().clone()
        self.kept.append(copy)
        return copy.data_ptr()

    def matrix(self, weight: Tensor | Int8Matrix) -> d.Matrix:
        """weight: [outputs, inputs]"""
        scale = self.floats(weight.scale) if isinstance(weight, Int8Matrix) else None
        data = (weight.weight if isinstance(weight, Int8Matrix) else weight).contiguous()
        if data.data_ptr() % 16:  # a view into a file's middle
            data = data.clone()
        assert data.shape[1] % d.VECTOR == 0
        self.kept.append(data)
        return d.Matrix(data.data_ptr(), scale, KINDS[data.dtype], data.shape[1], data.shape[0], 0)

    def table(self, weight: Tensor) -> int:
        data = weight.contiguous()
        self.kept.append(data)
        return data.data_ptr()

    def array(self, items: Sequence[ctypes.Structure]) -> int:
        """Address of the structures on the device."""
        raw = b"".join(bytes(item) for item in items)
        block = torch.frombuffer(bytearray(raw), dtype=torch.uint8).to(self.device)
        self.kept.append(block)
        return block.data_ptr()

    def host_array(self, items: Sequence[ctypes.Structure]) -> int:
        block = (type(items[0]) * len(items))(*items)
        self.kept.append(block)
        return ctypes.addressof(block)


@dataclass(frozen=True, slots=True)
class Packed:
    model: ctypes.Structure
    keeper: Keeper

    @property
    def handle(self) -> int:
        return ctypes.addressof(self.model)


def pack_depth(weights: DepthWeights, config: ModelConfig, device: torch.device) -> Packed:
    """weights: on ``device``, in the precision of the run."""
    k, c = Keeper(device), config.depth
    matrices = [[_depth_set(k, layer, chosen) for chosen in range(config.depth_sets)] for layer in weights.layers]
    layers = [
        d.DepthLayer(k.floats(w.norm1), k.floats(w.norm2), k.floats(w.scale1), k.floats(w.scale2))
        for w in weights.layers
    ]
    books = [_depth_book(k, weights, config, book) for book in range(config.generated)]
    pointers = (k.array(layers), k.array([one for row in matrices for one in row]), k.array(books))
    sizes = (c.layers, config.depth_sets, config.generated, c.dim, c.heads, config.card, max(config.set_hidden))
    return Packed(d.Depth(*pointers, *sizes, NORM_EPS), k)


def _depth_set(k: Keeper, w: DepthLayerWeights, chosen: int) -> d.DepthSet:
    return d.DepthSet(*(k.matrix(part[chosen]) for part in (w.qkv, w.out, w.up, w.down)))


def _depth_book(k: Keeper, w: DepthWeights, config: ModelConfig, book: int) -> d.DepthBook:
    chosen = config.depth_schedule[book]
    table = w.audio[book - 1] if book else None
    return d.DepthBook(
        k.matrix(w.inputs[chosen if config.depth_inputs else 0]),
        k.matrix(w.heads[book]),
        None if table is None else k.table(table),
        k.floats(w.biases[book] if w.biases else None),
        k.floats(w.norms[book] if w.norms else None),
        chosen,
        0 if table is None else KINDS[table.dtype],
    )


def pack_backbone(weights: BackboneWeights, config: ModelConfig, rows: int, kv: Tensor) -> Packed:
    """weights: on the device of ``kv``, in the precision of the run. rows: of ``kv``, the rings of keys and values."""
    k, c = Keeper(kv.device), config.backbone
    layers = [_layer(k, w) for w in weights.layers]
    frequencies = k.floats(rope_frequencies(c.dim // c.heads, c.max_period))
    pointers = (k.host_array(layers), k.floats(weights.out_norm), frequencies)
    sizes = (c.layers, c.dim, c.heads, config.context, rows, KINDS[kv.dtype], ROPES[c.positions])
    return Packed(d.Backbone(*pointers, *sizes, NORM_EPS, NORM_EPSILONS["layer_norm"], c.hidden), k)


def _layer(k: Keeper, w: LayerWeights) -> d.BackboneLayer:
    floats = (k.floats(part) for part in (w.norm1, w.norm2, w.scale1, w.scale2))
    matrices = (k.matrix(part) for part in (w.qkv, w.out, w.up, w.down))
    return d.BackboneLayer(*floats, *matrices, d.Cross() if w.cross is None else _cross(k, w.cross))


def _cross(k: Keeper, w: CrossWeights) -> d.Cross:
    return d.Cross(k.floats(w.norm), k.floats(w.scale), k.matrix(w.q), k.matrix(w.out))


def circle(n: int, device: torch.device) -> Tensor:
    """Cosine and sine of a full turn in n parts, float32 [n, 2]."""
    angle = 2 * math.pi * torch.arange(n, dtype=torch.float64) / n
    return torch.stack([angle.cos(), angle.sin()], dim=1).float().to(device)
