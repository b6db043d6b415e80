"""The depth transformer (depformer) in torch: all codebooks of one frame, one after another.

The oracle of ``cuda_ext/depth.cpp``, and the path on CUDA. Its norms serve all codebooks, its matrices come one a
weight set, and each codebook reads the raw sample of the one before it. Its positions are the codebooks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.config import ModelConfig
from engine.language import DepthLayerWeights, DepthWeights
from engine.layers import feed_forward, linear, norm, residual, rope_frequencies, rotate, sin_embedding
from engine.sampling import Draws, sample

Past = list[tuple[Tensor, Tensor]]
"""Keys and values of a layer for the codebooks so far."""


@dataclass(frozen=True, slots=True)
class Guidance:
    """Classifier-free guidance of some rows: ``null + (logits - null) * strength`` (moshi ``LMGen.depformer_step``)."""

    hidden: Tensor
    """[guided, dim] of the backbone without conditions."""
    rows: Tensor
    """int64 [guided]: which rows these belong to."""
    strength: Tensor
    """float32 [guided]"""


def frame(
    weights: DepthWeights,
    config: ModelConfig,
    hidden: Tensor,
    first: Tensor,
    draws: Draws,
    forced: Tensor | None = None,
    guidance: Guidance | None = None,
) -> tuple[Tensor, Tensor]:
    """hidden: [rows, dim] of the backbone; first: [rows, depth_dim] embedding of the text token; forced: int64
    [rows, generated], tokens to take where they are >= 0 -> raw tokens int64 [rows, generated] and logits float32
    [rows, generated, card]."""
    rows = len(hidden)
    if guidance is not None:
        hidden, first = torch.cat([hidden, guidance.hidden]), torch.cat([first, first[guidance.rows]])
    tokens: list[Tensor] = []
    logits: list[Tensor] = []
    cache: list[Past] = [[] for _ in weights.layers]
    for book, chosen in enumerate(config.depth_schedule):
        if book:
            last = tokens[-1] if guidance is None else torch.cat([tokens[-1], tokens[-1][guidance.rows]])
            first = weights.audio[book - 1][last]
        x = linear(hidden, weights.inputs[chosen if config.depth_inputs else 0]) + first
        if "sin" in config.depth.positions:
            x = x + _sinusoid(config, book, x)
        for layer, past in zip(weights.layers, cache, strict=True):
            x = _layer(layer, config, x, book, chosen, past)
        if weights.norms is not None and config.depth_norm is not None:
            x = norm(x, weights.norms[book], config.depth_norm)
        raw = F.linear(x, weights.heads[book], weights.biases[book] if weights.biases else None)
        logits.append((raw if guidance is None else _guided(raw, rows, guidance)).float())
        token = sample(logits[-1], draws, book + 1)
        if forced is not None:
            token = torch.where(forced[:, book] >= 0, forced[:, book], token)
        tokens.append(token)
    return torch.stack(tokens, dim=1), torch.stack(logits, dim=1)


def _layer(w: DepthLayerWeights, config: ModelConfig, x: Tensor, book: int, chosen: int, past: Past) -> Tensor:
    c = config.depth
    rows = len(x)
    q, k, v = linear(norm(x, w.norm1, c.norm), w.qkv[chosen]).view(rows, 3, c.heads, -1).unbind(1)
    if "rope" in c.positions:
        place = torch.full((rows, 1), float(book), device=x.device)
        angle = place * rope_frequencies(c.dim // c.heads, c.max_period, x.device)
        q, k = (rotate(part, angle, c.positions != "rope_concat") for part in (q, k))
    past.append((k, v))
    keys, values = (torch.stack(part, dim=2) for part in zip(*past, strict=True))
    mixed = F.scaled_dot_product_attention(q[:, :, None], keys, values)[:, :, 0]
    x = residual(x, linear(mixed.reshape(rows, -1), w.out[chosen]), w.scale1)
    return residual(x, feed_forward(norm(x, w.norm2, c.norm), w.up[chosen], w.down[chosen], c.gating), w.scale2)


def _sinusoid(config: ModelConfig, book: int, x: Tensor) -> Tensor:
    c = config.depth
    place = torch.full((1,), book, device=x.device)
    return c.positional_scale * sin_embedding(place, c.dim, c.max_period, x.dtype)


def _guided(raw: Tensor, rows: int, guidance: Guidance) -> Tensor:
    logits, null = raw[:rows], raw[rows:]
    strength = guidance.strength.to(raw.dtype)[:, None]
    plain = logits[guidance.rows]
    mixed = torch.where(strength == 1.0, plain, null + (plain - null) * strength)  # 1: none, to the last bit
    return logits.index_copy(0, guidance.rows, mixed)
