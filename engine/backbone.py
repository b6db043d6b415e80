"""The temporal transformer in torch: one step for some rows, each on its own ring of keys and values.

The oracle of ``cuda_ext/backbone.cpp``, and the path on CUDA.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.config import ZERO, ModelConfig, TransformerConfig
from engine.language import BackboneWeights, TextTables
from engine.layers import attend, feed_forward, linear, norm, residual, rope_frequencies, rotate, sin_embedding


@dataclass(frozen=True, slots=True)
class Seen:
    """What the rows of a step may attend to in a table of keys and values."""

    index: Tensor | None
    """int64 [rows]: the row of the table; None: there is one row in each."""
    count: Tensor
    """int64 [rows]: positions that count, the first ones."""
    valid: Tensor | None
    """bool [rows, positions]: the same; None: all count."""


Attention = Callable[[Tensor, Tensor, Tensor, Seen], Tensor]
"""q [rows, heads, head_dim], keys and values [table, heads, positions, head_dim] -> as q."""


def gathered(q: Tensor, keys: Tensor, values: Tensor, seen: Seen) -> Tensor:
    """Attention of torch, over copies of the rows' keys and values."""
    if seen.index is None:
        return attend(q, keys, values, seen.valid)
    return attend(q, keys[seen.index], values[seen.index], seen.valid)


@dataclass(frozen=True, slots=True)
class Heard:
    """What the rows of a step hear through cross attention."""

    keys_values: Tensor
    """[voices, layers, 2, heads, positions, head_dim]: a table that the rows share."""
    voice: Tensor | None
    """int64 [rows]: the row of the table; None: there is one row, and one voice in the table."""
    length: Tensor
    """int64 [rows]: positions that the row's voice has."""

    def seen(self) -> Seen:
        if self.voice is None:
            return Seen(None, self.length, None)
        positions = torch.arange(self.keys_values.shape[4], device=self.keys_values.device)
        return Seen(self.voice, self.length, positions < self.length[:, None])


def embed_text(tables: TextTables, tokens: Tensor, text_card: int) -> Tensor:
    """tokens: int64 [rows], two streams in one: ``(second + 1) * (text_card + 1) + main``; -1 embeds to zero."""
    zero = text_card + 1
    main = torch.where(tokens < 0, zero, tokens % (text_card + 1))
    if tables.second is None:
        return tables.main[main]
    second = tokens.clamp(min=0) // (text_card + 1) - 1
    return tables.main[main] + tables.second[torch.where((second < 0) | (tokens < 0), zero, second)]


def embed(weights: BackboneWeights, config: ModelConfig, tokens: Tensor) -> Tensor:
    """tokens: int64 [rows, 1 + codebooks] -> [rows, dim], added in the reference's order."""
    audio = tokens[:, 1:]
    start = torch.arange(config.codebooks, device=tokens.device) * (config.card + 1)
    rows = weights.audio[torch.where(audio == ZERO, weights.audio.shape[0] - 1, audio + start)]
    x = rows[:, 0]
    for book in range(1, config.codebooks):
        x = x + rows[:, book]
    return x + embed_text(weights.text, tokens[:, 0], config.text_card)


def step(
    weights: BackboneWeights,
    config: ModelConfig,
    x: Tensor,
    kv: Tensor,
    slots: Tensor,
    position: Tensor,
    heard: Heard | None = None,
    attention: Attention = gathered,
) -> Tensor:
    """x: [rows, dim] embeddings; kv: [layers, 2, capacity, heads, context, head_dim], written in place;
    slots, position: int64 [rows] -> normalised hidden states [rows, dim]."""
    c, heads, context = config.backbone, config.backbone.heads, config.context
    rows, dim = x.shape
    x = x + _sinusoid(c, position, x.dtype) if "sin" in c.positions else x
    angle = position.float()[:, None] * rope_frequencies(dim // heads, c.max_period, x.device)
    rotary, interleaved = "rope" in c.positions, c.positions != "rope_concat"
    place = position % context
    count = (position + 1).clamp(max=context)
    ring = Seen(slots, count, torch.arange(context, device=x.device) < count[:, None])
    voices = None if heard is None else heard.seen()
    for index, layer in enumerate(weights.layers):
        q, k, v = linear(norm(x, layer.norm1, c.norm), layer.qkv).view(rows, 3, heads, -1).unbind(1)
        if rotary:
            q, k = rotate(q, angle, interleaved), rotate(k, angle, interleaved)
        kv[index, 0, slots, :, place] = k
        kv[index, 1, slots, :, place] = v
        mixed = attention(q, kv[index, 0], kv[index, 1], ring)
        x = residual(x, linear(mixed.reshape(rows, dim), layer.out), layer.scale1)
        if layer.cross is not None:
            assert heard is not None, "the model hears voices, and none is given"
            assert voices is not None
            table = heard.keys_values[:, index]
            q = linear(norm(x, layer.cross.norm, "layer_norm"), layer.cross.q).view(rows, heads, -1)
            # Without positions, and without a mask over padding, which is part of what is heard.
            mixed = attention(q, table[:, 0], table[:, 1], voices)
            x = residual(x, linear(mixed.reshape(rows, dim), layer.cross.out), layer.cross.scale)
        x = residual(x, feed_forward(norm(x, layer.norm2, c.norm), layer.up, layer.down, c.gating), layer.scale2)
    return norm(x, weights.out_norm, c.norm)


def _sinusoid(c: TransformerConfig, position: Tensor, dtype: torch.dtype) -> Tensor:
    return c.positional_scale * sin_embedding(position, c.dim, c.max_period, dtype)


def hear(weights: BackboneWeights, config: ModelConfig, source: Tensor) -> Tensor:
    """Keys and values of one voice: source [positions, dim] -> [layers, 2, heads, positions, head_dim]."""
    heads = config.backbone.heads
    layers = []
    for layer in weights.layers:
        assert layer.cross is not None
        layers.append(linear(source, layer.cross.kv).view(len(source), 2, heads, -1).permute(1, 2, 0, 3))
    return torch.stack(layers)
