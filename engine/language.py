"""The language model's weights: the names that Kyutai publishes -> what a step needs.

What a step would compute again and again from weights alone is computed here: projected text tables, low-rank and
normalised embeddings. Matrices stay as stored, views of the mapped file.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.config import ConditionerConfig, ModelConfig, TransformerConfig
from engine.tensors import TensorFile


@dataclass(frozen=True, slots=True)
class CrossWeights:
    """Attention to the voices. Its norm is a layer norm whatever the model's norms are."""

    norm: Tensor
    """[2, dim]: weight, bias."""
    q: Tensor
    kv: Tensor
    """[2 * dim, dim]"""
    out: Tensor
    scale: Tensor | None


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One backbone layer; matrices are [out, in]. A norm is [dim], or [2, dim] (weight, bias) for layer norms."""

    norm1: Tensor
    qkv: Tensor
    out: Tensor
    norm2: Tensor
    up: Tensor
    down: Tensor
    scale1: Tensor | None = None
    scale2: Tensor | None = None
    cross: CrossWeights | None = None


@dataclass(frozen=True, slots=True)
class TextTables:
    """Text embeddings with their projections multiplied in: [text_card + 2, dim], the last row zero."""

    main: Tensor
    second: Tensor | None
    """None: the model has one text stream."""


@dataclass(frozen=True, slots=True)
class BackboneWeights:
    audio: Tensor
    """[codebooks * (card + 1) + 1, dim]: the codebooks' embeddings one after another, the last row zero."""
    text: TextTables
    layers: tuple[LayerWeights, ...]
    out_norm: Tensor
    text_head: Tensor
    text_bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class DepthLayerWeights:
    """One depth layer; the norms serve all codebooks, the matrices come one a weight set."""

    norm1: Tensor
    norm2: Tensor
    qkv: tuple[Tensor, ...]
    out: tuple[Tensor, ...]
    up: tuple[Tensor, ...]
    down: tuple[Tensor, ...]
    scale1: Tensor | None = None
    scale2: Tensor | None = None


@dataclass(frozen=True, slots=True)
class DepthWeights:
    inputs: tuple[Tensor, ...]
    """One a weight set: [depth_dim, dim]."""
    text: TextTables
    audio: tuple[Tensor, ...]
    """For each generated codebook but the last: [card + 1, depth_dim]."""
    layers: tuple[DepthLayerWeights, ...]
    heads: tuple[Tensor, ...]
    biases: tuple[Tensor, ...] | None = None
    norms: tuple[Tensor, ...] | None = None
    """Before each head."""


@dataclass(frozen=True, slots=True)
class ConditionerWeights:
    """float32 always, as in the reference (moshi ``LMModel``)."""

    projection: Tensor | None
    """[dim, conditioner's dim]"""
    padding: Tensor | None
    """[dim]: stands where there is no condition; None: zeros do."""
    table: Tensor | None
    """[bins + 1, conditioner's dim]; None for a tensor condition."""


@dataclass(frozen=True, slots=True)
class LanguageModel:
    config: ModelConfig
    backbone: BackboneWeights
    depth: DepthWeights
    conditioners: tuple[ConditionerWeights, ...]
    """In the order of the configuration."""


def read_language_model(tensors: TensorFile, config: ModelConfig) -> LanguageModel:
    """Raises CheckpointError for a tensor that is missing, misshapen or left over."""
    model = LanguageModel(
        config,
        _backbone(tensors, config),
        _depth(tensors, config),
        tuple(_conditioner(tensors, c, config.backbone.dim) for c in config.conditioners or ()),
    )
    count, width = config.extra_heads
    for index in range(count):
        tensors.take(f"extra_heads.{index}.weight", width, config.backbone.dim)
    tensors.all_taken()
    return model


def _norm(tensors: TensorFile, at: str, kind: str, dim: int) -> Tensor:
    if kind.startswith("rms"):
        return tensors.take(f"{at}.alpha", 1, 1, dim).reshape(dim)
    return torch.stack([tensors.take(f"{at}.weight", dim), tensors.take(f"{at}.bias", dim)])


def _projections(tensors: TensorFile, at: str, kind: str, sets: int, outputs: int, inputs: int) -> tuple[Tensor, ...]:
    """A projection in its split form, or fused over the weight sets (moshi ``StreamingMultiheadAttention._load_hook``).

    kind: in | out.
    """
    for fused in (f"{at}.{kind}_proj_weight", f"{at}.{kind}_proj.weight"):
        if tensors.has(fused):
            return tensors.take(fused, sets * outputs, inputs).view(sets, outputs, inputs).unbind(0)
    return tuple(tensors.take(f"{at}.{kind}_projs.{index}.weight", outputs, inputs) for index in range(sets))


def _scale(tensors: TensorFile, at: str, c: TransformerConfig) -> Tensor | None:
    return tensors.take(f"{at}.scale", c.dim) if c.layer_scale else None


def _zero_row(rows: Tensor) -> Tensor:
    return torch.cat([rows, rows.new_zeros(1, rows.shape[1])])


def _normalised(tensors: TensorFile, at: str, rows: Tensor, config: ModelConfig) -> Tensor:
    if not config.norm_embeddings:
        return rows
    width = rows.shape[1]
    weight, bias = tensors.take(f"{at}.norm.weight", width), tensors.take(f"{at}.norm.bias", width)
    return F.layer_norm(rows.float(), (width,), weight.float(), bias.float(), 1e-5)


def _table(tensors: TensorFile, at: str, config: ModelConfig, count: int, dim: int, rank: int | None) -> Tensor:
    """moshi ``lm_utils.py`` ScaledEmbedding of one stream: [count, dim]."""
    rows = tensors.take(f"{at}.weight", count, rank or dim)
    if rank is None and not config.norm_embeddings:
        return rows
    rows = _normalised(tensors, at, rows, config).float()
    if rank is not None:
        rows = rows @ tensors.take(f"{at}.low_rank.weight", dim, rank).float().T
    return rows.to(tensors.derived)


def _text_tables(tensors: TensorFile, at: str, config: ModelConfig, dim: int, rank: int | None) -> TextTables:
    """Demuxed: out1(embedding[left]) + out2(embedding[right]); the low rank is not multiplied in there."""
    count = config.text_card + 1
    if not config.demux:
        rows = _table(tensors, at, config, count, dim, rank)
        return TextTables(_zero_row(rows.to(tensors.derived)), None)
    rows = tensors.take(f"{at}.weight", count, rank or dim)
    if rank is not None:
        tensors.take(f"{at}.low_rank.weight", dim, rank)
    wide = rows.float()
    main, second = (wide @ tensors.take(f"{at}.{name}.weight", dim, rank or dim).float().T for name in ("out1", "out2"))
    return TextTables(_zero_row(main.to(tensors.derived)), _zero_row(second.to(tensors.derived)))


def _backbone(tensors: TensorFile, config: ModelConfig) -> BackboneWeights:
    c, dim = config.backbone, config.backbone.dim
    books = [_table(tensors, f"emb.{book}", config, config.card + 1, dim, None) for book in range(config.codebooks)]
    return BackboneWeights(
        audio=_zero_row(torch.cat(books).to(tensors.derived)),
        text=_text_tables(tensors, "text_emb", config, dim, None),
        layers=tuple(_layer(tensors, f"transformer.layers.{index}", c) for index in range(c.layers)),
        out_norm=_norm(tensors, "out_norm", c.norm, dim),
        text_head=tensors.take("text_linear.weight", config.text_card_out, dim),
        text_bias=tensors.take("text_linear.bias", config.text_card_out) if config.head_bias else None,
    )


def _layer(tensors: TensorFile, at: str, c: TransformerConfig) -> LayerWeights:
    dim, gated = c.dim, c.gating != "none"
    up, down = ("gating.linear_in", "gating.linear_out") if gated else ("linear1", "linear2")
    return LayerWeights(
        norm1=_norm(tensors, f"{at}.norm1", c.norm, dim),
        qkv=_projections(tensors, f"{at}.self_attn", "in", 1, 3 * dim, dim)[0],
        out=_projections(tensors, f"{at}.self_attn", "out", 1, dim, dim)[0],
        norm2=_norm(tensors, f"{at}.norm2", c.norm, dim),
        up=tensors.take(f"{at}.{up}.weight", 2 * c.hidden if gated else c.hidden, dim),
        down=tensors.take(f"{at}.{down}.weight", dim, c.hidden),
        scale1=_scale(tensors, f"{at}.layer_scale_1", c),
        scale2=_scale(tensors, f"{at}.layer_scale_2", c),
        cross=_cross(tensors, at, c) if c.cross_attention else None,
    )


def _cross(tensors: TensorFile, at: str, c: TransformerConfig) -> CrossWeights:
    dim = c.dim
    qkv = _projections(tensors, f"{at}.cross_attention", "in", 1, 3 * dim, dim)[0]
    return CrossWeights(
        norm=_norm(tensors, f"{at}.norm_cross", "layer_norm", dim),
        q=qkv[:dim],
        kv=qkv[dim:],
        out=_projections(tensors, f"{at}.cross_attention", "out", 1, dim, dim)[0],
        scale=_scale(tensors, f"{at}.layer_scale_cross", c),
    )


def _depth(tensors: TensorFile, config: ModelConfig) -> DepthWeights:
    """All stored codebooks are read; those that are not generated are dropped."""
    c, dim, card = config.depth, config.depth.dim, config.card
    stored, made = range(config.stored_depth or config.generated), config.generated
    inputs = range(config.depth_sets if config.depth_inputs else 1)
    audio = tuple(_table(tensors, f"depformer_emb.{q}", config, card + 1, dim, config.low_rank) for q in stored[:-1])
    biases = tuple(tensors.take(f"linears.{q}.bias", card) for q in stored) if config.head_bias else None
    kind = config.depth_norm
    norms = tuple(_norm(tensors, f"depformer_norms.{q}", kind, dim) for q in stored) if kind else None
    return DepthWeights(
        inputs=tuple(tensors.take(f"depformer_in.{s}.weight", dim, config.backbone.dim) for s in inputs),
        text=_text_tables(tensors, "depformer_text_emb", config, dim, config.low_rank),
        audio=audio[: made - 1],
        layers=tuple(_depth_layer(tensors, f"depformer.layers.{index}", config) for index in range(c.layers)),
        heads=tuple(tensors.take(f"linears.{q}.weight", card, dim) for q in stored)[:made],
        biases=biases[:made] if biases else None,
        norms=norms[:made] if norms else None,
    )


def _depth_layer(tensors: TensorFile, at: str, config: ModelConfig) -> DepthLayerWeights:
    c, dim, sets = config.depth, config.depth.dim, config.depth_sets
    widths = list(enumerate(config.set_hidden))
    return DepthLayerWeights(
        norm1=_norm(tensors, f"{at}.norm1", c.norm, dim),
        norm2=_norm(tensors, f"{at}.norm2", c.norm, dim),
        qkv=_projections(tensors, f"{at}.self_attn", "in", sets, 3 * dim, dim),
        out=_projections(tensors, f"{at}.self_attn", "out", sets, dim, dim),
        up=tuple(tensors.take(f"{at}.gating.{s}.linear_in.weight", 2 * width, dim) for s, width in widths),
        down=tuple(tensors.take(f"{at}.gating.{s}.linear_out.weight", dim, width) for s, width in widths),
        scale1=_scale(tensors, f"{at}.layer_scale_1", c),
        scale2=_scale(tensors, f"{at}.layer_scale_2", c),
    )


def _conditioner(tensors: TensorFile, c: ConditionerConfig, dim: int) -> ConditionerWeights:
    at = f"condition_provider.conditioners.{c.name}"
    projected = c.projected or c.dim != dim
    return ConditionerWeights(
        projection=tensors.take(f"{at}.output_proj.weight", dim, c.dim).float() if projected else None,
        padding=tensors.take(f"{at}.learnt_padding", 1, 1, dim).reshape(dim).float() if c.learnt_padding else None,
        table=tensors.take(f"{at}.embed.weight", c.bins + 1, c.dim).float() if c.bins else None,
    )
