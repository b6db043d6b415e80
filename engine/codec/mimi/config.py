"""Mimi's configuration, as moshi 0.2.13 takes it (``models/loaders.py`` ``get_mimi``), frozen.

A repository that names no ``mimi_config_name`` means ``PUBLISHED``. Every argument that moshi's modules take is known
here; one with a value that this codec does not run, or an argument that moshi does not take, is refused by its name.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.errors import CheckpointError, UnsupportedModel

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
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(str(path), f"cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(str(path), f"is not JSON ({error})") from error
    if not isinstance(raw, dict):
        raise CheckpointError(str(path), "is not a JSON object")
    return _Reader(str(path)).config(raw)


_LARGEST = 2**31
_SEANET_FIXED: dict[str, object] = {  # argument -> the one value that is run
    "channels": 1,
    "causal": True,
    "activation": "ELU",
    "activation_params": {"alpha": 1.0},
    "norm": "none",
    "norm_params": {},
    "pad_mode": "constant",
    "true_skip": True,
}
_SEANET_IGNORED = ("disable_norm_outer_blocks",)  # there is no norm to disable
_QUANTISER_IGNORED = ("q_dropout", "no_quantization_rate", "decay", "threshold_usage_ratio", "replaced_usage_ratio")
_TRANSFORMER_FIXED: dict[str, object] = {
    "causal": True,
    "conv_layout": True,
    "gating": "none",
    "norm": "layer_norm",
    "positional_embedding": "rope",
    "kv_repeat": 1,
    "weights_per_step": 0,
    "weights_per_step_schedule": None,
    "skip_self_attn": False,
    "cross_attention": False,
    "quantize": False,
}
_TRANSFORMER_IGNORED = ("positional_scale", "betas", "checkpointing")  # of sine embeddings; of training
_MISSING_MEANS: dict[str, object] = {  # moshi's defaults where they differ from the one value that is run
    "channels": None,
    "seanet.causal": False,
    "seanet.pad_mode": "reflect",
    "transformer.causal": False,
    "transformer.conv_layout": False,
    "transformer.positional_embedding": "sin",
    "transformer.d_model": None,
    "transformer.input_dimension": None,
    "transformer.output_dimensions": None,
}


@dataclass(frozen=True, slots=True)
class _Reader:
    path: str

    def config(self, raw: Mapping[str, object]) -> MimiConfig:
        left = dict(raw)
        seanet_raw, quantiser, transformer_raw = (
            self._table(left, name) for name in ("seanet", "quantizer", "transformer")
        )
        sample_rate, frame_rate = self._whole(left, "sample_rate", ""), self._number(left, "frame_rate", "")
        self._fixed(left, {"channels": 1}, "")
        for name in left:
            log.warning("unknown field %r of the codec's configuration is ignored", name)
        dim = self._whole(seanet_raw, "dimension", "seanet.", 128)
        seanet = self._seanet(seanet_raw)
        stride = sample_rate / seanet.hop / frame_rate
        if stride < 2 or stride != int(stride):
            raise UnsupportedModel("frame_rate", frame_rate)
        codebooks = self._whole(quantiser, "n_q", "quantizer.", 8)
        semantic = self._whole(quantiser, "n_q_semantic", "quantizer.", 1)
        if semantic >= codebooks:
            raise UnsupportedModel("quantizer.n_q_semantic", semantic)
        bins = self._whole(quantiser, "bins", "quantizer.", 1024)
        codebook_dim = self._whole(quantiser, "dimension", "quantizer.", 128)
        for name in ("input_dimension", "output_dimension"):
            given = quantiser.pop(name, None)
            if given != dim and not (given is None and codebook_dim == dim):
                raise UnsupportedModel(f"quantizer.{name}", given)
        self._nothing_left(quantiser, _QUANTISER_IGNORED, "quantizer.")
        transformer = self._transformer(transformer_raw, dim)
        if transformer.context < stride:
            raise UnsupportedModel("transformer.context", transformer.context)
        return MimiConfig(
            sample_rate=sample_rate,
            frame_rate=frame_rate,
            stride=int(stride),
            dim=dim,
            codebooks=codebooks,
            semantic=semantic,
            bins=bins,
            codebook_dim=codebook_dim,
            seanet=seanet,
            transformer=transformer,
        )

    def _seanet(self, raw: dict[str, object]) -> SeanetConfig:
        at = "seanet."
        self._fixed(raw, _SEANET_FIXED, at)
        ratios = raw.pop("ratios", [8, 5, 4, 2])
        if not isinstance(ratios, list) or not 0 < len(ratios) < 16:
            raise CheckpointError(self.path, f"field '{at}ratios' is not a list of some whole numbers")
        config = SeanetConfig(
            filters=self._whole(raw, "n_filters", at, 32),
            ratios=tuple(self._whole({"ratios": ratio}, "ratios", at) for ratio in ratios),
            residual_layers=self._whole(raw, "n_residual_layers", at, 3),
            kernel=self._whole(raw, "kernel_size", at, 7),
            residual_kernel=self._whole(raw, "residual_kernel_size", at, 3),
            last_kernel=self._whole(raw, "last_kernel_size", at, 7),
            dilation_base=self._whole(raw, "dilation_base", at, 2),
            compress=self._whole(raw, "compress", at, 2),
        )
        if config.compress > config.filters:
            raise UnsupportedModel(f"{at}compress", config.compress)
        self._nothing_left(raw, _SEANET_IGNORED, at)
        return config

    def _transformer(self, raw: dict[str, object], dim: int) -> TransformerConfig:
        at = "transformer."
        self._fixed(raw, {**_TRANSFORMER_FIXED, "d_model": dim, "input_dimension": dim, "output_dimensions": [dim]}, at)
        self._number(raw, "layer_scale", at)  # only the initial value of a weight, but without it there is no weight
        config = TransformerConfig(
            heads=self._whole(raw, "num_heads", at),
            layers=self._whole(raw, "num_layers", at),
            hidden=self._whole(raw, "dim_feedforward", at, 2048),
            context=self._whole(raw, "context", at),
            max_period=self._number(raw, "max_period", at, 10000.0),
        )
        if dim % (2 * config.heads):
            raise UnsupportedModel(f"{at}num_heads", config.heads)
        self._nothing_left(raw, _TRANSFORMER_IGNORED, at)
        return config

    def _table(self, raw: dict[str, object], name: str) -> dict[str, object]:
        value = raw.pop(name, None)
        if not isinstance(value, dict):
            raise CheckpointError(self.path, f"field {name!r} is missing or is not an object")
        return dict(value)

    def _fixed(self, raw: dict[str, object], fixed: Mapping[str, object], at: str) -> None:
        for name, wanted in fixed.items():
            value = raw.pop(name, _MISSING_MEANS.get(at + name, wanted))
            if value != wanted:
                raise UnsupportedModel(at + name, value)

    def _whole(self, raw: dict[str, object], name: str, at: str, default: int | None = None) -> int:
        value = raw.pop(name, default)
        if type(value) is not int or not 0 < value < _LARGEST:
            raise CheckpointError(self.path, f"field {at + name!r} is missing or is not a positive whole number")
        return value

    def _number(self, raw: dict[str, object], name: str, at: str, default: float | None = None) -> float:
        value = raw.pop(name, default)
        if not isinstance(value, int | float) or not 0 < value < _LARGEST:
            raise CheckpointError(self.path, f"field {at + name!r} is missing or is not a positive number")
        return float(value)

    def _nothing_left(self, raw: dict[str, object], ignored: tuple[str, ...], at: str) -> None:
        for name, value in raw.items():
            if name not in ignored:
                raise UnsupportedModel(at + name, value)
