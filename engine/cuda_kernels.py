"""``Kernels`` on a CUDA device: the phases of ``cuda_ext`` where they pay, torch for the rest.

- The codebooks of a frame are one launch, up to ``DEPTH_ROWS`` rows.
- A backbone step is five launches a layer up to ``FEW_ROWS`` rows, where launches and the weights' memory decide. With
  more rows the products are torch's (tensor cores), and attention reads the rings and voices where they lie: torch
  would copy all keys and values of all rows in every layer.
- Sampling the text token, the text machine and the end of the spectral codec are one launch each (the codec's two).

It runs on the CPU by the host twin too, which is how it is tested without a device.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from cuda_ext.device import MOST_POSITIONS, VECTOR
from engine import backbone as reference
from engine import ops, packing, text
from engine.backbone import Seen
from engine.checkpoint import Checkpoint, MimiCheckpoint, SpectralWeights
from engine.codec import spectral
from engine.codec.streams import CodecStream, SpectralStream
from engine.config import SpectralConfig
from engine.depth import Guidance
from engine.kernels import TorchKernels, moved
from engine.sampling import Draws
from engine.text import TextBuffers, TextStep

FEW_ROWS = 8
"""Above that a product reads its weights more than twice from the cache, and tensor cores win."""
DEPTH_ROWS = 64


def refusals(model: Checkpoint | MimiCheckpoint) -> tuple[str, ...]:
    """What of this model torch computes in the place of the phases."""
    found = [packing.depth_refused(model.config), packing.backbone_refused(model.config)]
    if isinstance(model, Checkpoint):
        found.append(packing.spectral_refused(model.codec))
    return tuple(reason for reason in found if reason is not None)


def by_index(q: Tensor, keys: Tensor, values: Tensor, seen: Seen) -> Tensor:
    """``engine.backbone.gathered`` in place: nothing of the table is copied, unless it is longer than a block takes."""
    if keys.shape[2] > MOST_POSITIONS or q.shape[2] % VECTOR:
        return reference.gathered(q, keys, values, seen)
    if not keys[0].is_contiguous():  # one voice cut out of a table, on the CPU
        keys, values = keys.contiguous(), values.contiguous()
    mixed: Tensor = ops.attend(q.float(), keys, values, seen.index, None, seen.count)
    return mixed.to(q.dtype)


class CudaKernels(TorchKernels):
    """As ``TorchKernels``; not thread-safe, and of one stream alone: the depth's blocks meet at a counter."""

    def __init__(
        self,
        model: Checkpoint | MimiCheckpoint,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        codec: CodecStream | None = None,
        int8: bool = False,
        few_rows: int = FEW_ROWS,
    ) -> None:
        """Raises BuildError if the phases cannot be built here."""
        if codec is None and isinstance(model, Checkpoint) and packing.spectral_refused(model.codec) is None:
            codec = SpectralWaves(moved(model.spectral, device, torch.float32), model.codec, capacity, device)
        super().__init__(model, capacity, device, row_by_row=False, dtype=dtype, codec=codec, int8=int8)
        config = model.config
        self._few_rows = few_rows
        self._counter = torch.zeros(1, dtype=torch.int32, device=device)
        self._packed_depth = None
        if packing.depth_refused(config) is None:
            self._packed_depth = packing.pack_depth(self._depth, config, device)
        self._packed_backbone = None
        if packing.backbone_refused(config) is None:
            self._packed_backbone = packing.pack_backbone(self._backbone, config, self._kv.shape[2], self._kv)

    def backbone(self, tokens: Tensor, slots: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        x, heard = reference.embed(self._backbone, self._config, tokens), None
        if self.conditions is not None:
            x, heard = self.conditions.add(x, slots), self.conditions.heard(slots)
        longest = 0 if heard is None else heard.keys_values.shape[4]
        if self._packed_backbone is None or len(slots) > self._few_rows or longest > MOST_POSITIONS:
            hidden = reference.step(self._backbone, self._config, x, self._kv, slots, position, heard, by_index)
        else:
            voices = None if heard is None else heard.keys_values.contiguous()
            of = (None, None) if heard is None else (heard.voice, heard.length)
            wide, handle = x.float().contiguous(), self._packed_backbone.handle
            hidden = ops.backbone_step(wide, self._kv, slots, position, None, voices, *of, handle)
            hidden = hidden.to(self._backbone.text_head.dtype)
        return hidden, F.linear(hidden, self._backbone.text_head, self._backbone.text_bias).float()

    def sample_text(self, logits: Tensor, draws: Draws) -> Tensor:
        columns = (draws.seed, draws.generation, draws.step, draws.temperature, draws.top_k)
        tokens: Tensor = ops.sample(logits, *columns, 0)
        return tokens

    def advance_text(
        self, buffers: TextBuffers, slots: Tensor, sampled: Tensor, ahead: int, card: int, padding_id: int
    ) -> TextStep:
        rings = (buffers.state, buffers.tokens, buffers.word_begin, buffers.entries)
        assert buffers.state.shape[1] == text.FIELDS
        return TextStep(*ops.text_step(*rings, slots, sampled, ahead, card, padding_id))

    def depth(
        self,
        hidden: Tensor,
        text: Tensor,
        draws: Draws,
        forced: Tensor | None,
        commit: Tensor,
        guidance: Guidance | None = None,
    ) -> Tensor:
        rows = len(text) + (len(guidance.rows) if guidance else 0)
        if self._packed_depth is None or rows > DEPTH_ROWS:
            return super().depth(hidden, text, draws, forced, commit, guidance)
        first = reference.embed_text(self._depth.text, text, self._config.text_card)
        rows_of = strength = None
        if guidance is not None:
            hidden, first = torch.cat([hidden, guidance.hidden]), torch.cat([first, first[guidance.rows]])
            rows_of, strength = guidance.rows.contiguous(), guidance.strength.float().contiguous()
        columns = (draws.seed, draws.generation, draws.step, draws.temperature, draws.top_k)
        tokens: Tensor
        tokens, logits = ops.depth_frame(
            hidden.float(),
            first.float(),
            *columns,
            forced,
            rows_of,
            strength,
            self._counter,
            self._packed_depth.handle,
            self._config.generated,
            self._config.card,
        )
        self.logits = logits[: len(text)] if self.keep_logits else None
        return tokens


class SpectralWaves(SpectralStream):
    """The spectral codec whose spectra become samples in two launches."""

    def __init__(self, weights: SpectralWeights, config: SpectralConfig, capacity: int, device: torch.device) -> None:
        super().__init__(weights, config, capacity, device)
        self._circle = packing.circle(config.n_fft, device)
        self._window = spectral.window(config, device) / config.n_fft
        self._radix = max(f for f in range(1, int(config.n_fft**0.5) + 1) if config.n_fft % f == 0)

    def decode(self, codes: Tensor, slots: Tensor, commit: Tensor) -> Tensor:
        c = self._config
        at = self._history.shape[1] - c.n_fft
        old = self._history[slots, :at]
        heads, kept = spectral.decode_heads(self._weights, c, codes, old)
        self._history[slots, :at] = torch.where(commit[:, None], kept, old)
        samples: Tensor = ops.spectral_wave(
            heads,
            self._history[:, at:],
            slots,
            commit,
            self._circle,
            self._window,
            self._radix,
            c.hop,
            c.log_magnitude_max,
        )
        return samples
