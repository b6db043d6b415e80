"""The codec oracle: the spectral decoder as offline torch, whole utterances at once, no history kept anywhere.

Written from the built-in voice's codec folder (``codec.json``, ``codec.safetensors``; their README states the layout).
F frames at 12.5 Hz, N = 8 F sub-frames at 100 Hz, S = 1,920 F samples at 24 kHz.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file


@dataclass(frozen=True, slots=True)
class SpectralConfig:
    """The fields of ``codec.json`` that the decoder reads."""

    codebooks: int
    frame_layers: int
    subframes: int
    layers: int
    n_fft: int
    hop: int
    gain: float
    log_magnitude_max: float


class SpectralReference:
    """Decoder of the spectral codec in float32 (or ``dtype``), for batches of whole code sequences."""

    def __init__(self, config: SpectralConfig, weights: dict[str, torch.Tensor]) -> None:
        self.config = config
        self._weights = weights
        some = next(iter(weights.values()))
        self._window = torch.hann_window(config.n_fft, periodic=True, dtype=some.dtype)

    @classmethod
    def load(cls, folder: Path | str, dtype: torch.dtype = torch.float32) -> SpectralReference:
        folder = Path(folder)
        fields = json.loads((folder / "codec.json").read_text(encoding="utf-8"))
        config = SpectralConfig(**{name: fields[name] for name in SpectralConfig.__slots__})
        weights = load_file(folder / "codec.safetensors")
        return cls(config, {name: tensor.to(dtype) for name, tensor in weights.items()})

    @torch.no_grad()
    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        """[B, Q, F] int64 codes, each in ``range(bins)``, to [B, S] samples at 24 kHz, not clipped.

        The last 720 samples hold what these frames give them; a further frame would still have added to them.
        """
        return self._synthesise(self.spectrum(self.latents(codes)))

    def latents(self, codes: torch.Tensor) -> torch.Tensor:
        """[B, Q, F] codes to [B, F, latent_dim]: the codebooks' rows added up in order."""
        total = self._weights["quantizer.0.embedding"][codes[:, 0]]
        for q in range(1, self.config.codebooks):
            total = total + self._weights[f"quantizer.{q}.embedding"][codes[:, q]]
        return total

    def spectrum(self, latents: torch.Tensor) -> torch.Tensor:
        """[B, F, latent_dim] to [B, N, n_fft / 2 + 1] complex."""
        x = self._linear("pd", latents)
        for layer in range(self.config.frame_layers):
            x = self._block(f"c1.{layer}", x)
        x = self._linear("up", x)  # [B, F, subframes * dim]
        x = x.view(len(x), -1, x.shape[-1] // self.config.subframes)  # [B, N, dim]
        for layer in range(self.config.layers):
            x = self._block(f"c2.{layer}", x)
        log_magnitude, phase = self._linear("h", self._norm("n", x, eps=1e-5)).chunk(2, dim=-1)
        return torch.polar(torch.exp(log_magnitude.clamp(max=self.config.log_magnitude_max)), phase)

    def _synthesise(self, spectrum: torch.Tensor) -> torch.Tensor:
        """Overlap-add of windowed inverse transforms; sub-frame j covers samples [(j - 3) * hop, (j + 1) * hop)."""
        n_fft, hop = self.config.n_fft, self.config.hop
        windows = torch.fft.irfft(spectrum, n_fft) * self._window  # [B, N, n_fft]
        count = windows.shape[1]
        late = n_fft - hop
        total = late + count * hop
        added = F.fold(windows.transpose(1, 2), (1, total), (1, n_fft), stride=(1, hop))[:, 0, 0]  # [B, total]
        return added[:, late:] * self.config.gain

    def _block(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """Causal ConvNeXt block on [B, T, D]; the past before the first step is zeros."""
        kernel = self._weights[f"decoder.{name}.dw.weight"]  # [D, 1, K], depthwise
        bias = self._weights[f"decoder.{name}.dw.bias"]
        padded = F.pad(x.transpose(1, 2), (kernel.shape[-1] - 1, 0))
        y = F.conv1d(padded, kernel, bias, groups=len(kernel)).transpose(1, 2)
        y = F.gelu(self._linear(f"{name}.a", self._norm(f"{name}.n", y, eps=1e-6)))
        return x + self._weights[f"decoder.{name}.g"] * self._linear(f"{name}.b", y)

    def _linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self._weights[f"decoder.{name}.weight"], self._weights[f"decoder.{name}.bias"])

    def _norm(self, name: str, x: torch.Tensor, eps: float) -> torch.Tensor:
        weight = self._weights[f"decoder.{name}.weight"]
        return F.layer_norm(x, weight.shape, weight, self._weights[f"decoder.{name}.bias"], eps)
