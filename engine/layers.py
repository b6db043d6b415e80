"""Layers as functions, each as moshi computes it (``modules/transformer.py``, ``gating.py``, ``rope.py``)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

NORM_EPS = 1e-8
"""Of ``rms_norm_f32``."""


def rms_norm(x: Tensor, alpha: Tensor) -> Tensor:
    """x: [..., dim]; float32 inside, eps inside the mean, cast last."""
    wide = x.float()
    variance = NORM_EPS + wide.square().mean(-1, keepdim=True)
    return (wide * (alpha.float() * torch.rsqrt(variance))).to(x.dtype)


def gated(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """silu(first half) * second half, [..., dim] -> [..., dim]."""
    first, second = F.linear(x, up).chunk(2, dim=-1)
    return F.linear(F.silu(first) * second, down)


def rope_frequencies(head_dim: int, max_period: float, device: torch.device | None = None) -> Tensor:
    """Radians a step, float32 [head_dim / 2]."""
    index = torch.arange(head_dim // 2, dtype=torch.float32, device=device)
    return torch.exp(index * (-math.log(max_period) * 2 / head_dim))


def rotate(x: Tensor, angle: Tensor) -> Tensor:
    """Rotary embedding over interleaved pairs. x: [rows, heads, head_dim]; angle: [rows, head_dim / 2]."""
    pairs = x.float().view(*x.shape[:-1], -1, 2)
    cosine, sine = angle.cos()[:, None], angle.sin()[:, None]
    real, imaginary = pairs[..., 0], pairs[..., 1]
    out = torch.stack([real * cosine - imaginary * sine, real * sine + imaginary * cosine], dim=-1)
    return out.flatten(-2).to(x.dtype)


def attend(q: Tensor, keys: Tensor, values: Tensor, valid: Tensor) -> Tensor:
    """q: [rows, heads, head_dim]; keys, values: [rows, heads, time, head_dim]; valid: bool [rows, time]."""
    out = F.scaled_dot_product_attention(q[:, :, None], keys, values, attn_mask=valid[:, None, None])
    return out[:, :, 0]
