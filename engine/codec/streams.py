"""The codecs as the kernels use them: a stream of samples for every slot, its history kept between frames."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from engine.checkpoint import SpectralWeights
from engine.codec import spectral
from engine.codec.mimi import decoder
from engine.codec.mimi.config import MimiConfig
from engine.codec.mimi.decoder import DecoderWeights
from engine.codec.mimi.state import StreamState, decoder_state
from engine.config import SpectralConfig

Saved = tuple[Tensor, ...]
"""Copies of one slot's state."""


class CodecStream(Protocol):
    def clear(self, slot: int) -> None:
        """Forget a slot's history."""
        ...

    def decode(self, codes: Tensor, slots: Tensor, commit: Tensor) -> Tensor:
        """codes: int64 [rows, codebooks], each >= 0 -> float32 [rows, frame_samples]; committed histories advance."""
        ...

    def tail(self, slot: int) -> Tensor:
        """The samples that the next frame would have completed, float32 [overlap]; they are cleared."""
        ...

    def tails(self, slots: Tensor, over: Tensor) -> Tensor:
        """The same for rows of a step, without a look at the host: float32 [rows, overlap], cleared where ``over``."""
        ...

    def save(self, slot: int) -> Saved:
        """What ``restore`` puts into a slot again."""
        ...

    def restore(self, slot: int, saved: Saved) -> None: ...


class SpectralStream:
    def __init__(self, weights: SpectralWeights, config: SpectralConfig, capacity: int, device: torch.device) -> None:
        """weights: float32 on ``device``."""
        self._weights, self._config = weights, config
        self._history = torch.zeros(capacity, spectral.history_size(config), device=device)

    def clear(self, slot: int) -> None:
        self._history[slot].zero_()

    def decode(self, codes: Tensor, slots: Tensor, commit: Tensor) -> Tensor:
        old = self._history[slots]
        samples, new = spectral.decode(self._weights, self._config, codes, old)
        self._history[slots] = torch.where(commit[:, None], new, old)
        return samples

    def tail(self, slot: int) -> Tensor:
        line = self._history[slot, -self._config.n_fft :]
        tail = line[: self._config.overlap].clone()
        line.zero_()
        return tail

    def tails(self, slots: Tensor, over: Tensor) -> Tensor:
        lines = self._history[slots, -self._config.n_fft :]
        self._history[slots, -self._config.n_fft :] = torch.where(over[:, None], 0.0, lines)
        return lines[:, : self._config.overlap]

    def save(self, slot: int) -> Saved:
        return (self._history[slot].clone(),)

    def restore(self, slot: int, saved: Saved) -> None:
        self._history[slot] = saved[0]


class MimiStream:
    def __init__(self, weights: DecoderWeights, config: MimiConfig, capacity: int, device: torch.device) -> None:
        """weights: float32 on ``device``."""
        self._weights, self._config, self._device = weights, config, device
        self._state: StreamState = decoder_state(config, capacity, device)

    def clear(self, slot: int) -> None:
        self._state.clear(slot)

    def decode(self, codes: Tensor, slots: Tensor, commit: Tensor) -> Tensor:
        samples, advance = decoder.decode(self._weights, self._config, codes, self._state, slots)
        self._state.advance(slots, commit, advance)
        return samples

    def tail(self, slot: int) -> Tensor:
        """Empty: a Mimi frame is complete at once."""
        return torch.empty(0, device=self._device)

    def tails(self, slots: Tensor, over: Tensor) -> Tensor:
        return torch.empty(len(slots), 0, device=self._device)

    def save(self, slot: int) -> Saved:
        one = self._state.gather(torch.tensor([slot], device=self._device))
        return (one.pasts, one.ring, one.position)

    def restore(self, slot: int, saved: Saved) -> None:
        pasts, ring, position = saved
        self._state.scatter(torch.tensor([slot], device=self._device), StreamState(pasts, ring, position))
