"""The three heavy operations of a frame behind one interface, with two implementations that are tested to agree.

``TorchKernels`` runs anywhere (and is the CUDA path); ``NativeKernels`` (``engine/native.py``) is the CPU's fast path
over ``cuda_ext``. Both keep the slots' model state: rings of keys and values, and the codec's history.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Protocol, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from engine import backbone, depth
from engine.checkpoint import Checkpoint
from engine.codec import spectral
from engine.sampling import Draws, sample

T = TypeVar("T")


class Kernels(Protocol):
    row_independent: bool
    """Whether a row's results are the same, bit for bit, whatever rows it is computed with."""

    def clear(self, slot: int) -> None:
        """Forget a slot's history."""
        ...

    def backbone(self, tokens: Tensor, slots: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """tokens: int64 [rows, 1 + codebooks] -> hidden float32 [rows, dim], text logits float32 [rows, text_card_out].
        Writes keys and values at ``position`` (a retry writes the same again)."""
        ...

    def sample_text(self, logits: Tensor, draws: Draws) -> Tensor:
        """-> int64 [rows]"""
        ...

    def depth(self, hidden: Tensor, text: Tensor, draws: Draws, forced: Tensor | None, commit: Tensor) -> Tensor:
        """text: int64 [rows] -> raw audio tokens int64 [rows, codebooks]; rows outside ``commit`` may be anything."""
        ...

    def codec(self, codes: Tensor, slots: Tensor, commit: Tensor) -> Tensor:
        """codes: int64 [rows, codebooks] -> samples float32 [rows, frame_samples]; committed histories advance."""
        ...

    def codec_tail(self, slot: int) -> Tensor:
        """The samples that the next frame would have completed, float32 [overlap]; the overlap line is cleared."""
        ...


def moved(weights: T, device: torch.device, dtype: torch.dtype) -> T:
    """The same weights (tensors in tuples and dataclasses) on ``device`` in ``dtype``."""
    return cast(T, _moved(weights, device, dtype))


def _moved(weights: Any, device: torch.device, dtype: torch.dtype) -> Any:
    if isinstance(weights, Tensor):
        return weights.to(device, dtype)
    if isinstance(weights, tuple):
        return tuple(_moved(item, device, dtype) for item in weights)
    parts = {field.name: _moved(getattr(weights, field.name), device, dtype) for field in fields(weights)}
    return type(weights)(**parts)


def _alone(rows: int) -> list[slice]:
    return [slice(row, row + 1) for row in range(rows)]


class TorchKernels:
    """Reference: plain torch over static buffers. ``row_by_row`` computes each row alone, which makes rows independent
    of their batch at the price of a batch's speed (the CPU without a C++ compiler)."""

    def __init__(self, model: Checkpoint, capacity: int, device: torch.device, row_by_row: bool) -> None:
        c = model.config.backbone
        self.row_independent = row_by_row
        self.logits: Tensor | None = None  # audio logits of the last depth call, [rows, codebooks, card]
        self._config, self._codec = model.config, model.codec
        self._backbone = moved(model.backbone, device, torch.float32)
        self._depth = moved(model.depth, device, torch.float32)
        self._spectral = moved(model.spectral, device, torch.float32)
        shape = (c.layers, 2, capacity, c.heads, model.config.context, c.dim // c.heads)
        self._kv = torch.zeros(shape, device=device)
        self._history = torch.zeros(capacity, spectral.history_size(model.codec), device=device)

    def clear(self, slot: int) -> None:
        self._history[slot].zero_()

    def backbone(self, tokens: Tensor, slots: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        if self.row_independent and len(slots) > 1:
            parts = [self.backbone(tokens[row], slots[row], position[row]) for row in _alone(len(slots))]
            return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
        x = backbone.embed(self._backbone, self._config, tokens)
        hidden = backbone.step(self._backbone, self._config, x, self._kv, slots, position)
        return hidden, F.linear(hidden, self._backbone.text_head)

    def sample_text(self, logits: Tensor, draws: Draws) -> Tensor:
        return sample(logits, draws, 0)

    def depth(self, hidden: Tensor, text: Tensor, draws: Draws, forced: Tensor | None, commit: Tensor) -> Tensor:
        groups = _alone(len(text)) if self.row_independent else [slice(0, len(text))]
        tokens, logits = [], []
        for group in groups:
            own = Draws(*(getattr(draws, field.name)[group] for field in fields(draws)))
            first = backbone.embed_text(self._depth.text, text[group], self._config.text_card)
            part = forced[group] if forced is not None else None
            result = depth.frame(self._depth, self._config, hidden[group], first, own, part)
            tokens.append(result[0])
            logits.append(result[1])
        self.logits = torch.cat(logits)
        return torch.cat(tokens)

    def codec(self, codes: Tensor, slots: Tensor, commit: Tensor) -> Tensor:
        if self.row_independent and len(slots) > 1:
            return torch.cat([self.codec(codes[row], slots[row], commit[row]) for row in _alone(len(slots))])
        old = self._history[slots]
        samples, new = spectral.decode(self._spectral, self._codec, codes, old)
        self._history[slots] = torch.where(commit[:, None], new, old)
        return samples

    def codec_tail(self, slot: int) -> Tensor:
        line = self._history[slot, -self._codec.n_fft :]
        tail = line[: self._codec.overlap].clone()
        line.zero_()
        return tail
