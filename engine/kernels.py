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
from engine.checkpoint import Checkpoint, MimiCheckpoint
from engine.codec.streams import CodecStream, MimiStream, Saved, SpectralStream
from engine.conditioners import Conditions
from engine.depth import Guidance
from engine.layers import Int8Matrix
from engine.sampling import Draws, sample
from engine.text import TextBuffers, TextStep, advance

T = TypeVar("T")

REBUILD_ROWS = 16
"""Steps of one slot that are taken at once when it is rebuilt: as many as a matrix tile has rows."""


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
    if weights is None:
        return None
    if isinstance(weights, Tensor):
        return weights.to(device, dtype)
    if isinstance(weights, tuple):
        return tuple(_moved(item, device, dtype) for item in weights)
    parts = {field.name: _moved(getattr(weights, field.name), device, dtype) for field in fields(weights)}
    return type(weights)(**parts)


MATRICES = frozenset({"qkv", "out", "up", "down", "q", "kv", "inputs"})
"""Fields of the weights that go into eight bits; heads, norms and embeddings stay."""


def quantised(weights: T, dtype: torch.dtype) -> T:
    """The same weights with the matrices of all layers as ``Int8Matrix``. dtype: of the run."""
    return cast(T, _quantised(weights, dtype, matrix=False))


def _quantised(weights: Any, dtype: torch.dtype, matrix: bool) -> Any:
    if isinstance(weights, Tensor):
        return Int8Matrix.of(weights, dtype) if matrix else weights
    if isinstance(weights, tuple):
        return tuple(_quantised(item, dtype, matrix) for item in weights)
    if weights is None:
        return None
    parts = {
        field.name: _quantised(getattr(weights, field.name), dtype, field.name in MATRICES) for field in fields(weights)
    }
    return type(weights)(**parts)


def _alone(rows: int) -> list[slice]:
    return [slice(row, row + 1) for row in range(rows)]


def codec_stream(model: Checkpoint | MimiCheckpoint, capacity: int, device: torch.device) -> CodecStream:
    if isinstance(model, MimiCheckpoint):
        return MimiStream(moved(model.mimi.decoder, device, torch.float32), model.codec, capacity, device)
    return SpectralStream(moved(model.spectral, device, torch.float32), model.codec, capacity, device)


class TorchKernels:
    """Reference: plain torch over static buffers. ``row_by_row`` computes each row alone, which makes rows independent
    of their batch at the price of a batch's speed (the CPU without a C++ compiler).

    A model under guidance has two rows a slot: slot ``s`` of ``capacity`` is without conditions in ``s + capacity``.
    """

    def __init__(
        self,
        model: Checkpoint | MimiCheckpoint,
        capacity: int,
        device: torch.device,
        row_by_row: bool,
        dtype: torch.dtype = torch.float32,
        codec: CodecStream | None = None,
        int8: bool = False,
    ) -> None:
        """dtype: of the language model; codec: in the place of the model's own; int8: matrices in eight bits."""
        config, c = model.config, model.config.backbone
        self.row_independent = row_by_row
        self.keep_logits = True
        self.logits: Tensor | None = None  # audio logits of the last depth call, [rows, generated, card]
        self._config, self._capacity = config, capacity
        self.tail_samples = model.codec.overlap
        self.weight_bytes = 1.0 if int8 else float(dtype.itemsize)  # of a number in the language model's matrices
        self._backbone = moved(model.backbone, device, dtype)
        self._depth = moved(model.depth, device, dtype)
        if int8:
            self._backbone, self._depth = quantised(self._backbone, dtype), quantised(self._depth, dtype)
        rows = 2 * capacity if config.guided else capacity
        shape = (c.layers, 2, rows, c.heads, config.context, c.dim // c.heads)
        self._kv = torch.zeros(shape, device=device, dtype=dtype)
        self._stream = codec_stream(model, capacity, device) if codec is None else codec
        conditioned = bool(config.conditioners)
        self.conditions = (
            Conditions(config, model.conditioners, self._backbone, capacity, device) if conditioned else None
        )

    def clear(self, slot: int) -> None:
        """The ring too: what is masked there has no weight, but not a number times nothing is not a number."""
        self._kv[:, :, slot :: self._capacity] = 0.0
        self._stream.clear(slot)

    def backbone(self, tokens: Tensor, slots: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        if self.row_independent and len(slots) > 1:
            parts = [self.backbone(tokens[row], slots[row], position[row]) for row in _alone(len(slots))]
            return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
        x = backbone.embed(self._backbone, self._config, tokens)
        heard = None
        if self.conditions is not None:
            x, heard = self.conditions.add(x, slots), self.conditions.heard(slots)
        hidden = backbone.step(self._backbone, self._config, x, self._kv, slots, position, heard)
        return hidden, F.linear(hidden, self._backbone.text_head, self._backbone.text_bias).float()

    def sample_text(self, logits: Tensor, draws: Draws) -> Tensor:
        return sample(logits, draws, 0)

    def advance_text(
        self, buffers: TextBuffers, slots: Tensor, sampled: Tensor, ahead: int, card: int, padding_id: int
    ) -> TextStep:
        """``engine.text.advance``, or a kernel that does the same."""
        return advance(buffers, slots, sampled, ahead, card, padding_id)

    def depth(
        self,
        hidden: Tensor,
        text: Tensor,
        draws: Draws,
        forced: Tensor | None,
        commit: Tensor,
        guidance: Guidance | None = None,
    ) -> Tensor:
        groups = _alone(len(text)) if self.row_independent else [slice(0, len(text))]
        tokens, logits = [], []
        for group in groups:
            own = Draws(*(getattr(draws, field.name)[group] for field in fields(draws)))
            first = backbone.embed_text(self._depth.text, text[group], self._config.text_card)
            part = forced[group] if forced is not None else None
            guide = _guidance_of(group.start, guidance) if guidance and self.row_independent else guidance
            result = depth.frame(self._depth, self._config, hidden[group], first, own, part, guide)
            tokens.append(result[0])
            logits.append(result[1])
        if self.keep_logits:
            self.logits = torch.cat(logits)
        return torch.cat(tokens)

    def codec(self, codes: Tensor, slots: Tensor, commit: Tensor) -> Tensor:
        if self.row_independent and len(slots) > 1:
            return torch.cat([self.codec(codes[row], slots[row], commit[row]) for row in _alone(len(slots))])
        return self._stream.decode(codes, slots, commit)

    def codec_tail(self, slot: int) -> Tensor:
        return self._stream.tail(slot)

    def codec_tails(self, slots: Tensor, over: Tensor) -> Tensor:
        """``codec_tail`` of the rows of a step, float32 [rows, tail_samples]; cleared where ``over``."""
        return self._stream.tails(slots, over)

    def addresses(self) -> tuple[int, ...]:
        """Of the state that may move, on the device."""
        return () if self.conditions is None else self.conditions.addresses()

    def save(self, slot: int, guided: bool) -> Saved:
        """A copy of all that a slot remembers: its keys and values, those of its row without conditions if it is under
        guidance, and its codec's history."""
        rows = [slot, slot + self._capacity] if guided else [slot]
        return (self._kv[:, :, rows].clone(), *self._stream.save(slot))

    def restore(self, slot: int, saved: Saved) -> None:
        rows = [slot, slot + self._capacity][: saved[0].shape[2]]
        self._kv[:, :, rows] = saved[0]
        self._stream.restore(slot, saved[1:])


def _guidance_of(row: int, guidance: Guidance) -> Guidance | None:
    """The guidance of one row that is computed alone."""
    mine = (guidance.rows == row).nonzero()[:, 0]
    if not len(mine):
        return None
    return Guidance(guidance.hidden[mine], torch.zeros_like(mine), guidance.strength[mine])
