"""Samples -> codes (moshi ``models/compression.py`` ``MimiModel.encode``), streaming and for whole clips."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.codec.mimi import quantiser, seanet, transformer
from engine.codec.mimi.config import MimiConfig
from engine.codec.mimi.convolution import Pasts, past_length, product
from engine.codec.mimi.quantiser import QuantiserWeights
from engine.codec.mimi.seanet import SeanetWeights, encoder_pasts
from engine.codec.mimi.state import Advance, StreamState
from engine.codec.mimi.transformer import LayerWeights

CHUNK_FRAMES = 25
"""Of a whole clip that pass the convolutions at once; bounds the memory (about 100 MB a row)."""


@dataclass(frozen=True, slots=True)
class EncoderWeights:
    quantiser: QuantiserWeights
    downsample: Tensor
    """[dim, 2 * stride, dim]"""
    layers: tuple[LayerWeights, ...]
    seanet: SeanetWeights


def encode(
    w: EncoderWeights, c: MimiConfig, samples: Tensor, state: StreamState, slots: Tensor, codebooks: int
) -> tuple[Tensor, Advance]:
    """samples: float32 [rows, frames * frame_samples], at most ``context`` positions -> codes int64
    [rows, codebooks, frames], and what ``state.advance`` is to write. ``state`` itself is not changed."""
    latents, advance = encode_latents(w, c, samples, state, slots)
    return quantiser.encode(w.quantiser, latents, codebooks), advance


def encode_latents(
    w: EncoderWeights, c: MimiConfig, samples: Tensor, state: StreamState, slots: Tensor
) -> tuple[Tensor, Advance]:
    """As ``encode``, before the quantiser: [rows, frames, dim]."""
    assert samples.shape[1] % c.frame_samples == 0, "whole frames are to be given"
    pasts, position = Pasts(state.pasts[slots]), state.position[slots]
    x = seanet.encode(c.seanet, w.seanet, samples, pasts)
    x, kv = transformer.stream(c.transformer, w.layers, x, state.ring, slots, position)
    length = past_length(2 * c.stride, c.stride)
    past = torch.where((position == 0)[:, None, None], x[:, :1], pasts.take(length, c.dim))
    joined = torch.cat([past, x], dim=1)
    pasts.keep(joined[:, -length:])
    return product(joined, w.downsample, None, c.stride, 1), Advance(pasts.next(), kv)


def encode_clip(w: EncoderWeights, c: MimiConfig, samples: Tensor, codebooks: int) -> Tensor:
    """samples: float32 [rows, time], a whole clip, padded with zeros to whole frames -> codes int64
    [rows, codebooks, frames]. The same as moshi's ``encode`` outside of streaming: see ``transformer``."""
    return quantiser.encode(w.quantiser, encode_clip_latents(w, c, samples), codebooks)


def encode_clip_latents(w: EncoderWeights, c: MimiConfig, samples: Tensor) -> Tensor:
    """As ``encode_clip``, before the quantiser: [rows, frames, dim]."""
    rows, time = samples.shape
    if time == 0:
        return samples.new_zeros(rows, 0, c.dim)
    samples = F.pad(samples, (0, -time % c.frame_samples))
    past, parts = samples.new_zeros(rows, encoder_pasts(c)), []
    for chunk in torch.split(samples, CHUNK_FRAMES * c.frame_samples, dim=1):
        pasts = Pasts(past)
        parts.append(seanet.encode(c.seanet, w.seanet, chunk, pasts))
        past = pasts.next()
    x = transformer.whole(c.transformer, w.layers, torch.cat(parts, dim=1))
    first = x[:, :1].expand(-1, past_length(2 * c.stride, c.stride), -1)
    return product(torch.cat([first, x], dim=1), w.downsample, None, c.stride, 1)
