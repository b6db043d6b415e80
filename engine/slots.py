"""The slots' static buffers that all kernels share: text machine, token history, options."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.config import ModelConfig
from engine.contract import SlotOptions
from engine.control import Control
from engine.sampling import Draws
from engine.text import Field, TextBuffers, initial_state

PREFIX_FRAMES = 375
"""Longest audio prefix: 30 s."""


@dataclass(frozen=True, slots=True)
class SlotBuffers:
    """Rows of static buffers on the device; a slot is a row index."""

    text: TextBuffers
    history: Tensor
    """int64 [capacity, max_delay + 1, 1 + codebooks]: tokens of the last steps, the newest first."""
    whole: Tensor
    """int64 [capacity, 4]: seed (bits), generation, top_k, top_k_text."""
    real: Tensor
    """float32 [capacity, 3]: temperature, temperature_text, padding_bonus."""
    strength: Tensor
    """float32 [capacity]: of classifier-free guidance; 1 = none."""
    base: Tensor
    """int64 [capacity]: steps of the generation that were left out: the model's own place is so much less."""
    prefix_length: Tensor
    """int64 [capacity]: frames of audio that a generation goes on from."""
    prefix: Tensor
    """int64 [capacity, PREFIX_FRAMES, 1 + codebooks]: those frames, their text tokens first."""

    @classmethod
    def empty(cls, config: ModelConfig, capacity: int, device: torch.device, spare: int = 0) -> SlotBuffers:
        """spare: numbers to leave free at the end of the arena."""
        shape = (capacity, config.max_delay + 1, 1 + config.codebooks)
        most = PREFIX_FRAMES if config.takes_prefixes else 0
        text = [(capacity, width) for width in TextBuffers.widths()]
        state, tokens, word_begin, entries, whole, _ = _carved(device, *text, (capacity, 4), (spare,))
        return cls(
            TextBuffers(state, tokens, word_begin, entries),
            torch.zeros(shape, dtype=torch.int64, device=device),
            whole,
            torch.zeros(capacity, 3, device=device),
            torch.ones(capacity, device=device),
            torch.zeros(capacity, dtype=torch.int64, device=device),
            torch.zeros(capacity, dtype=torch.int64, device=device),
            torch.zeros(capacity, most, shape[2], dtype=torch.int64, device=device),
        )

    @property
    def arena(self) -> Tensor:
        """int64, flat: what ``text`` and ``whole`` are parts of, and the spare numbers behind them."""
        state = self.text.state
        return state.as_strided((state.untyped_storage().nbytes() // state.itemsize,), (1,), 0)

    def reset(self, slot: int, config: ModelConfig, o: SlotOptions, control: Control) -> None:
        """Put a slot at the beginning of a generation."""
        seed = o.seed - (1 << 64) if o.seed >= 1 << 63 else o.seed
        control.put(self.text.state, slot, 0, initial_state(config.text, o.max_padding))
        control.put(self.text.word_begin, slot, 0, (0,))
        control.put(self.whole, slot, 0, (seed, o.generation, o.top_k, o.top_k_text))
        control.apply()
        self.history[slot] = 0
        for column, value in enumerate((o.temperature, o.temperature_text, o.padding_bonus)):
            self.real[slot, column] = value
        self.strength[slot] = 1.0
        self.base[slot] = 0
        self.prefix_length[slot] = 0

    def go_on_from(self, slot: int, prefix: Tensor) -> None:
        """Let a generation begin with given frames. prefix: int64 [frames, 1 + codebooks]; its audio is not sent."""
        frames = len(prefix)
        self.prefix[slot, :frames] = prefix.to(self.prefix.device)
        self.prefix_length[slot] = frames
        self.text.state[slot, Field.MUTE_UNTIL] = frames

    def leave_out(self, slot: int, steps: int) -> None:
        """Let a generation go on as if so many more steps had been taken, and let it want a word."""
        self.base[slot] += steps
        state = self.text.state[slot]
        state[Field.STEP] += steps
        state[Field.REMAINING_PADDING] = state[Field.FORCED_PADDING] = 0

    def draws(self, slots: Tensor, step: Tensor) -> tuple[Draws, Draws, Tensor]:
        """Audio draws, text draws and the padding bonus [rows] of these slots at these steps."""
        seed, generation, top_k, top_k_text = self.whole[slots].unbind(1)
        heat, heat_text, bonus = self.real[slots].unbind(1)
        seed = seed.contiguous()
        audio = Draws(seed, generation, step, heat.contiguous(), top_k)
        return audio, Draws(seed, generation, step, heat_text.contiguous(), top_k_text), bonus

    def position(self, slots: Tensor) -> Tensor:
        """Steps committed, int64 [rows]."""
        return self.text.state[slots, Field.STEP]


def _carved(device: torch.device, *shapes: tuple[int, ...]) -> list[Tensor]:
    """Zeros of these shapes, one behind the other in one int64 tensor."""
    sizes = [math.prod(shape) for shape in shapes]
    parts = torch.split(torch.zeros(sum(sizes), dtype=torch.int64, device=device), sizes)
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
