"""The temporal transformer in torch: one step for some rows, each on its own ring of keys and values.

The oracle of ``cuda_ext/backbone.cpp``, and the path on CUDA.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.checkpoint import BackboneWeights, TextTables
from engine.config import ZERO, ModelConfig
from engine.layers import attend, gated, rms_norm, rope_frequencies, rotate


def embed_text(tables: TextTables, tokens: Tensor, text_card: int) -> Tensor:
    """tokens: int64 [rows], two streams in one: ``(second + 1) * (text_card + 1) + main``; -1 embeds to zero."""
    zero = text_card + 1
    main = torch.where(tokens < 0, zero, tokens % (text_card + 1))
    second = tokens.clamp(min=0) // (text_card + 1) - 1
    return tables.main[main] + tables.second[torch.where((second < 0) | (tokens < 0), zero, second)]


def embed(weights: BackboneWeights, config: ModelConfig, tokens: Tensor) -> Tensor:
    """tokens: int64 [rows, 1 + codebooks] -> float32 [rows, dim], added in the reference's order."""
    audio = tokens[:, 1:]
    start = torch.arange(config.codebooks, device=tokens.device) * (config.card + 1)
    rows = weights.audio[torch.where(audio == ZERO, weights.audio.shape[0] - 1, audio + start)]
    x = rows[:, 0]
    for book in range(1, config.codebooks):
        x = x + rows[:, book]
    return x + embed_text(weights.text, tokens[:, 0], config.text_card)


def step(
    weights: BackboneWeights, config: ModelConfig, x: Tensor, kv: Tensor, slots: Tensor, position: Tensor
) -> Tensor:
    """x: [rows, dim] embeddings; kv: [layers, 2, capacity, heads, context, head_dim], written in place;
    slots, position: int64 [rows] -> normalised hidden states [rows, dim]."""
    heads, context = config.backbone.heads, config.context
    rows, dim = x.shape
    angle = position.float()[:, None] * rope_frequencies(dim // heads, config.max_period, x.device)
    place = position % context
    valid = torch.arange(context, device=x.device) < (position[:, None] + 1).clamp(max=context)
    for index, layer in enumerate(weights.layers):
        q, k, v = F.linear(rms_norm(x, layer.norm1), layer.qkv).view(rows, 3, heads, -1).unbind(1)
        kv[index, 0, slots, :, place] = rotate(k, angle)
        kv[index, 1, slots, :, place] = v
        mixed = attend(rotate(q, angle), kv[index, 0, slots], kv[index, 1, slots], valid)
        x = x + F.linear(mixed.reshape(rows, dim), layer.out)
        x = x + gated(rms_norm(x, layer.norm2), layer.up, layer.down)
    return rms_norm(x, weights.out_norm)
