"""The slots' static buffers that all kernels share: text machine, token history, options."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.config import ModelConfig
from engine.contract import SlotOptions
from engine.sampling import Draws
from engine.text import FIELDS, Field, TextBuffers, initial_state


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

    @classmethod
    def empty(cls, config: ModelConfig, capacity: int, device: torch.device) -> SlotBuffers:
        shape = (capacity, config.max_delay + 1, 1 + config.codebooks)
        return cls(
            TextBuffers.empty(capacity, device),
            torch.zeros(shape, dtype=torch.int64, device=device),
            torch.zeros(capacity, 4, dtype=torch.int64, device=device),
            torch.zeros(capacity, 3, device=device),
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
