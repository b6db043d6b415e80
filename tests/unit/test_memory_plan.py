"""The plan said beforehand against the tensors that a loaded engine holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import VOICE_POSITIONS
from engine.errors import CheckpointError
from engine.loading import load_engine
from engine.plan import plan_memory, read_header
from engine.voices import VoicedOptions

pytest.importorskip("moshi")

from tests.parity import tiny_checkpoints as tiny
from tests.parity.test_whole_checkpoint import published, write

SIZE: tiny.Json = {"dim": 96, "depformer_dim": 64, "depformer_dim_feedforward": 192, "num_layers": 4, "context": 200}


def held(part: object, seen: set[int]) -> Iterator[torch.Tensor]:
    """All tensors within, each once."""
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, torch.Tensor):
        yield part
    elif isinstance(part, tuple | list):
        for item in part:
            yield from held(item, seen)
    elif isinstance(part, dict):
        for item in part.values():
            yield from held(item, seen)
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            yield from held(getattr(part, field.name), seen)
    elif hasattr(part, "__dict__"):
        yield from held(vars(part), seen)


@pytest.mark.parametrize("kind", ["hearing", "guided", "one stream"])
@pytest.mark.parametrize(
    ("dtype", "precision"),
    [(torch.float32, "auto"), (torch.bfloat16, "auto"), (torch.bfloat16, "int8"), (torch.bfloat16, "float32")],
)
def test_within_a_tenth(
    kind: str, dtype: torch.dtype, precision: Literal["auto", "int8", "float32"], tmp_path: Path
) -> None:
    raw = published(**SIZE)
    if kind != "hearing":
        raw = tiny.plain(mimi_config_name="mimi.json", **SIZE)
    if kind == "one stream":
        raw |= {"demux_second_stream": False, "depformer_low_rank_embeddings": None}
        raw["tts_config"] = {"audio_delay": 0.4}
    write(tmp_path, raw)
    path = tmp_path / raw["moshi_name"]
    save_file({name: tensor.to(dtype) for name, tensor in load_file(path).items()}, path)
    if kind == "hearing":
        tiny.write_voice(tmp_path / "voices", "a", 1, positions=VOICE_POSITIONS)
    slots, voices = 40, int(kind == "hearing")
    run = torch.float32 if precision == "float32" else None
    plan = plan_memory(tmp_path, dtype=run, int8=precision == "int8")
    engine = load_engine(tmp_path, capacity=slots, precision=precision)
    assert isinstance(engine.info.defaults, VoicedOptions)
    engine.open(0, engine.info.defaults)
    measured = sum(tensor.nbytes for tensor in held((engine.kernels, engine._buffers, engine._casting), set()))
    measured += codec_encoder_bytes(tmp_path / raw["mimi_name"])
    assert plan.held(slots, voices) == pytest.approx(measured, rel=0.1)
    assert plan.slot_bytes * slots > plan.held(0, voices) / 2, "the slots weigh enough to be seen"
    assert plan.parameters == sum(tensor.numel() for tensor in load_file(path).values())
    assert plan.slots_that_fit(plan.held(7, voices), voices) == 7


def codec_encoder_bytes(path: Path) -> int:
    """Of what the engine keeps to encode recordings, which no attribute of it leads to."""
    names = ("encoder.", "encoder_transformer.", "downsample.")
    return sum(tensor.nbytes for name, tensor in load_file(path).items() if name.startswith(names))


@pytest.mark.parametrize("damage", [b"", b"abc", b"\xff" * 9, b"\x02\0\0\0\0\0\0\0[]", b"\x04\0\0\0\0\0\0\0null"])
def test_a_damaged_header(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(damage)
    with pytest.raises(CheckpointError):
        read_header(tmp_path / "a.safetensors")
