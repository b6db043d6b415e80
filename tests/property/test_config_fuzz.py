"""Damaged configurations and weights of a checkpoint: each is refused by a typed error, whatever the damage."""

from __future__ import annotations

import copy
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.checkpoint import load_language_model
from engine.errors import CheckpointError, EngineError, UnsupportedModel
from engine.manifest import load_model_config

CASES = 100
"""Of each kind."""

CONFIG: dict[str, Any] = {
    "card": 8,
    "n_q": 2,
    "dep_q": 2,
    "delays": [0, 0, 1],
    "dim": 8,
    "text_card": 8,
    "num_heads": 2,
    "num_layers": 1,
    "hidden_scale": 4.125,
    "causal": True,
    "context": 16,
    "max_period": 10000,
    "gating": "silu",
    "norm": "rms_norm_f32",
    "positional_embedding": "rope",
    "depformer_dim": 8,
    "depformer_num_heads": 2,
    "depformer_num_layers": 1,
    "depformer_dim_feedforward": 24,
    "depformer_multi_linear": True,
    "depformer_gating": "silu",
    "depformer_pos_emb": "none",
    "depformer_weights_per_step": True,
    "depformer_weights_per_step_schedule": [0, 1],
    "depformer_low_rank_embeddings": 4,
    "demux_second_stream": True,
    "cross_attention": False,
    "conditioners": {
        "cfg": {
            "type": "lut",
            "lut": {"n_bins": 2, "dim": 4, "tokenizer": "noop", "possible_values": ["1.0", "2.0"]},
        }
    },
    "fuser": {"sum": ["cfg"], "cross": [], "prepend": []},
    "model_type": "tts",
    "moshi_name": "lm.safetensors",
    "mimi_name": "mimi.safetensors",
    "tokenizer_name": "tokenizer.model",
    "tts_config": {"audio_delay": 0.4, "second_stream_ahead": 1},
    "model_id": {"sig": "a", "epoch": 1},
}
WRONG: tuple[Any, ...] = ({"a": 1}, [[1]], "nonsense", -5, 2.5, 10**40, float("nan"), float("inf"), [None], True, "..")
"""Values that no field takes whose own value is of another type."""
LOOSE = {"model_id"}
"""Fields whose contents the reference does not look at."""


def places(value: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all fields."""
    out = [at] if at else []
    if isinstance(value, dict):
        for name, item in value.items():
            if name not in LOOSE:
                out += places(item, (*at, name))
    return out


def put(raw: dict[str, Any], at: tuple[str, ...], value: Any) -> None:
    for name in at[:-1]:
        raw = raw[name]
    raw[at[-1]] = value


def current(raw: dict[str, Any], at: tuple[str, ...]) -> Any:
    for name in at:
        raw = raw[name]
    return raw


def unlike(value: Any, rng: random.Random) -> Any:
    """Something that a field with this value cannot take."""
    while True:
        wrong = rng.choice(WRONG)
        same = isinstance(wrong, type(value)) or (isinstance(value, float) and isinstance(wrong, int))
        if isinstance(value, str) and wrong == "..":
            return wrong
        if isinstance(value, dict) and wrong == {"a": 1}:
            return wrong
        if not same or (isinstance(value, int) and not isinstance(value, bool) and wrong in (-5, 10**40)):
            return wrong


def damaged_config(seed: int) -> str:
    rng = random.Random(seed)
    raw = copy.deepcopy(CONFIG)
    text = json.dumps(raw)
    kind = seed % 5
    if kind == 0:
        return text[: rng.randrange(len(text) - 1)]
    if kind == 1:
        where = rng.choice([(), ("fuser",), ("conditioners", "cfg", "lut")])
        put(raw, (*where, f"new_{rng.randrange(10**6)}"), rng.choice(WRONG))
    elif kind == 2:
        del raw[
            rng.choice(["num_layers", "context", "depformer_num_heads", "tts_config", "depformer_weights_per_step"])
        ]
    else:
        at = rng.choice(places(raw))
        put(raw, at, unlike(current(raw, at), rng))
    return json.dumps(raw)


@pytest.mark.parametrize("seed", range(CASES))
def test_damaged_config(seed: int, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(damaged_config(seed))
    with pytest.raises((CheckpointError, UnsupportedModel)):
        load_model_config(tmp_path)


def test_the_config_itself_is_sound(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert load_model_config(tmp_path).generated == 2


@pytest.mark.parametrize("text", ["", "null", "[]", "3", '"a"', "{", "\x00", '{"a":' * 20_000, "\udcff"])
def test_what_is_no_configuration(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError):
        load_model_config(tmp_path)


def test_a_folder_without_configuration(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_model_config(tmp_path)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A sound file for that configuration: tensors are asked for until none is missing."""
    folder = tmp_path_factory.mktemp("sound")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    tensors: dict[str, torch.Tensor] = {}
    for _ in range(200):
        save_file(tensors, folder / "lm.safetensors")
        try:
            load_language_model(folder)
            return (folder / "lm.safetensors").read_bytes()
        except CheckpointError as error:
            _supply(tensors, error)
    raise AssertionError("never sound")


def _supply(tensors: dict[str, torch.Tensor], error: CheckpointError) -> None:
    name = error.reason.split("'")[1]
    if "missing" in error.reason:
        tensors[name] = torch.ones(1)
    else:
        tensors[name] = torch.ones(json.loads(error.reason.split("expected ")[1]))


def damaged_weights(sound: bytes, seed: int) -> bytes:
    rng = random.Random(seed)
    (length,) = struct.unpack("<Q", sound[:8])
    header, body = json.loads(sound[8 : 8 + length]), sound[8 + length :]
    name = rng.choice(sorted(header))
    kind = seed % 10
    if kind == 0:
        return sound[: rng.randrange(len(sound))]
    if kind == 1:
        return struct.pack("<Q", rng.choice([0, 1, length - 1, length + 1, 2**32, 2**63, 2**64 - 1])) + sound[8:]
    if kind == 2:
        return rng.randbytes(rng.randrange(200))
    if kind == 3:
        del header[name]
    elif kind == 4:
        header[f"{name}.{rng.randrange(100)}"] = header.pop(name)
    elif kind == 5:
        header[name]["shape"] = [*header[name]["shape"], rng.choice([1, 2, 0])]
    elif kind == 6:
        header[name]["dtype"] = rng.choice(["I32", "F64", "F16", "BOGUS", "", None, 4])
    elif kind == 7:
        begin, end = header[name]["data_offsets"]
        header[name]["data_offsets"] = rng.choice([[end, begin], [begin, 2**40], [-1, end], [begin], [begin + 1, end]])
    elif kind == 8:
        header["one_more"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(body), len(body) + 4]}
        body += b"\0\0\0\0"
    else:
        header[name] = rng.choice([None, 3, [], "a", {"dtype": "F32"}])
    packed = json.dumps(header).encode()
    return struct.pack("<Q", len(packed)) + packed + body


@pytest.mark.parametrize("seed", range(CASES))
def test_damaged_weights(seed: int, weights: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "lm.safetensors").write_bytes(damaged_weights(weights, seed))
    with pytest.raises(EngineError):
        load_language_model(tmp_path)


@pytest.mark.parametrize(
    ("damage", "name"),
    [(4, "is missing"), (8, "unexpected tensor 'one_more'")],
)
def test_the_error_names_the_tensor(damage: int, name: str, weights: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "lm.safetensors").write_bytes(damaged_weights(weights, damage))
    with pytest.raises(CheckpointError, match=name):
        load_language_model(tmp_path)
