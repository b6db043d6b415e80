"""Every argument that moshi's loader takes is taken, or refused by its name."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("moshi")

from moshi.conditioners.base import ConditionFuser
from moshi.conditioners.tensors import TensorConditioner
from moshi.conditioners.text import LUTConditioner
from moshi.models.lm import LMModel
from moshi.modules.transformer import StreamingTransformer, StreamingTransformerLayer

from engine.errors import UnsupportedModel
from engine.fields import Fields
from engine.manifest import UNSUPPORTED, read_model_config
from tests.parity import tiny_checkpoints as tiny

GIVEN_BY_MOSHI = {
    "self",
    "device",
    "dtype",
    "condition_provider",
    "d_model",
    "dim_feedforward",
    "layer_class",
    "checkpointing",
    "activation",
    "rope",
    "output_dim",
    "fuse2cond",
}
"""What no configuration file can say, or what moshi passes itself."""
LOADER = {"lora": False, "lora_name": None, "lora_rank": 128, "lora_scaling": 2.0, "depformer_causal": True}
"""What ``models/loaders.py`` takes out beside the fields that every published file has."""
NOT_MOSHIS = {"depformer_weights_per_step", "depformer_quantize"}
"""A default with which moshi cannot generate; and what it would be given twice."""


def arguments(function: Any) -> dict[str, Any]:
    """With their defaults."""
    named = inspect.signature(function.__init__).parameters.values()
    plain = (p for p in named if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in GIVEN_BY_MOSHI)
    return {p.name: p.default for p in plain if p.default is not p.empty}


def optional() -> Iterator[tuple[str, Any]]:
    raw = tiny.published()
    inner = arguments(StreamingTransformer) | arguments(StreamingTransformerLayer)
    found = arguments(LMModel) | inner | {f"depformer_{name}": value for name, value in inner.items()} | LOADER
    for name, default in found.items():
        if name not in raw and name not in NOT_MOSHIS:
            yield name, default


def load(raw: tiny.Json, tmp_path: Any) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(raw))
    read_model_config(Fields(path, json.loads(path.read_text())))


@pytest.mark.parametrize(("name", "default"), list(optional()))
def test_an_argument_with_its_default_changes_nothing(name: str, default: Any, tmp_path: Any) -> None:
    load(tiny.published() | {name: default}, tmp_path)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_run_is_refused_by_name(name: str, tmp_path: Any) -> None:
    with pytest.raises(UnsupportedModel) as refused:
        load(tiny.published() | {name: 77}, tmp_path)
    assert refused.value.field == name


@pytest.mark.parametrize(
    ("place", "function"),
    [
        (("fuser",), ConditionFuser),
        (("conditioners", "cfg", "lut"), LUTConditioner),
        (("conditioners", "speaker_wavs", "tensor"), TensorConditioner),
    ],
)
def test_arguments_of_conditions(place: tuple[str, ...], function: Any, tmp_path: Any) -> None:
    names = {name: default for base in reversed(function.__mro__[:-1]) for name, default in own(base).items()}
    raw = tiny.published()
    inner = raw
    for name in place:
        inner = inner[name]
    inner.update({name: default for name, default in names.items() if name not in inner})
    load(raw, tmp_path)
    inner["new"] = 1
    with pytest.raises(UnsupportedModel) as refused:
        load(raw, tmp_path)
    assert refused.value.field == ".".join((*place, "new"))


def own(base: Any) -> dict[str, Any]:
    return arguments(base) if "__init__" in vars(base) and "moshi" in base.__module__ else {}
