"""Layers as functions, each as moshi computes it (``modules/transformer.py``, ``gating.py``, ``rope.py``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

NORM_EPS = 1e-8
"""Of ``rms_norm_f32``."""
NORM_EPSILONS = {"layer_norm": 1e-5, "layer_norm_f32": 1e-8, "rms_norm": 1e-5, "rms_norm_f32": NORM_EPS}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in ("sigmoid", "tanh", "relu")},
    **{name: getattr(F, name) for name in ("leaky_relu", "elu", "gelu", "silu", "mish", "softsign")},
    "identity": lambda x: x,
}


@dataclass(frozen=True, slots=True)
class Int8Matrix:
    """A matrix in eight bits, one scale a row: ``weight * scale``. It stands where a tensor [out, in] would."""

    weight: Tensor
    """int8 [out, in]"""
    scale: Tensor
    """[out], in the precision of the run."""

    @classmethod
    def of(cls, matrix: Tensor, dtype: torch.dtype) -> Int8Matrix:
        wide = matrix.float()
        scale = (wide.abs().amax(dim=1) / 127.0).clamp(min=1e-12)
        return cls((wide / scale[:, None]).round().to(torch.int8), scale.to(dtype))

    def product(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype)) * self.scale


def linear(x: Tensor, matrix: Tensor | Int8Matrix) -> Tensor:
    """x: [..., in] -> [..., out]"""
    return matrix.product(x) if isinstance(matrix, Int8Matrix) else F.linear(x, matrix)


def rms_norm(x: Tensor, alpha: Tensor) -> Tensor:
    """x: [..., dim]; float32 inside, eps inside the mean, cast last."""
    wide = x.float()
    variance = NORM_EPS + wide.square().mean(-1, keepdim=True)
    return (wide * (alpha.float() * torch.rsqrt(variance))).to(x.dtype)


def norm(x: Tensor, weight: Tensor, kind: str) -> Tensor:
    """x: [..., dim]; weight: [dim] of an RMS norm, [2, dim] (weight, bias) of a layer norm."""
    if kind == "rms_norm_f32":
        return rms_norm(x, weight)
    eps = NORM_EPSILONS[kind]
    if kind == "rms_norm":
        return x * (weight * torch.rsqrt(eps + x.square().mean(-1, keepdim=True)))
    if kind == "layer_norm":
        return F.layer_norm(x, x.shape[-1:], weight[0], weight[1], eps)
    return F.layer_norm(x.float(), x.shape[-1:], weight[0].float(), weight[1].float(), eps).to(x.dtype)


def feed_forward(x: Tensor, up: Tensor, down: Tensor, gating: str) -> Tensor:
    """activation(first half) * second half, or a plain layer with GELU; [..., dim] -> [..., dim]."""
    if gating == "none":
        return linear(F.gelu(linear(x, up)), down)
    first, second = linear(x, up).chunk(2, dim=-1)
    return linear(ACTIVATIONS[gating](first) * second, down)


def residual(x: Tensor, update: Tensor, scale: Tensor | None) -> Tensor:
    """scale: [dim], or None for 1."""
    return x + (update if scale is None else scale * update)


def rope_frequencies(head_dim: int, max_period: float, device: torch.device | None = None) -> Tensor:
    """Radians a step, float32 [head_dim / 2]."""
    index = torch.arange(head_dim // 2, dtype=torch.float32, device=device)
    return torch.exp(index * (-math.log(max_period) * 2 / head_dim))


def rotate(x: Tensor, angle: Tensor, interleaved: bool = True) -> Tensor:
    """Rotary embedding over pairs of neighbours, or of the two halves. x: [rows, heads, head_dim]; angle:
    [rows, head_dim / 2]."""
    cosine, sine = angle.cos()[:, None], angle.sin()[:, None]
    if interleaved:
        pairs = x.float().view(*x.shape[:-1], -1, 2)
        real, imaginary = pairs[..., 0], pairs[..., 1]
    else:
        real, imaginary = x.float().chunk(2, dim=-1)
    out = [real * cosine - imaginary * sine, real * sine + imaginary * cosine]
    joined = torch.stack(out, dim=-1).flatten(-2) if interleaved else torch.cat(out, dim=-1)
    return joined.to(x.dtype)


def sin_embedding(position: Tensor, dim: int, max_period: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """position: int64 [rows] -> [rows, dim] (moshi ``create_sin_embedding``; its last frequency is 1 / max_period)."""
    half = dim // 2
    index = torch.arange(half, device=position.device, dtype=dtype)
    period = torch.full([], max_period, device=position.device, dtype=dtype)
    phase = position.to(dtype)[:, None] / period ** (index / (half - 1))
    return torch.cat([phase.cos(), phase.sin()], dim=-1)


def attend(q: Tensor, keys: Tensor, values: Tensor, valid: Tensor | None) -> Tensor:
    """q: [rows, heads, head_dim]; keys, values: [rows, heads, time, head_dim]; valid: bool [rows, time] or None."""
    mask = None if valid is None else valid[:, None, None]
    return F.scaled_dot_product_attention(q[:, :, None], keys, values, attn_mask=mask)[:, :, 0]
