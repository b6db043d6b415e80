"""Top-k + Gumbel sampling with counter noise, in torch: the oracle of ``cuda_ext/sampling.h`` and the CUDA path.

The draw of a token depends on (seed, generation, step, codebook, token) alone, so batch mates, order and retries never
change it. Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Adding Gumbel noise to
logits / temperature and taking the largest samples the softmax (Gumbel 1954; moshi ``utils/sampling.py`` runs the same
race with exponential variables).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Draws:
    """What the rows of one step draw with; all [rows]."""

    seed: Tensor
    """int64, the bits of the unsigned seed."""
    generation: Tensor
    """int64"""
    step: Tensor
    """int64"""
    temperature: Tensor
    """float32; 0 = arg-max."""
    top_k: Tensor
    """int64; 0 = all."""


def philox(seed: Tensor, counter: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    """First output word of Philox4x32-10 as int64 in [0, 2^32); the arguments broadcast."""
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    c0, c1, c2, c3 = counter
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57  # wrap modulo 2^64; the low and high words stay right
        c0, c1 = ((b >> 32) & _MASK) ^ c1 ^ k0, b & _MASK
        c2, c3 = ((a >> 32) & _MASK) ^ c3 ^ k1, a & _MASK
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return c0


def gumbel(draws: Draws, codebook: int, count: int) -> Tensor:
    """Standard Gumbel noise, float32 [rows, count]."""
    token = torch.arange(count, device=draws.seed.device)[None]
    word = philox(
        draws.seed[:, None],
        (
            token,
            torch.full_like(token, codebook),
            (draws.step & _MASK)[:, None],
            (draws.generation & _MASK)[:, None],
        ),
    )
    uniform = ((word >> 9).float() + 0.5) * 2.0**-23
    return -torch.log(-torch.log(uniform))


def sample(logits: Tensor, draws: Draws, codebook: int) -> Tensor:
    """logits: float32 [rows, card] -> tokens int64 [rows]. Ties at the k-th value are all kept."""
    card = logits.shape[1]
    ranked = logits.sort(dim=1, descending=True).values
    last = torch.where((draws.top_k <= 0) | (draws.top_k > card), card, draws.top_k) - 1
    kept = logits >= ranked.gather(1, last[:, None])
    cold = (draws.temperature <= 0)[:, None]
    heat = torch.where(cold, 1.0, draws.temperature[:, None])
    noisy = torch.where(kept, logits / heat + gumbel(draws, codebook, card), -torch.inf)
    return torch.where(cold, logits, noisy).argmax(dim=1)
