"""A small Mimi as files, written from a list of names and shapes of its own: no reference implementation is needed."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.codec.mimi.config import MimiConfig, SeanetConfig, TransformerConfig

CONFIG = MimiConfig(
    sample_rate=400,
    frame_rate=100.0,
    stride=2,
    dim=8,
    codebooks=3,
    semantic=1,
    bins=5,
    codebook_dim=4,
    seanet=SeanetConfig(
        filters=4,
        ratios=(2,),
        residual_layers=1,
        kernel=7,
        residual_kernel=3,
        last_kernel=3,
        dilation_base=2,
        compress=2,
    ),
    transformer=TransformerConfig(heads=2, layers=1, hidden=16, context=6, max_period=10000.0),
)

_CONVOLUTIONS = {
    "encoder.model.0.conv.conv": (4, 1, 7),
    "encoder.model.1.block.1.conv.conv": (2, 4, 3),
    "encoder.model.1.block.3.conv.conv": (4, 2, 1),
    "encoder.model.3.conv.conv": (8, 4, 4),
    "encoder.model.5.conv.conv": (8, 8, 3),
    "decoder.model.0.conv.conv": (8, 8, 7),
    "decoder.model.2.convtr.convtr": (8, 4, 4),
    "decoder.model.3.block.1.conv.conv": (2, 4, 3),
    "decoder.model.3.block.3.conv.conv": (4, 2, 1),
    "decoder.model.5.conv.conv": (1, 4, 3),
}
_LAYER = {
    "self_attn.in_projs.0.weight": (24, 8),
    "self_attn.out_projs.0.weight": (8, 8),
    "norm1.weight": (8,),
    "norm1.bias": (8,),
    "norm2.weight": (8,),
    "norm2.bias": (8,),
    "linear1.weight": (16, 8),
    "linear2.weight": (8, 16),
    "layer_scale_1.scale": (8,),
    "layer_scale_2.scale": (8,),
}
_CODEBOOK = {"_initialized": (1,), "cluster_usage": (5,), "embedding_sum": (5, 4)}


def shapes() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in _CONVOLUTIONS.items():
        outputs = shape[1] if "convtr" in name else shape[0]
        found |= {f"{name}.weight": shape, f"{name}.bias": (outputs,)}
    for part in ("encoder_transformer", "decoder_transformer"):
        found |= {f"{part}.transformer.layers.0.{name}": shape for name, shape in _LAYER.items()}
    for stack, layers in (("rvq_first", 1), ("rvq_rest", 2)):
        found |= {f"quantizer.{stack}.input_proj.weight": (4, 8, 1), f"quantizer.{stack}.output_proj.weight": (8, 4, 1)}
        for layer in range(layers):
            at = f"quantizer.{stack}.vq.layers.{layer}._codebook"
            found |= {f"{at}.{name}": shape for name, shape in _CODEBOOK.items()}
    return found | {"downsample.conv.conv.conv.weight": (8, 8, 4), "upsample.convtr.convtr.convtr.weight": (8, 1, 4)}


def tensors(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    found = {name: torch.randn(shape, generator=generator) * 0.4 for name, shape in shapes().items()}
    return {name: 0.5 + tensor.abs() if name.endswith("usage") else tensor for name, tensor in found.items()}


def write(path: Path, content: dict[str, Tensor]) -> Path:
    save_file(content, path)
    return path
