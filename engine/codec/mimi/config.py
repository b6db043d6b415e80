"""Mimi's configuration, as moshi 0.2.13 takes it (``models/loaders.py`` ``get_mimi``), frozen.

A repository that names no ``mimi_config_name`` means ``PUBLISHED``. Every argument that moshi's modules take is known
here; one with a value that this codec does not run, or an argument that moshi does not take, is refused by its name.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path

from engine.errors import UnsupportedModel
from engine.fields import Fields, read_json

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SeanetConfig:
    filters: int
    """Channels at the audio's own rate; they double with each down-sampling."""
    ratios: tuple[int, ...]
    """Up-sampling steps in the decoder's order; each kernel is twice its ratio."""
    residual_layers: int
    kernel: int
    residual_kernel: int
    last_kernel: int
    dilation_base: int
    compress: int

    @property
    def hop(self) -> int:
        return math.prod(self.ratios)


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    heads: int
    layers: int
    hidden: int
    context: int
    """Positions that the ring of keys and values holds."""
    max_period: float


@dataclass(frozen=True, slots=True)
class MimiConfig:
    sample_rate: int
    frame_rate: float
    stride: int
    """Transformer positions a frame."""
    dim: int
    codebooks: int
    semantic: int
    """The first codebooks, which have projections of their own."""
    bins: int
    codebook_dim: int
    seanet: SeanetConfig
    transformer: TransformerConfig

    @property
    def frame_samples(self) -> int:
        return self.seanet.hop * self.stride

    @property
    def overlap(self) -> int:
        """Samples of a frame that only the next frame completes: none, the decoder is causal."""
        return 0


PUBLISHED = MimiConfig(
    sample_rate=24000,
    frame_rate=12.5,
    stride=2,
    dim=512,
    codebooks=32,
    semantic=1,
    bins=2048,
    codebook_dim=256,
    seanet=SeanetConfig(
        filters=64,
        ratios=(8, 6, 5, 4),
        residual_layers=1,
        kernel=7,
        residual_kernel=3,
        last_kernel=3,
        dilation_base=2,
        compress=2,
    ),
    transformer=TransformerConfig(heads=8, layers=8, hidden=2048, context=250, max_period=10000.0),
)
"""moshi's ``_mimi_config``, that of Kyutai's published models."""


def load_mimi_config(path: Path) -> MimiConfig:
    """Read the file that ``mimi_config_name`` names.

    Raises:
        CheckpointError: the file is missing, is not a JSON object, lacks a field or has one of the wrong type.
        UnsupportedModel: a structural field is unknown or has a value that this codec does not run.
    """
    top = Fields(path, read_json(path))
    seanet_fields, quantiser, transformer_fields = (top.inner(name) for name in ("seanet", "quantizer", "transformer"))
    sample_rate, frame_rate = top.whole("sample_rate", least=1), top.number("frame_rate", least=0.1)
    _required(top, "channels", 1)
    for name in top.left():
        log.warning("unknown field %r of the codec's configuration is ignored", name)
    dim = seanet_fields.whole("dimension", 128, least=1)
    seanet, transformer = _seanet(seanet_fields), _transformer(transformer_fields, dim)
    stride = sample_rate / seanet.hop / frame_rate
    if stride < 2 or stride != int(stride):
        raise UnsupportedModel("frame_rate", frame_rate)
    if transformer.context < stride:
        raise UnsupportedModel("transformer.context", transformer.context)
    codebook_dim = quantiser.whole("dimension", 128, least=1)
    for name in ("input_dimension", "output_dimension"):
        if codebook_dim == dim and not quantiser.given(name):
            continue
        _required(quantiser, name, dim)
    config = MimiConfig(
        sample_rate=sample_rate,
        frame_rate=frame_rate,
        stride=int(stride),
        dim=dim,
        codebooks=quantiser.whole("n_q", 8, least=1),
        semantic=quantiser.whole("n_q_semantic", 1, least=1),
        bins=quantiser.whole("bins", 1024, least=1),
        codebook_dim=codebook_dim,
        seanet=seanet,
        transformer=transformer,
    )
    if config.semantic >= config.codebooks:
        raise UnsupportedModel("quantizer.n_q_semantic", config.semantic)
    _nothing_left(quantiser, _QUANTISER_IGNORED)
    return config


_SEANET_IGNORED = ("disable_norm_outer_blocks",)  # there is no norm to disable
_QUANTISER_IGNORED = ("q_dropout", "no_quantization_rate", "decay", "threshold_usage_ratio", "replaced_usage_ratio")
_TRANSFORMER_IGNORED = ("positional_scale", "betas", "checkpointing")  # of sine embeddings; of training
_MOST_RATIOS = 16


def _seanet(fields: Fields) -> SeanetConfig:
    _required(fields, "causal", True)
    _required(fields, "pad_mode", "constant")
    fields.fixed("channels", 1)
    fields.fixed("activation", "ELU")
    fields.fixed("activation_params", {"alpha": 1.0}, {"alpha": 1})
    fields.fixed("norm", "none")
    fields.fixed("norm_params", {})
    fields.fixed("true_skip", True)
    config = SeanetConfig(
        filters=fields.whole("n_filters", 32, least=1),
        ratios=fields.wholes("ratios", [8, 5, 4, 2]),
        residual_layers=fields.whole("n_residual_layers", 3),
        kernel=fields.whole("kernel_size", 7, least=1),
        residual_kernel=fields.whole("residual_kernel_size", 3, least=1),
        last_kernel=fields.whole("last_kernel_size", 7, least=1),
        dilation_base=fields.whole("dilation_base", 2, least=1),
        compress=fields.whole("compress", 2, least=1),
    )
    if not 0 < len(config.ratios) <= _MOST_RATIOS or 0 in config.ratios:
        raise fields.wrong("ratios", f"a list of 1 to {_MOST_RATIOS} whole numbers above 0")
    if config.compress > config.filters:
        raise UnsupportedModel(fields.name("compress"), config.compress)
    _nothing_left(fields, _SEANET_IGNORED)
    return config


def _transformer(fields: Fields, dim: int) -> TransformerConfig:
    for name, value in (("causal", True), ("conv_layout", True), ("positional_embedding", "rope")):
        _required(fields, name, value)
    for name, size in (("d_model", dim), ("input_dimension", dim), ("output_dimensions", [dim])):
        _required(fields, name, size)
    for name in ("skip_self_attn", "cross_attention", "quantize"):
        fields.fixed(name, False)
    fields.fixed("gating", "none")
    fields.fixed("norm", "layer_norm")
    fields.fixed("kv_repeat", 1)
    fields.fixed("weights_per_step", 0)
    fields.fixed("weights_per_step_schedule", None)
    fields.number("layer_scale", least=0)  # only the first value of a weight, but without it there is no weight
    config = TransformerConfig(
        heads=fields.whole("num_heads", least=1),
        layers=fields.whole("num_layers", least=1),
        hidden=fields.whole("dim_feedforward", 2048, least=1),
        context=fields.whole("context", least=1),
        max_period=fields.number("max_period", 10000.0, least=1),
    )
    if dim % (2 * config.heads):
        raise UnsupportedModel(fields.name("num_heads"), config.heads)
    _nothing_left(fields, _TRANSFORMER_IGNORED)
    return config


def _required(fields: Fields, name: str, value: object) -> None:
    """A field whose absence means another value to moshi than the one that is run."""
    if not fields.given(name):
        raise UnsupportedModel(fields.name(name), None)
    fields.fixed(name, value)


def _nothing_left(fields: Fields, ignored: tuple[str, ...]) -> None:
    for name in ignored:
        fields.take(name)
    fields.none()
