"""The built-in voice's codec in torch, streaming: codes of one frame -> 1,920 samples.

The oracle of ``cuda_ext/spectral.cpp``, and the path on CUDA. Sub-frame j's window covers samples
[(j - 3) * hop, (j + 1) * hop), so a frame's samples are complete ``overlap`` = 720 samples late: a step returns the
samples from 720 before its frame on, and what the next frame would complete stays at the end of the slot's history.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.checkpoint import BlockWeights, SpectralWeights
from engine.config import SpectralConfig

BLOCK_EPS = 1e-6
HEAD_EPS = 1e-5


def history_size(c: SpectralConfig) -> int:
    """Floats of a slot's history: inputs of the causal convolutions, oldest first, then the overlap-add line."""
    return c.frame_layers * (c.frame_kernel - 1) * c.frame_dim + c.layers * (c.kernel - 1) * c.dim + c.n_fft


def reach(c: SpectralConfig) -> int:
    """Frames before a frame that its samples depend on."""
    subframes = c.layers * (c.kernel - 1) + c.overlap // c.hop
    return c.frame_layers * (c.frame_kernel - 1) + -(-subframes // c.subframes)


def window(c: SpectralConfig, device: torch.device | None = None) -> Tensor:
    """Periodic Hann window times the decoder's gain, float32 [n_fft]."""
    return torch.hann_window(c.n_fft, device=device) * c.gain


def _block(w: BlockWeights, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
    """x: [rows, time, dim]; past: [rows, kernel - 1, dim] -> the block's output and its next past."""
    joined = torch.cat([past, x], dim=1)
    kernel, time = w.taps.shape[0], x.shape[1]
    y = w.taps_bias.expand_as(x)
    for tap in range(kernel):
        y = y + w.taps[tap] * joined[:, tap : tap + time]
    y = F.layer_norm(y, (x.shape[2],), w.norm, w.norm_bias, BLOCK_EPS)
    y = F.linear(F.gelu(F.linear(y, w.up, w.up_bias)), w.down, w.down_bias)
    return x + w.gamma * y, joined[:, time:]


def decode_heads(weights: SpectralWeights, c: SpectralConfig, codes: Tensor, history: Tensor) -> tuple[Tensor, Tensor]:
    """As ``decode``, up to the spectra: log magnitudes and phases [rows, subframes, 2 * (n_fft / 2 + 1)], and the next
    history but for its last n_fft numbers, which are not read."""
    rows = codes.shape[0]
    latent = weights.codebooks[0][codes[:, 0]]
    for book in range(1, c.codebooks):
        latent = latent + weights.codebooks[book][codes[:, book]]
    x = F.linear(latent, *weights.project)[:, None]
    at, kept = 0, []
    for block in weights.frame_blocks:
        size = (c.frame_kernel - 1) * c.frame_dim
        x, past = _block(block, x, history[:, at : at + size].view(rows, -1, c.frame_dim))
        at += size
        kept.append(past.flatten(1))
    x = F.linear(x, *weights.expand).view(rows, c.subframes, c.dim)
    for block in weights.sub_blocks:
        size = (c.kernel - 1) * c.dim
        x, past = _block(block, x, history[:, at : at + size].view(rows, -1, c.dim))
        at += size
        kept.append(past.flatten(1))
    x = F.linear(F.layer_norm(x, (c.dim,), *weights.norm, HEAD_EPS), *weights.head)
    return x, torch.cat(kept, dim=1)


def decode(weights: SpectralWeights, c: SpectralConfig, codes: Tensor, history: Tensor) -> tuple[Tensor, Tensor]:
    """codes: int64 [rows, codebooks]; history: float32 [rows, history_size] -> samples float32 [rows, 1920] and the
    next history."""
    heads, kept = decode_heads(weights, c, codes, history)
    log_magnitude, phase = heads.chunk(2, dim=-1)
    spectrum = torch.polar(log_magnitude.clamp(max=c.log_magnitude_max).exp(), phase)
    waves = torch.fft.irfft(spectrum, c.n_fft) * window(c, codes.device)
    line = F.pad(history[:, kept.shape[1] :], (0, (c.subframes - 1) * c.hop))
    for index in range(c.subframes):
        line = line + F.pad(waves[:, index], (index * c.hop, (c.subframes - 1 - index) * c.hop))
    samples, tail = line[:, : c.frame_samples], line[:, c.frame_samples :]
    return samples, torch.cat([kept, F.pad(tail, (0, c.hop))], dim=1)
