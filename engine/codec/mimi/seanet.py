"""SEANet's two stacks of convolutions (moshi ``modules/seanet.py``), streaming, channels last."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from engine.codec.mimi.config import MimiConfig, SeanetConfig
from engine.codec.mimi.convolution import Convolution, Pasts, convolve, past_length, transpose_convolve


@dataclass(frozen=True, slots=True)
class ResidualWeights:
    narrow: Convolution
    widen: Convolution


@dataclass(frozen=True, slots=True)
class StageWeights:
    """The decoder resamples before its residual blocks, the encoder after them."""

    resample: Convolution
    residuals: tuple[ResidualWeights, ...]


@dataclass(frozen=True, slots=True)
class SeanetWeights:
    first: Convolution
    stages: tuple[StageWeights, ...]
    last: Convolution


def _residuals(c: SeanetConfig, weights: tuple[ResidualWeights, ...], x: Tensor, pasts: Pasts) -> Tensor:
    for index, w in enumerate(weights):
        y = convolve(F.elu(x), w.narrow, pasts, dilation=c.dilation_base**index)
        x = x + convolve(F.elu(y), w.widen, pasts)
    return x


def _residual_sizes(c: SeanetConfig, channels: int) -> int:
    dilations: list[int] = [c.dilation_base**index for index in range(c.residual_layers)]
    return channels * sum(past_length(c.residual_kernel, 1, dilation) for dilation in dilations)


def decode(c: SeanetConfig, w: SeanetWeights, x: Tensor, pasts: Pasts) -> Tensor:
    """x: [rows, time, dim] -> samples [rows, time * hop]"""
    x = convolve(x, w.first, pasts)
    for stage in w.stages:
        x = _residuals(c, stage.residuals, transpose_convolve(F.elu(x), stage.resample, pasts), pasts)
    return convolve(F.elu(x), w.last, pasts).flatten(1)


def encode(c: SeanetConfig, w: SeanetWeights, samples: Tensor, pasts: Pasts) -> Tensor:
    """samples: [rows, time * hop] -> [rows, time, dim]"""
    x = convolve(samples[:, :, None], w.first, pasts)
    for stage, ratio in zip(w.stages, reversed(c.ratios), strict=True):
        x = convolve(F.elu(_residuals(c, stage.residuals, x, pasts)), stage.resample, pasts, stride=ratio)
    return convolve(F.elu(x), w.last, pasts)


def decoder_pasts(c: MimiConfig) -> int:
    """Floats that ``decode`` keeps a slot."""
    s = c.seanet
    size, channels = c.dim * past_length(s.kernel), s.filters << len(s.ratios)
    for ratio in s.ratios:
        channels //= 2
        size += channels * ratio + _residual_sizes(s, channels)
    return size + channels * past_length(s.last_kernel)


def encoder_pasts(c: MimiConfig) -> int:
    """Floats that ``encode`` keeps a slot."""
    s = c.seanet
    size, channels = past_length(s.kernel), s.filters
    for ratio in reversed(s.ratios):
        size += _residual_sizes(s, channels) + channels * past_length(2 * ratio, ratio)
        channels *= 2
    return size + channels * past_length(s.last_kernel)
