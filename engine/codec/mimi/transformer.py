"""Mimi's transformers (moshi ``modules/transformer.py``): LayerNorm, exact GELU, a learnt scale on each branch, RoPE.

Streaming, a frame's positions are written over the ring's oldest **before** any of them attends, as moshi does: with a
full ring of n, the first of two queries sees n - 1 keys. A whole clip has no ring: every query sees n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.codec.mimi.config import TransformerConfig
from engine.layers import rope_frequencies

NORM_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Matrices are [out, in], all without bias."""

    norm1: Tensor
    norm1_bias: Tensor
    qkv: Tensor
    out: Tensor
    scale1: Tensor
    norm2: Tensor
    norm2_bias: Tensor
    up: Tensor
    down: Tensor
    scale2: Tensor


Remember = Callable[[int, Tensor], Tensor]
"""(layer, keys and values [rows, 2, heads, time, head_dim]) -> all that the queries may attend to, same layout."""


def stream(
    c: TransformerConfig, layers: tuple[LayerWeights, ...], x: Tensor, ring: Tensor, slots: Tensor, position: Tensor
) -> tuple[Tensor, Tensor]:
    """x: [rows, time, dim], time <= context; ring: [slots, layers, 2, heads, context, head_dim], not changed;
    slots, position: int64 [rows], the rows' places in the ring and how many positions came before -> x, and the new
    keys and values [rows, layers, 2, heads, time, head_dim]."""
    time = x.shape[1]
    assert time <= c.context, "longer inputs are to be given in parts"
    steps = position[:, None] + torch.arange(time, device=x.device)  # [rows, time]
    place = (steps % c.context)[:, None, None, :, None]
    new: list[Tensor] = []

    def remember(layer: int, kv: Tensor) -> Tensor:
        new.append(kv)
        held = ring[:, layer].index_select(0, slots)  # a layer at a time: memory that was just free
        return held.scatter_(3, place.expand(kv.shape), kv)

    y = _run(c, layers, x, steps, _ring_positions(c, steps[:, -1:]), remember)
    return y, torch.stack(new, dim=1)


def whole(c: TransformerConfig, layers: tuple[LayerWeights, ...], x: Tensor) -> Tensor:
    """x: [rows, time, dim], all of a clip."""
    steps = torch.arange(x.shape[1], device=x.device)[None]
    return _run(c, layers, x, steps, steps, lambda _layer, kv: kv)


def _ring_positions(c: TransformerConfig, last: Tensor) -> Tensor:
    """The position that each of the ring's places holds once ``last`` (int64 [rows, 1]) is written, < 0 for none."""
    delta = torch.arange(c.context, device=last.device) - last % c.context
    return last + torch.where(delta <= 0, delta, delta - c.context)


def _run(
    c: TransformerConfig, layers: tuple[LayerWeights, ...], x: Tensor, steps: Tensor, held: Tensor, remember: Remember
) -> Tensor:
    """steps: int64 [rows or 1, time] positions of the queries; held: int64 [rows or 1, keys] positions of the keys."""
    rows, time, dim = x.shape
    distance = steps[:, :, None] - held[:, None]
    seen = ((held >= 0)[:, None] & (distance >= 0) & (distance < c.context))[:, None]  # [rows, 1, time, keys]
    angle = steps.float()[:, None, :, None] * rope_frequencies(dim // c.heads, c.max_period, x.device)
    turn = torch.polar(torch.ones_like(angle), angle)
    for index, w in enumerate(layers):
        y = F.layer_norm(x, (dim,), w.norm1, w.norm1_bias, NORM_EPS)
        qkv = F.linear(y, w.qkv).view(rows, time, 3, c.heads, -1).permute(2, 0, 3, 1, 4)
        turned = _turn(qkv[:2], turn)
        kv = remember(index, torch.stack([turned[1], qkv[2]], dim=1))
        mixed = F.scaled_dot_product_attention(turned[0], kv[:, 0], kv[:, 1], attn_mask=seen)
        x = x + w.scale1 * F.linear(mixed.transpose(1, 2).reshape(rows, time, dim), w.out)
        y = F.layer_norm(x, (dim,), w.norm2, w.norm2_bias, NORM_EPS)
        x = x + w.scale2 * F.linear(F.gelu(F.linear(y, w.up)), w.down)
    return x


def _turn(x: Tensor, turn: Tensor) -> Tensor:
    """Rotary embedding over interleaved pairs (moshi ``modules/rope.py``). x: [..., head_dim]; turn: complex64."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn).flatten(-2)
