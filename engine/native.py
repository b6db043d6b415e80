"""The CPU's fast path: the heavy operations of a frame as single C++ calls over packed weights.

Rows are computed in a fixed order of arithmetic each, so a row's bits never depend on its batch. Precisions:

- ``float32``: float16 weights stay float16 in memory and are widened exactly; products and sums are float32.
- ``bfloat16``: as float32 with the matrices rounded to bfloat16: what other machines' arithmetic does to the voice.
- ``fixed16``: matrix products of 16-bit whole numbers, activations scaled by row and weights by column (``fixed.h``),
  on the CPU's matrix tiles where it has them; keys and values are 8-bit.
- ``int8``: the same with 8-bit weights.
"""

from __future__ import annotations

import ctypes
import math
from typing import Literal

import torch
from torch import Tensor

from cuda_ext import kernels as k
from engine import backbone as reference
from engine.checkpoint import BlockWeights, Checkpoint
from engine.codec import spectral
from engine.config import ZERO
from engine.kernels import REBUILD_ROWS
from engine.language import TextTables
from engine.layers import NORM_EPS, rope_frequencies
from engine.sampling import Draws
from engine.slots import SlotBuffers
from engine.text import ENTRY_RING, TOKEN_RING

Precision = Literal["float32", "bfloat16", "fixed16", "int8"]
KINDS = {"float32": None, "bfloat16": k.FLOAT_PANELS, "fixed16": k.FIXED_16, "int8": k.FIXED_8}
FIXED = frozenset({"fixed16", "int8"})


def supports(model: Checkpoint) -> bool:
    """Whether the kernels take this model's structure (that of the built-in voice) and its widths (multiples of 16
    lanes)."""
    c, d, s = model.config.backbone, model.config.depth, model.codec
    plain = all(
        (part.norm, part.gating, part.layer_scale, part.cross_attention) == ("rms_norm_f32", "silu", False, False)
        for part in (c, d)
    )
    config = model.config
    if not plain or (c.positions, d.positions) != ("rope", "none") or config.conditioners is not None:
        return False
    if config.head_bias or config.depth_norm or not config.depth_inputs or config.generated != config.codebooks:
        return False
    if len(set(config.set_hidden)) > 1:
        return False
    widths = (c.dim, c.hidden, c.dim // c.heads, d.dim, d.hidden, d.dim // d.heads, model.config.card)
    return all(width % k.LANES == 0 for width in (*widths, s.latent_dim, s.frame_dim, s.frame_hidden, s.dim, s.hidden))


class NativeKernels:
    """Not thread-safe: scratch is shared by the calls. Up to ``max_rows`` rows a call, or REBUILD_ROWS if that is more.

    Rows of one slot at following positions may go together: each sees what those before it have written.
    """

    row_independent = True

    def __init__(self, model: Checkpoint, capacity: int, max_rows: int, precision: Precision = "float32") -> None:
        max_rows = max(max_rows, REBUILD_ROWS)
        self._lib = k.load()
        self.precision = precision
        self._byte_cache = precision in FIXED
        self._config, self._codec_config = model.config, model.codec
        self._embeddings = model.backbone
        self._depth_text = model.depth.text
        self._packer = k.Packer.empty(KINDS[precision], torch.bfloat16 if precision == "bfloat16" else None)
        self._backbone = self._pack_backbone(model, capacity)
        self._head = self._packer.linear(model.backbone.text_head)
        self._depth = self._pack_depth(model)
        self._spectral = self._pack_spectral(model)
        c = model.config.backbone
        each = k.ring_bytes(model.config.context, c.dim // c.heads, self._byte_cache)
        self._kv = torch.zeros(c.layers, 2, capacity, c.heads, each, dtype=torch.uint8)
        self._history = torch.zeros(capacity, spectral.history_size(model.codec))
        self._scratch = torch.zeros(self._scratch_floats(max_rows))
        self._pointers = (ctypes.c_void_p * max_rows)()
        self._max_rows = max_rows
        self.keep_logits = False
        self.logits: Tensor | None = None  # audio logits of the last depth call, committed rows only

    @property
    def text_choices(self) -> int:
        """Outputs of the text head."""
        return int(self._head.outputs)

    def clear(self, slot: int) -> None:
        self._history[slot].zero_()

    def backbone(self, tokens: Tensor, slots: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        rows = len(slots)
        assert rows <= self._max_rows, f"{rows} rows, packed for {self._max_rows}"
        x = reference.embed(self._embeddings, self._config, tokens)
        narrow = slots.to(torch.int32)
        self._lib.antiphon_backbone(
            ctypes.addressof(self._backbone),
            rows,
            narrow.data_ptr(),
            position.data_ptr(),
            x.data_ptr(),
            self._kv.data_ptr(),
            self._scratch.data_ptr(),
        )
        logits = torch.empty(rows, self._head.panels * k.LANES)
        width = logits.shape[1]
        self._lib.antiphon_linear(
            ctypes.addressof(self._head), rows, x.data_ptr(), x.shape[1], logits.data_ptr(), width
        )
        return x, logits[:, : self._head.outputs]

    def sample_text(self, logits: Tensor, draws: Draws) -> Tensor:
        rows = len(draws.step)
        logits, packed = logits.contiguous(), packed_draws(draws)
        out = torch.empty(rows, dtype=torch.int64)
        card = logits.shape[1]
        self._lib.antiphon_sample(rows, logits.data_ptr(), card, card, packed.data_ptr(), 0, out.data_ptr())
        return out

    def depth(self, hidden: Tensor, text: Tensor, draws: Draws, forced: Tensor | None, commit: Tensor) -> Tensor:
        config, chosen = self._config, commit.nonzero()[:, 0]
        rows = len(chosen)
        first = reference.embed_text(self._depth_text, text[chosen], config.text_card)
        packed = packed_draws(draws)[chosen]
        hidden, forced = hidden[chosen], forced[chosen] if forced is not None else None
        tokens = torch.empty(rows, config.codebooks, dtype=torch.int64)
        self.logits = torch.empty(rows, config.codebooks, config.card) if self.keep_logits else None
        self._lib.antiphon_depth(
            ctypes.addressof(self._depth),
            rows,
            hidden.data_ptr(),
            first.data_ptr(),
            packed.data_ptr(),
            forced.data_ptr() if forced is not None else None,
            tokens.data_ptr(),
            self.logits.data_ptr() if self.logits is not None else None,
            self._scratch.data_ptr(),
        )
        if rows == len(text):
            return tokens
        return torch.full((len(text), config.codebooks), ZERO).index_copy_(0, chosen, tokens)

    def codec(self, codes: Tensor, slots: Tensor, commit: Tensor) -> Tensor:
        samples = torch.zeros(len(slots), self._codec_config.frame_samples)
        chosen = commit.nonzero()[:, 0]
        rows = len(chosen)
        some, narrow = codes[chosen].contiguous(), slots[chosen].to(torch.int32)
        fresh = torch.empty(rows, samples.shape[1])
        self._lib.antiphon_spectral(
            ctypes.addressof(self._spectral),
            rows,
            narrow.data_ptr(),
            some.data_ptr(),
            self._history.data_ptr(),
            fresh.data_ptr(),
            self._scratch.data_ptr(),
            ctypes.addressof(self._pointers),
        )
        if rows == len(slots):
            return fresh
        samples[chosen] = fresh
        return samples

    def codec_tail(self, slot: int) -> Tensor:
        line = self._history[slot, -self._codec_config.n_fft :]
        tail = line[: self._codec_config.overlap].clone()
        line.zero_()
        return tail

    def frame(self, buffers: SlotBuffers) -> k.FrameStruct:
        """The whole model over these buffers, for ``antiphon_frame``; it holds what it points to."""
        config, p, text = self._config, self._packer, buffers.text
        delays = torch.tensor(config.delays)
        p.kept += [delays, buffers]
        machine = config.text

        def tables(weights: TextTables) -> k.TablesStruct:
            second = None if weights.second is None else p.floats(weights.second)
            return k.TablesStruct(p.floats(weights.main), second)

        rings = (text.state, text.tokens, text.word_begin, text.entries, buffers.history, buffers.whole, buffers.real)
        tail = machine.delay_steps + machine.final_padding + config.max_delay
        return k.FrameStruct(
            ctypes.pointer(self._backbone),
            ctypes.pointer(self._head),
            ctypes.pointer(self._depth),
            ctypes.pointer(self._spectral),
            p.floats(self._embeddings.audio),
            tables(self._embeddings.text),
            tables(self._depth_text),
            *(tensor.data_ptr() for tensor in (*rings, buffers.base, self._kv, self._history, delays)),
            *(config.text_card, config.codebooks, config.card, config.max_delay, machine.delay_steps, tail),
            *(config.warm_up_steps, config.padding_id, machine.second_stream_ahead, TOKEN_RING, ENTRY_RING),
            self._codec_config.frame_samples,
        )

    def _scratch_floats(self, rows: int) -> int:
        lib = self._lib
        sizes = (
            lib.antiphon_backbone_scratch(ctypes.addressof(self._backbone), rows),
            lib.antiphon_depth_scratch(ctypes.addressof(self._depth), rows),
            lib.antiphon_spectral_scratch(ctypes.addressof(self._spectral), rows),
        )
        return max(int(size) for size in sizes)

    def _pack_backbone(self, model: Checkpoint, capacity: int) -> k.BackboneStruct:
        p, c = self._packer, model.config.backbone
        layers = [
            k.LayerStruct(
                p.floats(w.norm1), p.linear(w.qkv), p.linear(w.out), p.floats(w.norm2), p.linear(w.up), p.linear(w.down)
            )
            for w in model.backbone.layers
        ]
        frequencies = p.floats(rope_frequencies(c.dim // c.heads, model.config.max_period))
        sizes = (c.layers, c.dim, c.heads, c.hidden, model.config.context, capacity, NORM_EPS, self._byte_cache)
        norm = p.floats(model.backbone.out_norm)
        return k.BackboneStruct(p.array(k.LayerStruct, layers), norm, frequencies, *sizes)

    def _pack_depth(self, model: Checkpoint) -> k.DepthStruct:
        p, config, w = self._packer, model.config, model.depth

        def linears(weights: tuple[Tensor, ...]) -> ctypes.Array[ctypes.Structure]:
            return p.array(k.LinearStruct, [p.linear(weight) for weight in weights])

        layers = [
            k.DepthLayerStruct(
                p.floats(x.norm1), p.floats(x.norm2), linears(x.qkv), linears(x.out), linears(x.up), linears(x.down)
            )
            for x in w.layers
        ]
        d = config.depth
        sizes = (d.layers, d.dim, d.heads, d.hidden, config.codebooks, config.card, config.backbone.dim, NORM_EPS)
        parts = (p.array(k.DepthLayerStruct, layers), linears(w.inputs), linears(w.heads), p.addresses(w.audio), None)
        return k.DepthStruct(*parts, p.integers(config.depth_schedule), *sizes)

    def _pack_spectral(self, model: Checkpoint) -> k.SpectralStruct:
        p, c, w = self._packer, model.codec, model.spectral

        def block(b: BlockWeights) -> k.BlockStruct:
            norms = (p.floats(b.taps), p.floats(b.taps_bias), p.floats(b.norm), p.floats(b.norm_bias))
            return k.BlockStruct(*norms, p.linear(b.up, b.up_bias), p.linear(b.down, b.down_bias), p.floats(b.gamma))

        radix1, radix2 = _radices(c.n_fft)
        tables = _fft_tables(c.n_fft, radix1, radix2)
        blocks = [p.array(k.BlockStruct, [block(b) for b in group]) for group in (w.frame_blocks, w.sub_blocks)]
        linears = (p.linear(*w.project), p.linear(*w.expand), p.linear(*w.head))
        wave = spectral.window(c) / c.n_fft
        return k.SpectralStruct(
            *blocks,
            p.addresses(w.codebooks),
            *linears,
            *(p.floats(x) for x in (*w.norm, wave, *tables)),
            *(c.codebooks, c.latent_dim, c.frame_dim, c.frame_hidden, c.frame_layers, c.frame_kernel),
            *(c.subframes, c.dim, c.hidden, c.layers, c.kernel, c.n_fft, c.hop, radix1, radix2),
            *(c.log_magnitude_max, spectral.BLOCK_EPS, spectral.HEAD_EPS),
        )


def packed_draws(draws: Draws) -> Tensor:
    """Rows of ``DrawStruct`` as int32 [rows, 6]."""
    wide = torch.empty(len(draws.step), 3, dtype=torch.int64)
    wide[:, 0] = draws.seed
    out = wide.view(torch.int32)
    out[:, 2] = draws.generation
    out[:, 3] = draws.step
    out.view(torch.float32)[:, 4] = draws.temperature
    out[:, 5] = draws.top_k
    return out


def _radices(n: int) -> tuple[int, int]:
    """The two factors of n that are closest to each other, the larger first."""
    small = max(f for f in range(1, math.isqrt(n) + 1) if n % f == 0)
    return n // small, small


def _fft_tables(n: int, radix1: int, radix2: int) -> tuple[Tensor, Tensor, Tensor]:
    """stage1, twiddle, stage2 of ``cuda_ext/spectral.cpp`` inverse_fft, float32."""
    vectors = -(-radix2 // k.LANES)
    assert vectors <= 4, f"{n} points are too many for the kernel"
    lanes = k.LANES * (vectors if vectors <= 2 else 4)
    t2 = torch.arange(lanes, dtype=torch.float64)
    inside = (t2 < radix2).double()

    def rows(turns: Tensor) -> Tensor:
        angle = 2 * math.pi * turns
        return torch.stack([angle.cos() * inside, angle.sin() * inside], dim=1).flatten().float()

    stage1 = rows(torch.arange(radix2, dtype=torch.float64)[:, None] * t2 / radix2)
    half = torch.arange(radix1 // 2 + 1, dtype=torch.float64)[:, None]
    stands_for = 2.0 - (half * 2 % radix1 == 0).double()
    twiddle = rows(half * t2 / n) * stands_for.float().repeat_interleave(2 * lanes)
    index = torch.arange(radix1, dtype=torch.float64)
    angle = 2 * math.pi * (index[:, None] * index % radix1) / radix1
    return stage1, twiddle, torch.stack([angle.cos(), angle.sin()], dim=2).flatten().float()
