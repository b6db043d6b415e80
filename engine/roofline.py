"""What a frame must read and compute, and so the least time that it can take: arithmetic over the configuration.

Every matrix of the language model is read once a step (the depth transformer's once a codebook), every row reads its
keys and values, and the parts follow one another. Measured steps are held against this floor.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from engine.codec.mimi.config import MimiConfig
from engine.config import MOST_SPEAKERS, VOICE_POSITIONS, ModelConfig, SpectralConfig, TransformerConfig

FRAME_S = 0.080
MOST_ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a device reaches in practice, about nine tenths of its memory's data sheet and eight of its products'."""

    name: str
    """Part of what the driver calls it."""
    bytes_s: float
    product_flops: float
    """Dense bfloat16 products."""
    float_flops: float
    """float32 without tensor cores."""


KNOWN = (
    Hardware("H200", 4.3e12, 790e12, 50e12),
    Hardware("H100 PCIe", 1.8e12, 600e12, 40e12),
    Hardware("H100", 3.0e12, 790e12, 50e12),
    Hardware("B200", 7.2e12, 1800e12, 60e12),
    Hardware("A100", 1.8e12, 250e12, 15e12),
    Hardware("L40S", 0.78e12, 290e12, 70e12),
    Hardware("L4", 0.27e12, 97e12, 24e12),
    Hardware("4090", 0.91e12, 130e12, 65e12),
    Hardware("5090", 1.6e12, 170e12, 80e12),
    Hardware("A10", 0.54e12, 100e12, 25e12),
)


def hardware(name: str) -> Hardware | None:
    """By the driver's name of a device."""
    return next((known for known in KNOWN if known.name in name), None)


@dataclass(frozen=True, slots=True)
class Work:
    """Of one frame; a row is a slot (and its second row, if it is under guidance)."""

    temporal_bytes: float
    depth_bytes: float
    """Read, some of it once a codebook."""
    depth_unique_bytes: float
    temporal_flops: float
    """The rest is a row's."""
    depth_flops: float
    codec_bytes: float
    codec_flops: float
    self_bytes: float
    """Keys and values of the past, the ring being full."""
    cross_bytes: float
    """Those of the voices."""
    codec_kv_bytes: float

    @property
    def row_bytes(self) -> float:
        return self.self_bytes + self.cross_bytes + self.codec_kv_bytes


@dataclass(frozen=True, slots=True)
class Floor:
    """Least seconds of a whole frame, part by part."""

    temporal: float
    depth: float
    attention: float
    codec: float

    @property
    def total(self) -> float:
        return self.temporal + self.depth + self.attention + self.codec


def work(config: ModelConfig, codec: SpectralConfig | MimiConfig, weight_bytes: float = 2.0) -> Work:
    """weight_bytes: of a number of the language model's matrices, and of its keys and values where those are wider than
    a byte."""
    b, d = config.backbone, config.depth
    rows, value_bytes = 2 if config.guided else 1, max(weight_bytes, 2.0)
    temporal = (
        b.layers * (_layer(b, b.hidden) + (2 * b.dim**2 if b.cross_attention else 0)) + b.dim * config.text_card_out
    )
    sets = [d.layers * _layer(d, hidden) + b.dim * d.dim for hidden in config.set_hidden]
    heads = config.generated * d.dim * config.card
    depth = sum(sets[chosen] for chosen in config.depth_schedule) + heads
    heard = MOST_SPEAKERS * VOICE_POSITIONS if config.hears_voices else 0
    codec_size, codec_flops, codec_kv = _mimi(codec) if isinstance(codec, MimiConfig) else _spectral(codec)
    return Work(
        temporal_bytes=temporal * weight_bytes,
        depth_bytes=depth * weight_bytes,
        depth_unique_bytes=(sum(sets[chosen] for chosen in set(config.depth_schedule)) + heads) * weight_bytes,
        temporal_flops=2.0 * rows * temporal,
        depth_flops=2.0 * rows * depth,
        codec_bytes=4.0 * codec_size,
        codec_flops=codec_flops,
        self_bytes=rows * 2.0 * b.layers * config.context * b.dim * value_bytes,
        cross_bytes=rows * 2.0 * b.layers * heard * b.dim * value_bytes,
        codec_kv_bytes=codec_kv,
    )


def floor(frame: Work, device: Hardware, rows: int) -> Floor:
    def part(size: float, flops: float, rate: float) -> float:
        return max(size / device.bytes_s, rows * flops / rate)

    return Floor(
        temporal=part(frame.temporal_bytes, frame.temporal_flops, device.product_flops),
        depth=part(frame.depth_bytes, frame.depth_flops, device.product_flops),
        attention=rows * frame.row_bytes / device.bytes_s,
        codec=part(frame.codec_bytes, frame.codec_flops, device.float_flops),
    )


def rows_within(frame: Work, device: Hardware, seconds: float, times_floor: float = 1.0) -> int:
    """Most rows whose step, at so many times its floor, takes no longer."""
    low, high = 0, MOST_ROWS
    while low < high:
        rows = (low + high + 1) // 2
        low, high = (rows, high) if times_floor * floor(frame, device, rows).total <= seconds else (low, rows - 1)
    return low


def rows_measured(seconds_of: dict[int, float], limit_s: float) -> int:
    """Most rows whose step takes no longer than ``limit_s``: between measured sizes on a line, and beyond the largest
    on the line through the last two. seconds_of: rows -> seconds of a step."""
    points = sorted(seconds_of.items())
    if points[0][1] > limit_s:
        return 0
    for (fewer, quick), (more, slow) in itertools.pairwise(points):
        if slow > limit_s:
            return fewer + int((more - fewer) * (limit_s - quick) / (slow - quick))
    if len(points) < 2 or points[-1][1] <= points[-2][1]:
        return points[-1][0]
    (fewer, quick), (more, slow) = points[-2:]
    return more + int((more - fewer) * (limit_s - slow) / (slow - quick))


def _layer(c: TransformerConfig, hidden: int) -> float:
    """Numbers of a layer's matrices."""
    return 4.0 * c.dim**2 + (2 if c.gating == "none" else 3) * c.dim * hidden


def _spectral(c: SpectralConfig) -> tuple[float, float, float]:
    """Numbers of the weights, operations a frame, bytes of keys and values."""
    frame = c.latent_dim * c.frame_dim + c.frame_layers * c.frame_dim * (2 * c.frame_hidden + c.frame_kernel)
    frame += c.frame_dim * c.subframes * c.dim
    sub = c.layers * c.dim * (2 * c.hidden + c.kernel) + c.dim * (c.n_fft + 2)
    return float(frame + sub), 2.0 * (frame + c.subframes * sub), 0.0


def _mimi(c: MimiConfig) -> tuple[float, float, float]:
    s, t = c.seanet, c.transformer
    layer = 4.0 * c.dim**2 + 2 * c.dim * t.hidden
    channels, time = s.filters << len(s.ratios), c.stride
    weights = t.layers * layer + 2 * c.codebook_dim * c.dim + s.kernel * c.dim * channels
    steps = time * (t.layers * (layer + 2 * t.context * c.dim) + s.kernel * c.dim * channels)
    for ratio in s.ratios:
        up = 2 * ratio * channels * channels // 2
        steps += time * up
        channels, time = channels // 2, time * ratio
        block = s.residual_layers * (s.residual_kernel + 1) * channels * channels // s.compress
        steps += time * block
        weights += up + block
    steps += time * s.last_kernel * channels
    return weights, 2.0 * steps, 2.0 * 4 * t.layers * t.context * c.dim
