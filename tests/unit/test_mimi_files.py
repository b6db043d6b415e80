"""What a Mimi file or configuration must be; anything else is refused, by name."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from engine.codec.mimi.config import PUBLISHED, load_mimi_config
from engine.codec.mimi.weights import USAGE_MIN, load_mimi
from engine.errors import CheckpointError, EngineError, UnsupportedModel
from tests.unit.mimi_files import CONFIG, shapes, tensors, write

PUBLISHED_FILE: dict[str, Any] = {
    "sample_rate": 24000,
    "channels": 1,
    "frame_rate": 12.5,
    "seanet": {
        "channels": 1,
        "dimension": 512,
        "causal": True,
        "n_filters": 64,
        "n_residual_layers": 1,
        "activation": "ELU",
        "compress": 2,
        "dilation_base": 2,
        "disable_norm_outer_blocks": 0,
        "kernel_size": 7,
        "residual_kernel_size": 3,
        "last_kernel_size": 3,
        "norm": "none",
        "pad_mode": "constant",
        "ratios": [8, 6, 5, 4],
        "true_skip": True,
    },
    "quantizer": {"dimension": 256, "n_q": 32, "bins": 2048, "input_dimension": 512, "output_dimension": 512},
    "transformer": {
        "d_model": 512,
        "num_heads": 8,
        "num_layers": 8,
        "causal": True,
        "layer_scale": 0.01,
        "context": 250,
        "conv_layout": True,
        "max_period": 10000,
        "gating": "none",
        "norm": "layer_norm",
        "positional_embedding": "rope",
        "dim_feedforward": 2048,
        "input_dimension": 512,
        "output_dimensions": [512],
    },
}


@pytest.mark.parametrize("name", shapes())
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    content = tensors()
    del content[name]
    with pytest.raises(CheckpointError, match=f"'{name}' is missing"):
        load_mimi(write(tmp_path / "mimi.safetensors", content), CONFIG)


@pytest.mark.parametrize("name", shapes())
def test_a_misshapen_tensor_is_named(tmp_path: Path, name: str) -> None:
    content = tensors()
    content[name] = torch.cat([content[name], content[name]])
    with pytest.raises(CheckpointError, match=f"'{name}' is .*expected"):
        load_mimi(write(tmp_path / "mimi.safetensors", content), CONFIG)


@pytest.mark.parametrize(
    "name",
    [
        "decoder.model.7.conv.conv.weight",
        "quantizer.rvq_rest.vq.layers.2._codebook.embedding_sum",
        "encoder_transformer.transformer.layers.0.self_attn.in_proj_weight",  # besides the current spelling
    ],
)
def test_a_tensor_too_many_is_named(tmp_path: Path, name: str) -> None:
    content = tensors() | {name: torch.zeros(3)}
    with pytest.raises(CheckpointError, match=f"unexpected tensor '{name}'"):
        load_mimi(write(tmp_path / "mimi.safetensors", content), CONFIG)


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    content = tensors() | {"decoder.model.5.conv.conv.bias": torch.zeros(1, dtype=torch.int32)}
    with pytest.raises(CheckpointError, match=r"'decoder\.model\.5\.conv\.conv\.bias' is of torch\.int32"):
        load_mimi(write(tmp_path / "mimi.safetensors", content), CONFIG)


@pytest.mark.parametrize("codebooks", [0, 4])
def test_as_many_codebooks_as_the_file_has(tmp_path: Path, codebooks: int) -> None:
    with pytest.raises(UnsupportedModel, match="n_q"):
        load_mimi(write(tmp_path / "mimi.safetensors", tensors()), CONFIG, codebooks)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path, whole = tmp_path / "mimi.safetensors", save(tensors())
    with pytest.raises(CheckpointError):
        load_mimi(path, CONFIG)
    for size in range(0, len(whole), 500):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError):
            load_mimi(path, CONFIG)


def test_a_damaged_header_is_refused_or_means_the_same(tmp_path: Path) -> None:
    path, whole = tmp_path / "mimi.safetensors", save(tensors())
    path.write_bytes(whole)
    expected = flat(dataclasses.astuple(load_mimi(path, CONFIG)))
    header, chance, refused = int.from_bytes(whole[:8], "little"), random.Random(5), 0
    for _ in range(200):
        damaged = bytearray(whole)
        damaged[chance.randrange(8 + header)] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            found = load_mimi(path, CONFIG)
        except CheckpointError:
            refused += 1
        else:
            assert torch.equal(flat(dataclasses.astuple(found)), expected)
    assert refused > 150


def flat(weights: Any) -> torch.Tensor:
    parts = [part.flatten() if isinstance(part, torch.Tensor) else flat(part) for part in weights]
    return torch.cat([torch.zeros(0), *parts])


def test_numbers_are_read_as_stored(tmp_path: Path) -> None:
    """Half precision widens exactly; unused codewords are divided by the least usage; fewer codebooks are kept."""
    content = tensors()
    usage = content["quantizer.rvq_rest.vq.layers.0._codebook.cluster_usage"]
    usage[2] = 0
    content["upsample.convtr.convtr.convtr.weight"] = content["upsample.convtr.convtr.convtr.weight"].bfloat16()
    weights = load_mimi(write(tmp_path / "mimi.safetensors", content), CONFIG, codebooks=2)
    table = weights.decoder.quantiser.acoustic.codebooks[0]
    sums = content["quantizer.rvq_rest.vq.layers.0._codebook.embedding_sum"]
    assert torch.equal(table[2], sums[2] / USAGE_MIN)
    assert torch.equal(table[3], sums[3] / usage[3])
    assert weights.decoder.quantiser.codebooks == 2
    upsample = content["upsample.convtr.convtr.convtr.weight"][:, 0].float()
    assert torch.equal(weights.decoder.upsample, upsample.T)


def test_the_published_configuration_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mimi.json"
    path.write_text(json.dumps(PUBLISHED_FILE))
    config = load_mimi_config(path)
    assert config == PUBLISHED
    assert (config.frame_samples, config.overlap) == (1920, 0)


def test_unknown_metadata_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "mimi.json"
    path.write_text(json.dumps(PUBLISHED_FILE | {"model_id": {"sig": "abc"}}))
    with caplog.at_level(logging.WARNING):
        assert load_mimi_config(path) == PUBLISHED
    assert "model_id" in caplog.text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("channels", 2),
        ("frame_rate", 25.0),
        ("frame_rate", 11.0),
        ("seanet.channels", 2),
        ("seanet.causal", False),
        ("seanet.activation", "GELU"),
        ("seanet.norm", "weight_norm"),
        ("seanet.pad_mode", "replicate"),
        ("seanet.true_skip", False),
        ("seanet.trim_right_ratio", 0.5),
        ("seanet.compress", 128),
        ("quantizer.n_q_semantic", 32),
        ("quantizer.input_dimension", 256),
        ("quantizer.codebook_offset", 1),
        ("transformer.d_model", 256),
        ("transformer.gating", "silu"),
        ("transformer.norm", "rms_norm_f32"),
        ("transformer.positional_embedding", "sin"),
        ("transformer.kv_repeat", 2),
        ("transformer.num_heads", 7),
        ("transformer.context", 1),
        ("transformer.cross_attention", True),
        ("transformer.surprise", 1),
    ],
)
def test_what_is_not_run_is_refused_by_name(tmp_path: Path, field: str, value: object) -> None:
    with pytest.raises(UnsupportedModel) as refused:
        _load_with(tmp_path, field, value)
    assert (refused.value.field, refused.value.value) == (field, value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sample_rate", "24000"),
        ("frame_rate", 0),
        ("frame_rate", float("nan")),
        ("sample_rate", 10**400),
        ("seanet", []),
        ("seanet.ratios", []),
        ("seanet.ratios", [8, 0]),
        ("seanet.n_filters", 64.0),
        ("seanet.kernel_size", True),
        ("quantizer.n_q", -1),
        ("transformer.layer_scale", None),
        ("transformer.max_period", 10**400),
    ],
)
def test_a_wrong_type_or_size_is_refused_by_name(tmp_path: Path, field: str, value: object) -> None:
    with pytest.raises(CheckpointError, match=field):
        _load_with(tmp_path, field, value)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"seanet": 1}', "[" * 100_000, "\x00"])
def test_what_is_no_configuration_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mimi.json"
    with pytest.raises(CheckpointError):
        load_mimi_config(path)
    path.write_text(text)
    with pytest.raises(CheckpointError):
        load_mimi_config(path)


def test_any_field_of_any_value_is_read_or_refused(tmp_path: Path) -> None:
    chance = random.Random(6)
    values: list[Any] = [None, True, 0, -1, 1, 3, 2.5, 1e300, 10**30, "x", [], [1], {}, {"a": 1}, float("inf")]
    fields = [f"{part}.{name}" for part in ("seanet", "quantizer", "transformer") for name in PUBLISHED_FILE[part]]
    refused = 0
    for _ in range(200):
        try:
            _load_with(tmp_path, chance.choice([*fields, *PUBLISHED_FILE]), chance.choice(values))
        except EngineError:
            refused += 1
    assert refused > 150


@pytest.mark.parametrize(
    ("field", "error"),
    [
        ("sample_rate", CheckpointError),
        ("channels", UnsupportedModel),
        ("seanet", UnsupportedModel),  # as if empty: moshi's defaults are not causal
        ("seanet.causal", UnsupportedModel),
        ("seanet.pad_mode", UnsupportedModel),
        ("quantizer.input_dimension", UnsupportedModel),
        ("transformer.layer_scale", CheckpointError),
        ("transformer.conv_layout", UnsupportedModel),
        ("transformer.context", CheckpointError),
    ],
)
def test_a_missing_field_is_refused_by_name(tmp_path: Path, field: str, error: type[EngineError]) -> None:
    with pytest.raises(error, match=field):
        _load_with(tmp_path, field, None)


def _load_with(folder: Path, field: str, value: object) -> None:
    raw = copy.deepcopy(PUBLISHED_FILE)
    *parts, name = field.split(".")
    (raw[parts[0]] if parts else raw)[name] = value
    path = folder / "mimi.json"
    path.write_text(json.dumps(raw))
    load_mimi_config(path)
