"""A stream's state between frames, for a number of slots: the same for the decoder and for the encoder."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from engine.codec.mimi import seanet
from engine.codec.mimi.config import MimiConfig


@dataclass(frozen=True, slots=True)
class Advance:
    """What a frame changes in its rows' states."""

    pasts: Tensor
    """float32 [rows, size]"""
    kv: Tensor
    """float32 [rows, layers, 2, heads, positions, head_dim]: new keys and values."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """Static buffers. A row that is not committed stays as it is, bit for bit; all zeros is the state of a new stream.
    A slot is position ``[slot]`` of every tensor's first dimension."""

    pasts: Tensor
    """float32 [slots, size]: pasts of the convolutions, in their order."""
    ring: Tensor
    """float32 [slots, layers, 2, heads, context, head_dim]: keys and values of the transformer's last positions."""
    position: Tensor
    """int64 [slots]: positions written so far."""

    def advance(self, slots: Tensor, commit: Tensor, new: Advance) -> None:
        """slots: int64 [rows], each once; commit: bool [rows]. Writes the committed rows' new state."""
        self.pasts[slots] = torch.where(commit[:, None], new.pasts, self.pasts[slots])
        position, context = self.position[slots], self.ring.shape[4]
        count = new.kv.shape[4]
        place = (position[:, None] + torch.arange(count, device=position.device)) % context  # [rows, count]
        at = (slots[:, None], slice(None), slice(None), slice(None), place)
        kv = new.kv.permute(0, 4, 1, 2, 3, 5)  # [rows, count, layers, 2, heads, head_dim]
        self.ring[at] = torch.where(commit[:, None, None, None, None, None], kv, self.ring[at])
        self.position[slots] = torch.where(commit, position + count, position)

    def clear(self, slot: int) -> None:
        """Make a slot that of a new stream. The ring is masked before a stream's start, but must hold numbers."""
        self.pasts[slot].zero_()
        self.ring[slot].zero_()
        self.position[slot] = 0

    def gather(self, slots: Tensor) -> StreamState:
        """A copy of some slots' states."""
        return StreamState(self.pasts[slots], self.ring[slots], self.position[slots])

    def scatter(self, slots: Tensor, states: StreamState) -> None:
        """Overwrite some slots' states."""
        for field in fields(self):
            getattr(self, field.name)[slots] = getattr(states, field.name)


def decoder_state(c: MimiConfig, slots: int, device: torch.device | None = None) -> StreamState:
    return _state(c, seanet.decoder_pasts(c) + c.dim * c.stride, slots, device)


def encoder_state(c: MimiConfig, slots: int, device: torch.device | None = None) -> StreamState:
    return _state(c, seanet.encoder_pasts(c) + c.dim * c.stride, slots, device)


def slot_bytes(c: MimiConfig) -> int:
    """Of a slot of the decoder's state."""
    state = decoder_state(c, 1, torch.device("meta"))
    return sum(tensor.nbytes for tensor in (state.pasts, state.ring, state.position))


def _state(c: MimiConfig, size: int, slots: int, device: torch.device | None) -> StreamState:
    t = c.transformer
    return StreamState(
        pasts=torch.zeros(slots, size, device=device),
        ring=torch.zeros(slots, t.layers, 2, t.heads, t.context, c.dim // t.heads, device=device),
        position=torch.zeros(slots, dtype=torch.int64, device=device),
    )
