"""Codes of one frame -> its samples (moshi ``models/compression.py`` ``MimiModel.decode``, streaming)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.codec.mimi import quantiser, seanet, transformer
from engine.codec.mimi.config import MimiConfig
from engine.codec.mimi.convolution import Pasts, overlap
from engine.codec.mimi.quantiser import QuantiserWeights
from engine.codec.mimi.seanet import SeanetWeights
from engine.codec.mimi.state import Advance, StreamState
from engine.codec.mimi.transformer import LayerWeights


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    quantiser: QuantiserWeights
    upsample: Tensor
    """[2 * stride, dim], depthwise."""
    layers: tuple[LayerWeights, ...]
    seanet: SeanetWeights


def decode(
    w: DecoderWeights, c: MimiConfig, codes: Tensor, state: StreamState, slots: Tensor
) -> tuple[Tensor, Advance]:
    """codes: int64 [rows, codebooks], any number of codebooks up to the weights' (a code below 0 is taken as 0);
    slots: int64 [rows], each once -> samples float32 [rows, frame_samples] (not clipped), and what
    ``state.advance`` is to write. ``state`` itself is not changed."""
    pasts = Pasts(state.pasts[slots])
    latent = quantiser.decode(w.quantiser, codes)[:, None]
    x = overlap(latent[:, :, None] * w.upsample, pasts)
    x, kv = transformer.stream(c.transformer, w.layers, x, state.ring, slots, state.position[slots])
    samples = seanet.decode(c.seanet, w.seanet, x, pasts)
    return samples, Advance(pasts.next(), kv)
