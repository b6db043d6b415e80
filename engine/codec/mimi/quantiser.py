"""Split residual vector quantisation (moshi ``quantization/``): codes <-> latents.

The first (semantic) and the other (acoustic) codebooks are two stacks with projections of their own; both quantise the
same latent, and their decoded latents are added.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class StackWeights:
    project_in: Tensor
    """[codebook_dim, dim]"""
    project_out: Tensor
    """[dim, codebook_dim]"""
    codebooks: tuple[Tensor, ...]
    """Each [bins, codebook_dim]."""


@dataclass(frozen=True, slots=True)
class QuantiserWeights:
    semantic: StackWeights
    acoustic: StackWeights

    @property
    def codebooks(self) -> int:
        return len(self.semantic.codebooks) + len(self.acoustic.codebooks)


def decode(w: QuantiserWeights, codes: Tensor) -> Tensor:
    """codes: int64 [rows, codebooks], any number up to the weights', below 0 taken as 0 -> [rows, dim]"""
    split = len(w.semantic.codebooks)
    codes = codes.clamp(min=0)
    latent = _decode(w.semantic, codes[:, :split])
    return latent + _decode(w.acoustic, codes[:, split:]) if codes.shape[1] > split else latent


def encode(w: QuantiserWeights, latents: Tensor, codebooks: int) -> Tensor:
    """latents: [rows, frames, dim] -> codes int64 [rows, codebooks, frames]"""
    split = len(w.semantic.codebooks)
    return torch.stack(
        _encode(w.semantic, latents, min(codebooks, split)) + _encode(w.acoustic, latents, codebooks - split), dim=1
    )


def _decode(w: StackWeights, codes: Tensor) -> Tensor:
    total = w.codebooks[0][codes[:, 0]]
    for book in range(1, codes.shape[1]):
        total = total + w.codebooks[book][codes[:, book]]
    return F.linear(total, w.project_out)


def _encode(w: StackWeights, latents: Tensor, codebooks: int) -> list[Tensor]:
    codes: list[Tensor] = []
    left = F.linear(latents, w.project_in)
    for table in w.codebooks[: max(codebooks, 0)]:
        nearest = torch.cdist(left.flatten(0, 1)[None], table[None])[0].argmin(dim=-1).view(left.shape[:2])
        codes.append(nearest)
        left = left - table[nearest]
    return codes
