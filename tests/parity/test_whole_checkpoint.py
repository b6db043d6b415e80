"""A whole folder as Kyutai publishes it, with a small Mimi: what the engine sends is what moshi decodes."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

import numpy as np
import pytest
import soundfile
import torch

from engine.contract import Entry
from engine.dsm import DsmEngine
from engine.errors import CheckpointError, KernelError, UnsupportedModel
from engine.kernels import TorchKernels
from engine.layers import Int8Matrix
from engine.loading import describe, load_engine, tokenizer_file
from engine.voices import VoicedOptions

pytest.importorskip("moshi")

from tests.parity import mimi_reference
from tests.parity import tiny_checkpoints as tiny
from tests.parity.test_checkpoints import words
from tests.parity.test_mimi_shapes import SMALL

pytestmark = pytest.mark.usefixtures("one_torch_thread")

FRAME = 12
STEP = 1.5 / 32767
"""Rounding to int16."""


def codec() -> tiny.Json:
    raw = copy.deepcopy(SMALL)
    raw |= {"sample_rate": 150, "frame_rate": 12.5}
    raw["quantizer"]["bins"] = tiny.CARD
    return raw


def write(folder: Path, raw: tiny.Json) -> None:
    (folder / "mimi.json").write_text(json.dumps(codec()))
    tiny.write_checkpoint(folder, raw, seed=3)
    mimi_reference.write_mimi(folder / raw["mimi_name"], codec(), seed=4)
    (folder / "tokenizer.model").write_bytes(b"not read by the engine")
    (folder / "voices").mkdir(exist_ok=True)


def published(**changes: object) -> tiny.Json:
    return tiny.published(mimi_config_name="mimi.json", **changes)


def sound(record: tiny.Record, folder: Path, row: int, skip: int = 0) -> torch.Tensor:
    """moshi decodes what it generated (``TTSModel.simple_generate``, without its two dropped frames)."""
    mimi = mimi_reference.load_reference(folder / "mimi.safetensors", codec(), len(record.delays))
    parts = []
    with mimi.streaming(1), torch.no_grad():
        for frame in range(record.delay, record.frames.shape[2]):
            parts.append(mimi.decode(record.frames[row : row + 1, :, frame : frame + 1])[0, 0].clamp(-1, 1))
    return torch.cat(parts[skip:])


def speak(engine: DsmEngine, plans: Sequence[tuple[Sequence[Entry], VoicedOptions]]) -> list[torch.Tensor]:
    for slot, (entries, plan) in enumerate(plans):
        engine.open(slot, plan)
        engine.push(slot, entries)
        engine.finish(slot)
    live, out = list(range(len(plans))), [b"" for _ in plans]
    for _ in range(200):
        for frame in engine.collect(engine.launch(live)):
            out[frame.slot] += frame.pcm
            if frame.ended:
                live.remove(frame.slot)
                engine.close(frame.slot)
        if not live:
            break
    return [torch.from_numpy(np.frombuffer(pcm, dtype="<i2").astype(np.float32) / 32767) for pcm in out]


def plan(engine: DsmEngine, *voices: str, cfg: float | None = None) -> VoicedOptions:
    defaults = engine.info.defaults
    assert isinstance(defaults, VoicedOptions)
    return dataclasses.replace(defaults, voices=voices, cfg=cfg, temperature=0.0, temperature_text=0.0)


def test_voices_to_samples(tmp_path: Path) -> None:
    raw = published()
    write(tmp_path, raw)
    paths = [tiny.write_voice(tmp_path / "voices", name, seed) for seed, name in enumerate(["a", "b"])]
    rows = [tiny.Row(words(5, 1, 40), (paths[0],), 2.0), tiny.Row(words(6, 2, 40), (paths[1],), 1.0)]
    record = tiny.generate(tmp_path, raw, rows)
    engine = load_engine(tmp_path, capacity=2)
    assert (engine.info.sample_rate, engine.info.frame_samples) == (150, FRAME)
    assert describe(tmp_path) == engine.info
    assert tokenizer_file(tmp_path) == tmp_path / "tokenizer.model"
    spoken = speak(engine, [(rows[0].entries, plan(engine, "a")), (rows[1].entries, plan(engine, "b", cfg=1.0))])
    for row, got in enumerate(spoken):
        want = sound(record, tmp_path, row)
        end = record.end_steps[row]
        assert end is not None
        assert len(got) == FRAME * (end + 4), "the tail is final_padding long"
        time = min(len(got), len(want))
        assert time >= FRAME * end
        assert float((got[:time] - want[:time]).abs().max()) <= 1e-4 + STEP


def test_a_recording_to_samples(tmp_path: Path) -> None:
    """The voice is a recording that Mimi encodes, and the model goes on from it under guidance."""
    raw = tiny.plain(mimi_config_name="mimi.json")
    write(tmp_path, raw)
    wave = np.random.default_rng(1).uniform(-0.5, 0.5, FRAME * 14).astype(np.float32)
    soundfile.write(tmp_path / "voices" / "me.wav", wave, 150, subtype="FLOAT")
    mimi = mimi_reference.load_reference(tmp_path / "mimi.safetensors", codec(), raw["n_q"])
    with torch.no_grad():
        codes = mimi.encode(torch.from_numpy(wave)[None, None])[0, :, :-2]
    prefix = torch.cat([torch.full((1, codes.shape[1]), -1), codes])
    row = tiny.Row(words(5, 1, 40), prefix=prefix)
    record = tiny.generate(tmp_path, raw, [row], strength=2.0)
    engine = load_engine(tmp_path, capacity=1)
    assert engine.info.voices == ("me",)
    want = sound(record, tmp_path, 0, skip=codes.shape[1])
    for _ in range(2):  # the second time from the snapshot
        (got,) = speak(engine, [(row.entries, plan(engine, "me", cfg=2.0))])
        time = min(len(got), len(want))
        assert time > FRAME * 15
        assert float((got[:time] - want[:time]).abs().max()) <= 1e-4 + STEP


def test_bfloat16(tmp_path: Path) -> None:
    """A file in bfloat16 is run in it, and speaks; in float32 it is run as moshi runs it in float32."""
    from safetensors.torch import load_file, save_file

    raw = published()
    write(tmp_path, raw)
    path = tmp_path / raw["moshi_name"]
    weights = {name: tensor.bfloat16() for name, tensor in load_file(path).items()}
    save_file(weights, path)
    voice = tiny.write_voice(tmp_path / "voices", "a", 1)
    row = tiny.Row(words(5, 1, 40), (voice,), 2.0)
    engine = load_engine(tmp_path, capacity=1)
    assert isinstance(engine.kernels, TorchKernels)
    assert engine.kernels._kv.dtype == torch.bfloat16
    (got,) = speak(engine, [(row.entries, plan(engine, "a"))])
    assert len(got) > FRAME * 15
    assert float(got.abs().max()) > 0
    wide = load_engine(tmp_path, capacity=1, precision="float32")
    record = tiny.generate(tmp_path, raw, [row])
    (got,) = speak(wide, [(row.entries, plan(wide, "a"))])
    want = sound(record, tmp_path, 0)[: len(got)]
    assert float((got[: len(want)] - want).abs().max()) <= 1e-4 + STEP


def test_what_cannot_be_used(tmp_path: Path) -> None:
    write(tmp_path, published())
    with pytest.raises(KernelError):
        load_engine(tmp_path, kernels="native")
    with pytest.raises(UnsupportedModel, match="n_q"):
        load_engine(tmp_path, codebooks=5)
    mimi = tmp_path / "mimi.safetensors"
    mimi.write_bytes(mimi.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"mimi\.safetensors"):
        load_engine(tmp_path)
    mimi.unlink()
    with pytest.raises(CheckpointError, match=r"mimi\.safetensors"):
        load_engine(tmp_path)


def test_int8(tmp_path: Path) -> None:
    """Matrices in eight bits: near the floats, a quarter of their size, and it speaks."""
    write(tmp_path, published())
    tiny.write_voice(tmp_path / "voices", "a", 1)
    kinds: tuple[Literal["float32", "int8"], ...] = ("float32", "int8")
    engines = [load_engine(tmp_path, capacity=1, precision=kind) for kind in kinds]
    logits = []
    for engine in engines:
        kernels = engine.kernels
        assert isinstance(kernels, TorchKernels)
        (got,) = speak(engine, [(words(5, 1, 40), plan(engine, "a"))])
        assert len(got) > FRAME * 10
        engine.open(0, plan(engine, "a"))
        tokens = torch.tensor([[40 * 41 + 7, 3, 4, 5, 6]])
        hidden, text = kernels.backbone(tokens, torch.tensor([0]), torch.tensor([0]))
        assert hidden.dtype == torch.float32
        logits.append(text)
    assert 0 < float((logits[0] - logits[1]).abs().max()) < 0.1 * float(logits[0].std())
    matrices = [
        sum(tensor.nbytes for layer in kernels._depth.layers for matrix in layer.qkv for tensor in parts(matrix))
        for kernels in (engine.kernels for engine in engines)
        if isinstance(kernels, TorchKernels)
    ]
    assert matrices[1] < matrices[0] / 3


def parts(matrix: object) -> list[torch.Tensor]:
    return [matrix.weight, matrix.scale] if isinstance(matrix, Int8Matrix) else [cast(torch.Tensor, matrix)]
