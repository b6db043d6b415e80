"""The depth transformer (depformer) in torch: all codebooks of one frame, one after another.

The oracle of ``cuda_ext/depth.cpp``, and the path on CUDA. It has no positional embedding; its norms serve all
codebooks, its matrices come one a weight set, and each codebook reads the raw sample of the one before it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.checkpoint import DepthWeights
from engine.config import ModelConfig
from engine.layers import gated, rms_norm
from engine.sampling import Draws, sample


def frame(
    weights: DepthWeights,
    config: ModelConfig,
    hidden: Tensor,
    first: Tensor,
    draws: Draws,
    forced: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """hidden: [rows, dim] of the backbone; first: [rows, depth_dim] embedding of the text token; forced: int64
    [rows, codebooks], tokens to take where they are >= 0 -> raw tokens int64 [rows, codebooks] and logits float32
    [rows, codebooks, card]."""
    rows, heads = hidden.shape[0], config.depth.heads
    tokens: list[Tensor] = []
    logits: list[Tensor] = []
    cache: list[list[tuple[Tensor, Tensor]]] = [[] for _ in weights.layers]
    for book, chosen in enumerate(config.depth_schedule):
        x = F.linear(hidden, weights.inputs[chosen]) + (weights.audio[book - 1][tokens[-1]] if book else first)
        for layer, past in zip(weights.layers, cache, strict=True):
            q, k, v = F.linear(rms_norm(x, layer.norm1), layer.qkv[chosen]).view(rows, 3, heads, -1).unbind(1)
            past.append((k, v))
            keys = torch.stack([pair[0] for pair in past], dim=2)
            values = torch.stack([pair[1] for pair in past], dim=2)
            mixed = F.scaled_dot_product_attention(q[:, :, None], keys, values)[:, :, 0]
            x = x + F.linear(mixed.reshape(rows, -1), layer.out[chosen])
            x = x + gated(rms_norm(x, layer.norm2), layer.up[chosen], layer.down[chosen])
        logits.append(F.linear(x, weights.heads[book]).float())
        token = sample(logits[-1], draws, book + 1)
        if forced is not None:
            token = torch.where(forced[:, book] >= 0, forced[:, book], token)
        tokens.append(token)
    return torch.stack(tokens, dim=1), torch.stack(logits, dim=1)
