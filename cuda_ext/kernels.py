"""ctypes binding of the CPU kernels: structures as in the .cpp files, weights packed into panels of 16 columns.

Tensors handed to a kernel are contiguous and on the CPU; the packed objects keep every tensor that C++ points at alive.
Calls release the interpreter lock.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from cuda_ext import build

LANES = 16
FLOATS = ctypes.c_void_p
I32, I64, F32, U32, U64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_uint32, ctypes.c_uint64


class LinearStruct(ctypes.Structure):
    _fields_ = [
        ("weight", FLOATS),
        ("bias", FLOATS),
        ("inputs", I32),
        ("panels", I32),
        ("kind", I32),
        ("outputs", I32),
        ("scales", FLOATS),
    ]


class DrawStruct(ctypes.Structure):
    """sampling.h ``Draw``; also the row layout of the draws tensor (24 bytes)."""

    _fields_ = [("seed", U64), ("generation", U32), ("step", U32), ("temperature", F32), ("top_k", I32)]


class LayerStruct(ctypes.Structure):
    _fields_ = [
        ("norm1", FLOATS),
        ("qkv", LinearStruct),
        ("out", LinearStruct),
        ("norm2", FLOATS),
        ("up", LinearStruct),
        ("down", LinearStruct),
    ]


class BackboneStruct(ctypes.Structure):
    _fields_ = [
        ("layers", ctypes.POINTER(LayerStruct)),
        ("out_norm", FLOATS),
        ("frequencies", FLOATS),
        ("layer_count", I32),
        ("dim", I32),
        ("heads", I32),
        ("hidden", I32),
        ("context", I32),
        ("capacity", I32),
        ("norm_eps", F32),
        ("byte_cache", I32),
    ]


class DepthLayerStruct(ctypes.Structure):
    _fields_ = [
        ("norm1", FLOATS),
        ("norm2", FLOATS),
        ("qkv", ctypes.POINTER(LinearStruct)),
        ("out", ctypes.POINTER(LinearStruct)),
        ("up", ctypes.POINTER(LinearStruct)),
        ("down", ctypes.POINTER(LinearStruct)),
    ]


class DepthStruct(ctypes.Structure):
    _fields_ = [
        ("layers", ctypes.POINTER(DepthLayerStruct)),
        ("inputs", ctypes.POINTER(LinearStruct)),
        ("heads_out", ctypes.POINTER(LinearStruct)),
        ("embeddings", ctypes.POINTER(FLOATS)),
        ("norms", ctypes.POINTER(FLOATS)),
        ("schedule", ctypes.POINTER(I32)),
        ("layer_count", I32),
        ("dim", I32),
        ("heads", I32),
        ("hidden", I32),
        ("codebooks", I32),
        ("card", I32),
        ("main_dim", I32),
        ("norm_eps", F32),
    ]


class BlockStruct(ctypes.Structure):
    _fields_ = [
        ("taps", FLOATS),
        ("taps_bias", FLOATS),
        ("norm", FLOATS),
        ("norm_bias", FLOATS),
        ("up", LinearStruct),
        ("down", LinearStruct),
        ("gamma", FLOATS),
    ]


class SpectralStruct(ctypes.Structure):
    _fields_ = [
        ("frame_blocks", ctypes.POINTER(BlockStruct)),
        ("sub_blocks", ctypes.POINTER(BlockStruct)),
        ("codebooks", ctypes.POINTER(FLOATS)),
        ("project", LinearStruct),
        ("expand", LinearStruct),
        ("head", LinearStruct),
        ("norm", FLOATS),
        ("norm_bias", FLOATS),
        ("window", FLOATS),
        ("stage1", FLOATS),
        ("twiddle", FLOATS),
        ("stage2", FLOATS),
        *((name, I32) for name in ("codebook_count", "latent", "frame_dim", "frame_hidden", "frame_layers")),
        *((name, I32) for name in ("frame_kernel", "subframes", "dim", "hidden", "layers", "kernel", "fft", "hop")),
        *((name, I32) for name in ("radix1", "radix2")),
        *((name, F32) for name in ("log_magnitude_max", "block_eps", "head_eps")),
    ]


class TablesStruct(ctypes.Structure):
    _fields_ = [("main", FLOATS), ("second", FLOATS)]


class FrameStruct(ctypes.Structure):
    """frame.cpp ``Frame``"""

    _fields_ = [
        ("backbone", ctypes.POINTER(BackboneStruct)),
        ("text_head", ctypes.POINTER(LinearStruct)),
        ("depth", ctypes.POINTER(DepthStruct)),
        ("spectral", ctypes.POINTER(SpectralStruct)),
        ("audio", FLOATS),
        ("text", TablesStruct),
        ("depth_text", TablesStruct),
        *((name, ctypes.c_void_p) for name in ("state", "tokens", "begins", "entries", "history", "whole", "real")),
        *((name, ctypes.c_void_p) for name in ("base", "kv", "codec", "delays")),
        *((name, I32) for name in ("text_card", "codebooks", "card", "max_delay", "delay_steps", "tail", "warm_up")),
        *((name, I32) for name in ("padding", "ahead", "token_ring", "entry_ring", "samples")),
    ]


class OutputsStruct(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("report", "pcm", "text_logits", "tokens", "audio_logits")]


class ForcedStruct(ctypes.Structure):
    _fields_ = [("text", ctypes.c_void_p), ("audio", ctypes.c_void_p)]


def ring_bytes(context: int, head_dim: int, whole: bool) -> int:
    """Bytes of one head's ring of keys, or of values (attention.h)."""
    places = -(-context // LANES) * LANES
    return places * (head_dim + 4 if whole else head_dim * 4)


FLOAT_PANELS, HALF_PANELS, FIXED_16, FIXED_8 = 0, 1, 2, 3
"""``Kind`` of matrix.h."""
PLAINLY, BY_DOTS, BY_TILES = 0, 1, 2
"""``Products`` of tile.h."""
FIXED_INPUTS = 64
FIXED_LARGEST = {FIXED_16: 32639, FIXED_8: 127}


@dataclass(slots=True)
class Packer:
    """Copies weights into the kernels' layout and holds them."""

    kept: list[object]
    kind: int | None
    """Of the matrices; None: float16 weights stay float16, others become float32."""

    rounded: torch.dtype | None = None
    """What matrices are rounded to first."""

    @classmethod
    def empty(cls, kind: int | None = None, rounded: torch.dtype | None = None) -> Packer:
        return cls([], kind, rounded)

    def floats(self, values: Tensor) -> int:
        """Address of the values as contiguous float32: a copy only where they are not that already."""
        plain = values.detach().to(torch.float32).contiguous()
        self.kept.append(plain)
        return plain.data_ptr()

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> LinearStruct:
        """weight: [n, k]"""
        n, k = weight.shape
        panels = -(-n // LANES)
        if self.rounded is not None:
            weight = weight.to(self.rounded)
        kind = self.kind
        if kind is None:
            kind = HALF_PANELS if weight.dtype == torch.float16 else FLOAT_PANELS
        scales_at = None
        if kind in FIXED_LARGEST:
            packed, scales = _fixed(weight, panels, kind)
            scales_at = self.floats(scales)
        else:
            packed = _panels(weight, panels, torch.float16 if kind == HALF_PANELS else torch.float32)
        self.kept.append(packed)
        bias_at = None
        if bias is not None:
            wide = torch.zeros(panels * LANES)
            wide[:n] = bias
            bias_at = self.floats(wide)
        return LinearStruct(packed.data_ptr(), bias_at, k, panels, kind, n, scales_at)

    def array(self, kind: type[ctypes.Structure], items: Sequence[object]) -> ctypes.Array[ctypes.Structure]:
        block = (kind * len(items))(*cast(Sequence[Any], items))
        self.kept.append(block)
        return block

    def addresses(self, tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
        block = (FLOATS * len(tensors))(*(self.floats(tensor) for tensor in tensors))
        self.kept.append(block)
        return block

    def integers(self, values: Sequence[int]) -> ctypes.Array[ctypes.c_int32]:
        block = (I32 * len(values))(*values)
        self.kept.append(block)
        return block


def _panels(weight: Tensor, panels: int, dtype: torch.dtype) -> Tensor:
    """[panels, k, 16 columns]"""
    n, k = weight.shape
    padded = torch.zeros(panels * LANES, k, dtype=dtype)
    padded[:n] = weight
    return padded.view(panels, LANES, k).transpose(1, 2).contiguous()


def _fixed(weight: Tensor, panels: int, kind: int) -> tuple[Tensor, Tensor]:
    """int8 [panels, k / 64, parts, 16 groups of inputs, 16 columns, 4] and the columns' scales, [panels * 16]."""
    n, k = weight.shape
    blocks = -(-k // FIXED_INPUTS)
    padded = torch.zeros(panels * LANES, blocks * FIXED_INPUTS, dtype=torch.float64)
    padded[:n, :k] = weight
    scales = padded.abs().amax(dim=1).clamp(min=1e-30) / FIXED_LARGEST[kind]
    whole = (padded / scales[:, None]).round().to(torch.int32)
    high = (whole + 128) >> 8
    parts = [high, whole - (high << 8)] if kind == FIXED_16 else [whole]
    shape = (panels, LANES, blocks, FIXED_INPUTS // 4, 4)
    tiles = [part.to(torch.int8).view(shape).permute(0, 2, 3, 1, 4) for part in parts]
    return torch.stack(tiles, dim=2).contiguous(), scales.float()


@functools.cache
def has_tiles() -> bool:
    """Whether this CPU and operating system have matrix tiles (AMX) for us."""
    return bool(load().antiphon_tiles())


def load() -> ctypes.CDLL:
    """The kernel library, built if need be.

    Raises:
        cuda_ext.build.BuildError: it cannot be built here.
    """
    lib = ctypes.CDLL(str(build.library()))
    pointer = ctypes.c_void_p
    signatures: dict[str, tuple[type | None, list[type]]] = {
        "antiphon_backbone_scratch": (I64, [pointer, I32]),
        "antiphon_backbone": (None, [pointer, I32, pointer, pointer, pointer, pointer, pointer]),
        "antiphon_tiles": (I32, []),
        "antiphon_limit_products": (None, [I32]),
        "antiphon_stage": (pointer, [I32]),
        "antiphon_stage_close": (None, [pointer]),
        "antiphon_frame": (None, [pointer, pointer, I32, pointer, pointer, pointer]),
        "antiphon_linear": (None, [pointer, I32, pointer, I32, pointer, I32]),
        "antiphon_sample": (None, [I32, pointer, I32, I32, pointer, U32, pointer]),
        "antiphon_depth_scratch": (I64, [pointer, I32]),
        "antiphon_depth": (None, [pointer, I32, *[pointer] * 7]),
        "antiphon_spectral_history": (I64, [pointer]),
        "antiphon_spectral_scratch": (I64, [pointer, I32]),
        "antiphon_spectral": (None, [pointer, I32, *[pointer] * 6]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype = result
        function.argtypes = arguments
    lib.antiphon_tiles()
    return lib
