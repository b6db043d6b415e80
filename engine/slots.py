"""The slots' static buffers that all kernels share: text machine, token history, options."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.config import ModelConfig
from engine.contract import SlotOptions
from engine.sampling import Draws
from engine.text import FIELDS, Field, TextBuffers, initial_state

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
    def empty(cls, config: ModelConfig, capacity: int, device: torch.device) -> SlotBuffers:
        shape = (capacity, config.max_delay + 1, 1 + config.codebooks)
        most = PREFIX_FRAMES if config.takes_prefixes else 0
        return cls(
            TextBuffers.empty(capacity, device),
            torch.zeros(shape, dtype=torch.int64, device=device),
            torch.zeros(capacity, 4, dtype=torch.int64, device=device),
            torch.zeros(capacity, 3, device=device),
            torch.ones(capacity, device=device),
            torch.zeros(capacity, dtype=torch.int64, device=device),
            torch.zeros(capacity, dtype=torch.int64, device=device),
            torch.zeros(capacity, most, shape[2], dtype=torch.int64, device=device),
        )

    def reset(self, slot: int, config: ModelConfig, o: SlotOptions) -> None:
        """Put a slot at the beginning of a generation."""
        device = self.history.device
        state = torch.tensor(initial_state(config.text, o.max_padding), device=device)
        assert state.shape == (FIELDS,)
        self.text.state[slot] = state
        self.text.word_begin[slot, 0] = 0
        self.history[slot] = 0
        seed = o.seed - (1 << 64) if o.seed >= 1 << 63 else o.seed
        self.whole[slot] = torch.tensor([seed, o.generation, o.top_k, o.top_k_text], device=device)
        self.real[slot] = torch.tensor([o.temperature, o.temperature_text, o.padding_bonus], device=device)
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
