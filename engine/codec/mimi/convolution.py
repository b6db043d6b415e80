"""Causal convolutions as matrix products, streaming, channels last (moshi ``modules/conv.py``).

A convolution keeps its last ``k_eff - stride`` inputs, a transposed one (kernel = 2 * stride) what its last input adds
to the next ``stride`` outputs, without the bias.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Convolution:
    weight: Tensor
    """[outputs, kernel, inputs], the oldest tap first; transposed: [kernel, outputs, inputs]."""
    bias: Tensor
    """[outputs]"""


class Pasts:
    """The pasts of a stack of convolutions, taken and kept in the stack's order: float32 [rows, size]."""

    def __init__(self, flat: Tensor) -> None:
        self._flat = flat
        self._at = 0
        self._kept: list[Tensor] = []

    def take(self, length: int, channels: int) -> Tensor:
        start, self._at = self._at, self._at + length * channels
        return self._flat[:, start : self._at].view(-1, length, channels)

    def keep(self, past: Tensor) -> None:
        self._kept.append(past.flatten(1))

    def next(self) -> Tensor:
        return torch.cat(self._kept, dim=1)


def past_length(kernel: int, stride: int = 1, dilation: int = 1) -> int:
    return (kernel - 1) * dilation + 1 - stride


def convolve(x: Tensor, w: Convolution, pasts: Pasts, stride: int = 1, dilation: int = 1) -> Tensor:
    """x: [rows, time, inputs] -> [rows, time / stride, outputs]"""
    _, kernel, inputs = w.weight.shape
    length = past_length(kernel, stride, dilation)
    if length == 0:
        return product(x, w.weight, w.bias, stride, dilation)
    joined = torch.cat([pasts.take(length, inputs), x], dim=1)
    pasts.keep(joined[:, -length:])
    return product(joined, w.weight, w.bias, stride, dilation)


def product(joined: Tensor, weight: Tensor, bias: Tensor | None, stride: int, dilation: int) -> Tensor:
    """joined: [rows, past + time, inputs]; weight: [outputs, kernel, inputs] -> [rows, time / stride, outputs]"""
    kernel = weight.shape[1]
    if kernel == 1 and stride == 1:
        return F.linear(joined, weight[:, 0], bias)
    windows = joined.unfold(1, (kernel - 1) * dilation + 1, stride)[..., ::dilation]  # [rows, time, inputs, kernel]
    columns = windows.transpose(2, 3).flatten(2).contiguous()  # overlapping rows would be one product a batch row
    return F.linear(columns, weight.flatten(1), bias)


def transpose_convolve(x: Tensor, w: Convolution, pasts: Pasts) -> Tensor:
    """x: [rows, time, inputs] -> [rows, time * stride, outputs]; the kernel is twice the stride."""
    kernel, outputs, _ = w.weight.shape
    spread = F.linear(x, w.weight.flatten(0, 1)).view(*x.shape[:2], kernel, outputs)
    return overlap(spread, pasts) + w.bias


def overlap(spread: Tensor, pasts: Pasts) -> Tensor:
    """spread: [rows, time, 2 * stride, outputs], what each input adds -> [rows, time * stride, outputs]"""
    now, later = spread.chunk(2, dim=2)
    before = pasts.take(now.shape[2], now.shape[3])[:, None]
    pasts.keep(later[:, -1])
    return (now + torch.cat([before, later[:, :-1]], dim=1)).flatten(1, 2)
