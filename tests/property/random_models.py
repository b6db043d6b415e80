"""Random tiny weights with the switches of Kyutai's language models that the phases compute."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.config import ModelConfig, SamplingConfig, TextMachineConfig, TransformerConfig
from engine.language import (
    BackboneWeights,
    CrossWeights,
    DepthLayerWeights,
    DepthWeights,
    LayerWeights,
    TextTables,
)

CARD, CONTEXT = 21, 6


class Dice:
    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        return torch.randn(*shape, generator=self.generator) * scale

    def matrix(self, outputs: int, inputs: int) -> Tensor:
        return self.normal(outputs, inputs, scale=1.5 * inputs**-0.5)

    def near_one(self, size: int) -> Tensor:
        return 1.0 + self.normal(size, scale=0.3)

    def whole(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=self.generator)


def config(
    schedule: tuple[int, ...], widths: tuple[int, ...], cross: bool, positions: str, extras: bool
) -> ModelConfig:
    """widths: feed-forward width of each weight set of the depth transformer."""
    return ModelConfig(
        backbone=TransformerConfig(32, 2, 2, 40, positions=positions, cross_attention=cross, layer_scale=extras),
        depth=TransformerConfig(24, 3, 2, widths[0], positions="none", layer_scale=extras),
        depth_schedule=schedule,
        codebooks=len(schedule) + 1,
        card=CARD,
        text_card=30,
        text_card_out=5,
        padding_id=3,
        context=CONTEXT,
        delays=(0,) * (len(schedule) + 2),
        text=TextMachineConfig(1, 1, 1, 4, 1),
        sampling=SamplingConfig(0.5, 0.5, 10, 5),
        lm_name="",
        codec_name="",
        tokenizer_name="",
        depth_hidden=widths,
        depth_norm="rms_norm_f32" if extras else None,
        head_bias=extras,
    )


def depth_weights(dice: Dice, c: ModelConfig) -> DepthWeights:
    dim, books, widths = c.depth.dim, c.generated, c.set_hidden
    scaled = c.depth.layer_scale

    def layer() -> DepthLayerWeights:
        return DepthLayerWeights(
            dice.near_one(dim),
            dice.near_one(dim),
            tuple(dice.matrix(3 * dim, dim) for _ in widths),
            tuple(dice.matrix(dim, dim) for _ in widths),
            tuple(dice.matrix(2 * width, dim) for width in widths),
            tuple(dice.matrix(dim, width) for width in widths),
            dice.near_one(dim) if scaled else None,
            dice.near_one(dim) if scaled else None,
        )

    return DepthWeights(
        inputs=tuple(dice.matrix(dim, c.backbone.dim) for _ in widths),
        text=TextTables(dice.normal(c.text_card + 2, dim), None),
        audio=tuple(dice.normal(CARD + 1, dim) for _ in range(books - 1)),
        layers=tuple(layer() for _ in range(c.depth.layers)),
        heads=tuple(dice.matrix(CARD, dim) for _ in range(books)),
        biases=tuple(dice.normal(CARD) for _ in range(books)) if c.head_bias else None,
        norms=tuple(dice.near_one(dim) for _ in range(books)) if c.depth_norm else None,
    )


def backbone_weights(dice: Dice, c: ModelConfig) -> BackboneWeights:
    b = c.backbone

    def scale() -> Tensor | None:
        return dice.near_one(b.dim) if b.layer_scale else None

    def cross() -> CrossWeights:
        norm = torch.stack([dice.near_one(b.dim), dice.normal(b.dim, scale=0.2)])
        square = (dice.matrix(b.dim, b.dim), dice.matrix(2 * b.dim, b.dim), dice.matrix(b.dim, b.dim))
        return CrossWeights(norm, *square, scale())

    def layer() -> LayerWeights:
        return LayerWeights(
            dice.near_one(b.dim),
            dice.matrix(3 * b.dim, b.dim),
            dice.matrix(b.dim, b.dim),
            dice.near_one(b.dim),
            dice.matrix(2 * b.hidden, b.dim),
            dice.matrix(b.dim, b.hidden),
            scale(),
            scale(),
            cross() if b.cross_attention else None,
        )

    return BackboneWeights(
        audio=dice.normal(c.codebooks * (CARD + 1) + 1, b.dim),
        text=TextTables(dice.normal(c.text_card + 2, b.dim), None),
        layers=tuple(layer() for _ in range(b.layers)),
        out_norm=dice.near_one(b.dim),
        text_head=dice.matrix(c.text_card_out, b.dim),
    )
