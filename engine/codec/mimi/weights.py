"""A Mimi safetensors file -> the codec's weights, float32. Tensors are asked for by their published names (those of
moshi's ``MimiModel`` and the older spellings that it maps) and by shape; none may be left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.codec.mimi.config import MimiConfig
from engine.codec.mimi.convolution import Convolution
from engine.codec.mimi.decoder import DecoderWeights
from engine.codec.mimi.encoder import EncoderWeights
from engine.codec.mimi.quantiser import QuantiserWeights, StackWeights
from engine.codec.mimi.seanet import ResidualWeights, SeanetWeights, StageWeights
from engine.codec.mimi.transformer import LayerWeights
from engine.errors import CheckpointError, UnsupportedModel

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
USAGE_MIN = 1e-5
"""Least usage by which a codebook's sums are divided (moshi ``quantization/core_vq.py``)."""


@dataclass(frozen=True, slots=True)
class MimiWeights:
    decoder: DecoderWeights
    encoder: EncoderWeights


def load_mimi(path: Path, c: MimiConfig, codebooks: int | None = None) -> MimiWeights:
    """Read a file. ``codebooks``: keep only the first ones, the semantic ones at least; the file must hold all.

    Raises:
        CheckpointError: the file is damaged, or a tensor is missing, misshapen, not of floats, or left over.
        UnsupportedModel: so many codebooks cannot be kept.
    """
    kept = c.codebooks if codebooks is None else codebooks
    if not c.semantic <= kept <= c.codebooks:
        raise UnsupportedModel("n_q", kept)
    tensors = _Tensors.read(path)
    quantiser = _quantiser(tensors, c, kept)
    upsample = tensors.take(("upsample.convtr.convtr.convtr.weight",), c.dim, 1, 2 * c.stride)[:, 0].T.contiguous()
    downsample = tensors.take(("downsample.conv.conv.conv.weight",), c.dim, c.dim, 2 * c.stride)
    decoder = DecoderWeights(quantiser, upsample, _layers(tensors, c, "decoder_transformer"), _decoder(tensors, c))
    encoder = EncoderWeights(
        quantiser,
        downsample.transpose(1, 2).contiguous(),
        _layers(tensors, c, "encoder_transformer"),
        _encoder(tensors, c),
    )
    tensors.all_taken()
    return MimiWeights(decoder, encoder)


@dataclass(slots=True)
class _Tensors:
    path: Path
    left: dict[str, Tensor]

    @classmethod
    def read(cls, path: Path) -> _Tensors:
        try:
            with safe_open(path, framework="pt") as file:
                return cls(path, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise CheckpointError(str(path), f"cannot be read as safetensors ({error})") from error

    def take(self, names: tuple[str, ...], *shape: int) -> Tensor:
        """names: spellings of one tensor's name, the current one first -> float32"""
        name = next((name for name in names if name in self.left), None)
        if name is None:
            raise CheckpointError(str(self.path), f"tensor {names[0]!r} is missing")
        tensor = self.left.pop(name)
        if tuple(tensor.shape) != shape:
            raise CheckpointError(str(self.path), f"tensor {name!r} is {list(tensor.shape)}, expected {list(shape)}")
        if tensor.dtype not in FLOATS:
            raise CheckpointError(str(self.path), f"tensor {name!r} is {tensor.dtype}, expected floats")
        return tensor.float()

    def all_taken(self) -> None:
        if self.left:
            raise CheckpointError(str(self.path), f"unexpected tensor {sorted(self.left)[0]!r}")


def _quantiser(tensors: _Tensors, c: MimiConfig, kept: int) -> QuantiserWeights:
    def codebook(at: str) -> Tensor:
        tensors.take((f"{at}._initialized", f"{at}.inited"), 1)
        usage = tensors.take((f"{at}.cluster_usage", f"{at}.cluster_size"), c.bins)
        names = (f"{at}.embedding_sum", f"{at}.embed_avg", f"{at}.embed_sum")
        return tensors.take(names, c.bins, c.codebook_dim) / usage.clamp(min=USAGE_MIN)[:, None]

    def stack(at: str, size: int, kept: int) -> StackWeights:
        books = [codebook(f"{at}.vq.layers.{index}._codebook") for index in range(size)]
        return StackWeights(
            project_in=tensors.take((f"{at}.input_proj.weight",), c.codebook_dim, c.dim, 1)[:, :, 0],
            project_out=tensors.take((f"{at}.output_proj.weight",), c.dim, c.codebook_dim, 1)[:, :, 0],
            codebooks=tuple(books[:kept]),
        )

    return QuantiserWeights(
        semantic=stack("quantizer.rvq_first", c.semantic, c.semantic),
        acoustic=stack("quantizer.rvq_rest", c.codebooks - c.semantic, kept - c.semantic),
    )


def _layers(tensors: _Tensors, c: MimiConfig, name: str) -> tuple[LayerWeights, ...]:
    dim, hidden = c.dim, c.transformer.hidden

    def layer(at: str) -> LayerWeights:
        attention = f"{at}.self_attn"
        qkv = (f"{attention}.in_projs.0.weight", f"{attention}.in_proj_weight", f"{attention}.in_proj.weight")
        return LayerWeights(
            norm1=tensors.take((f"{at}.norm1.weight",), dim),
            norm1_bias=tensors.take((f"{at}.norm1.bias",), dim),
            qkv=tensors.take(qkv, 3 * dim, dim),
            out=tensors.take((f"{attention}.out_projs.0.weight", f"{attention}.out_proj.weight"), dim, dim),
            scale1=tensors.take((f"{at}.layer_scale_1.scale",), dim),
            norm2=tensors.take((f"{at}.norm2.weight",), dim),
            norm2_bias=tensors.take((f"{at}.norm2.bias",), dim),
            up=tensors.take((f"{at}.linear1.weight",), hidden, dim),
            down=tensors.take((f"{at}.linear2.weight",), dim, hidden),
            scale2=tensors.take((f"{at}.layer_scale_2.scale",), dim),
        )

    return tuple(layer(f"{name}.transformer.layers.{index}") for index in range(c.transformer.layers))


def _convolution(tensors: _Tensors, at: str, outputs: int, inputs: int, kernel: int) -> Convolution:
    weight = tensors.take((f"{at}.conv.conv.weight",), outputs, inputs, kernel)
    return Convolution(weight.transpose(1, 2).contiguous(), tensors.take((f"{at}.conv.conv.bias",), outputs))


def _transposed(tensors: _Tensors, at: str, outputs: int, inputs: int, kernel: int) -> Convolution:
    weight = tensors.take((f"{at}.convtr.convtr.weight",), inputs, outputs, kernel)
    return Convolution(weight.permute(2, 1, 0).contiguous(), tensors.take((f"{at}.convtr.convtr.bias",), outputs))


def _residuals(tensors: _Tensors, c: MimiConfig, at: str, start: int, channels: int) -> tuple[ResidualWeights, ...]:
    hidden, kernel = channels // c.seanet.compress, c.seanet.residual_kernel
    return tuple(
        ResidualWeights(
            narrow=_convolution(tensors, f"{at}.{index}.block.1", hidden, channels, kernel),
            widen=_convolution(tensors, f"{at}.{index}.block.3", channels, hidden, 1),
        )
        for index in range(start, start + c.seanet.residual_layers)
    )


# The numbers in both stacks' names are places in moshi's ``nn.Sequential``, in which an activation takes one, too.


def _decoder(tensors: _Tensors, c: MimiConfig) -> SeanetWeights:
    s, stages = c.seanet, []
    channels, at = s.filters << len(s.ratios), 0
    first = _convolution(tensors, "decoder.model.0", channels, c.dim, s.kernel)
    for ratio in s.ratios:
        resample = _transposed(tensors, f"decoder.model.{at + 2}", channels // 2, channels, 2 * ratio)
        channels //= 2
        stages.append(StageWeights(resample, _residuals(tensors, c, "decoder.model", at + 3, channels)))
        at += 2 + s.residual_layers
    last = _convolution(tensors, f"decoder.model.{at + 2}", 1, channels, s.last_kernel)
    return SeanetWeights(first, tuple(stages), last)


def _encoder(tensors: _Tensors, c: MimiConfig) -> SeanetWeights:
    s, stages = c.seanet, []
    channels, at = s.filters, 0
    first = _convolution(tensors, "encoder.model.0", channels, 1, s.kernel)
    for ratio in reversed(s.ratios):
        residuals = _residuals(tensors, c, "encoder.model", at + 1, channels)
        at += 2 + s.residual_layers
        resample = _convolution(tensors, f"encoder.model.{at}", 2 * channels, channels, 2 * ratio)
        channels *= 2
        stages.append(StageWeights(resample, residuals))
    last = _convolution(tensors, f"encoder.model.{at + 2}", c.dim, channels, s.last_kernel)
    return SeanetWeights(first, tuple(stages), last)
