"""A Mimi safetensors file -> the codec's weights, float32. Tensors are asked for by their published names (those of
moshi's ``MimiModel`` and the older spellings that it maps) and by shape; none may be left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from engine.codec.mimi.config import MimiConfig
from engine.codec.mimi.convolution import Convolution
from engine.codec.mimi.decoder import DecoderWeights
from engine.codec.mimi.encoder import EncoderWeights
from engine.codec.mimi.quantiser import QuantiserWeights, StackWeights
from engine.codec.mimi.seanet import ResidualWeights, SeanetWeights, StageWeights
from engine.codec.mimi.transformer import LayerWeights
from engine.errors import UnsupportedModel
from engine.tensors import TensorFile

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
    tensors = TensorFile.read(path)
    quantiser = _quantiser(tensors, c, kept)
    upsample = _take(tensors, ("upsample.convtr.convtr.convtr.weight",), c.dim, 1, 2 * c.stride)[:, 0].T.contiguous()
    downsample = _take(tensors, ("downsample.conv.conv.conv.weight",), c.dim, c.dim, 2 * c.stride)
    decoder = DecoderWeights(quantiser, upsample, _layers(tensors, c, "decoder_transformer"), _decoder(tensors, c))
    encoder = EncoderWeights(
        quantiser,
        downsample.transpose(1, 2).contiguous(),
        _layers(tensors, c, "encoder_transformer"),
        _encoder(tensors, c),
    )
    tensors.all_taken()
    return MimiWeights(decoder, encoder)


def _take(tensors: TensorFile, names: tuple[str, ...], *shape: int) -> Tensor:
    """names: spellings of one tensor's name, the current one first -> float32"""
    name = next((name for name in names if tensors.has(name)), names[0])
    return tensors.take(name, *shape).float()


def _quantiser(tensors: TensorFile, c: MimiConfig, kept: int) -> QuantiserWeights:
    def codebook(at: str) -> Tensor:
        _take(tensors, (f"{at}._initialized", f"{at}.inited"), 1)
        usage = _take(tensors, (f"{at}.cluster_usage", f"{at}.cluster_size"), c.bins)
        names = (f"{at}.embedding_sum", f"{at}.embed_avg", f"{at}.embed_sum")
        return _take(tensors, names, c.bins, c.codebook_dim) / usage.clamp(min=USAGE_MIN)[:, None]

    def stack(at: str, size: int, kept: int) -> StackWeights:
        books = [codebook(f"{at}.vq.layers.{index}._codebook") for index in range(size)]
        return StackWeights(
            project_in=_take(tensors, (f"{at}.input_proj.weight",), c.codebook_dim, c.dim, 1)[:, :, 0],
            project_out=_take(tensors, (f"{at}.output_proj.weight",), c.dim, c.codebook_dim, 1)[:, :, 0],
            codebooks=tuple(books[:kept]),
        )

    return QuantiserWeights(
        semantic=stack("quantizer.rvq_first", c.semantic, c.semantic),
        acoustic=stack("quantizer.rvq_rest", c.codebooks - c.semantic, kept - c.semantic),
    )


def _layers(tensors: TensorFile, c: MimiConfig, name: str) -> tuple[LayerWeights, ...]:
    dim, hidden = c.dim, c.transformer.hidden

    def layer(at: str) -> LayerWeights:
        attention = f"{at}.self_attn"
        qkv = (f"{attention}.in_projs.0.weight", f"{attention}.in_proj_weight", f"{attention}.in_proj.weight")
        return LayerWeights(
            norm1=_take(tensors, (f"{at}.norm1.weight",), dim),
            norm1_bias=_take(tensors, (f"{at}.norm1.bias",), dim),
            qkv=_take(tensors, qkv, 3 * dim, dim),
            out=_take(tensors, (f"{attention}.out_projs.0.weight", f"{attention}.out_proj.weight"), dim, dim),
            scale1=_take(tensors, (f"{at}.layer_scale_1.scale",), dim),
            norm2=_take(tensors, (f"{at}.norm2.weight",), dim),
            norm2_bias=_take(tensors, (f"{at}.norm2.bias",), dim),
            up=_take(tensors, (f"{at}.linear1.weight",), hidden, dim),
            down=_take(tensors, (f"{at}.linear2.weight",), dim, hidden),
            scale2=_take(tensors, (f"{at}.layer_scale_2.scale",), dim),
        )

    return tuple(layer(f"{name}.transformer.layers.{index}") for index in range(c.transformer.layers))


def _convolution(tensors: TensorFile, at: str, outputs: int, inputs: int, kernel: int) -> Convolution:
    weight = _take(tensors, (f"{at}.conv.conv.weight",), outputs, inputs, kernel)
    return Convolution(weight.transpose(1, 2).contiguous(), _take(tensors, (f"{at}.conv.conv.bias",), outputs))


def _transposed(tensors: TensorFile, at: str, outputs: int, inputs: int, kernel: int) -> Convolution:
    weight = _take(tensors, (f"{at}.convtr.convtr.weight",), inputs, outputs, kernel)
    return Convolution(weight.permute(2, 1, 0).contiguous(), _take(tensors, (f"{at}.convtr.convtr.bias",), outputs))


def _residuals(tensors: TensorFile, c: MimiConfig, at: str, start: int, channels: int) -> tuple[ResidualWeights, ...]:
    hidden, kernel = channels // c.seanet.compress, c.seanet.residual_kernel
    return tuple(
        ResidualWeights(
            narrow=_convolution(tensors, f"{at}.{index}.block.1", hidden, channels, kernel),
            widen=_convolution(tensors, f"{at}.{index}.block.3", channels, hidden, 1),
        )
        for index in range(start, start + c.seanet.residual_layers)
    )


# The numbers in both stacks' names are places in moshi's ``nn.Sequential``, in which an activation takes one, too.


def _decoder(tensors: TensorFile, c: MimiConfig) -> SeanetWeights:
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


def _encoder(tensors: TensorFile, c: MimiConfig) -> SeanetWeights:
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
