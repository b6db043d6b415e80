"""Small Mimis of other shapes than the published one, from their configuration file on, against moshi's own."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from engine.codec.mimi import decoder, encoder
from engine.codec.mimi.config import PUBLISHED, MimiConfig, load_mimi_config
from engine.codec.mimi.state import StreamState, decoder_state, encoder_state
from engine.codec.mimi.weights import MimiWeights, load_mimi

pytest.importorskip("moshi")

from moshi.models import loaders

from tests.parity import mimi_reference as reference

if TYPE_CHECKING:
    from moshi.models.compression import MimiModel

pytestmark = pytest.mark.usefixtures("one_torch_thread")

SMALL: dict[str, Any] = {
    "sample_rate": 1200,
    "channels": 1,
    "frame_rate": 100.0,
    "seanet": {
        "channels": 1,
        "dimension": 32,
        "causal": True,
        "n_filters": 8,
        "n_residual_layers": 1,
        "ratios": [3, 2],
        "kernel_size": 7,
        "last_kernel_size": 3,
        "norm": "none",
        "pad_mode": "constant",
    },
    "quantizer": {"dimension": 16, "n_q": 6, "bins": 40, "input_dimension": 32, "output_dimension": 32},
    "transformer": {
        "d_model": 32,
        "num_heads": 4,
        "num_layers": 2,
        "causal": True,
        "layer_scale": 0.01,
        "context": 10,
        "conv_layout": True,
        "gating": "none",
        "norm": "layer_norm",
        "positional_embedding": "rope",
        "dim_feedforward": 48,
        "input_dimension": 32,
        "output_dimensions": [32],
    },
}
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "small": {},
    "dilated": {"seanet": {"n_residual_layers": 3, "dilation_base": 3, "residual_kernel_size": 5, "compress": 4}},
    "odd kernels": {"seanet": {"kernel_size": 4, "last_kernel_size": 1, "residual_kernel_size": 1}},
    "no residuals": {"seanet": {"n_residual_layers": 0}},
    "one ratio": {"seanet": {"ratios": [6]}},
    "three positions a frame": {"seanet": {"ratios": [2, 2]}, "transformer": {"context": 7}},
    "context of a frame": {"transformer": {"context": 2, "max_period": 100}},
    "semantic": {"quantizer": {"n_q_semantic": 2, "q_dropout": True}},
    "equal widths": {"quantizer": {"dimension": 32, "input_dimension": None, "output_dimension": None}},
}
STEPS = 24


@dataclass(frozen=True, slots=True)
class Pair:
    config: MimiConfig
    theirs: MimiModel
    ours: MimiWeights


def build(folder: Path, change: dict[str, dict[str, Any]], codebooks: int, older_names: bool = False) -> Pair:
    raw = copy.deepcopy(SMALL)
    for part, values in change.items():
        raw[part].update(values)
    (folder / "mimi.json").write_text(json.dumps(raw))
    path = folder / "mimi.safetensors"
    reference.write_mimi(path, raw, seed=7, older_names=older_names)
    config = load_mimi_config(folder / "mimi.json")
    return Pair(config, reference.load_reference(path, raw, codebooks), load_mimi(path, config, codebooks))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(("codebooks", "older_names"), [(6, False), (3, True)])
def test_shapes_equal_moshis(
    tmp_path: Path, change: dict[str, dict[str, Any]], codebooks: int, older_names: bool
) -> None:
    pair = build(tmp_path, change, codebooks, older_names)
    generator = torch.Generator().manual_seed(8)
    codes = torch.randint(-1, pair.config.bins, (STEPS, 2, codebooks), generator=generator)
    sound = torch.randn(STEPS, 2, pair.config.frame_samples, generator=generator)
    plan = reference.schedule(STEPS, joins=(0, 5), stalls=(0, 4))
    theirs = reference.stream(
        pair.theirs, plan, lambda step: pair.theirs.decode(codes[step, :, :, None].clamp(0))[:, 0]
    )
    ours = _decode(pair, plan, codes)
    assert 0.05 < theirs.std() < 3
    assert (ours - theirs)[plan.runs].abs().max() < 1e-5

    theirs = reference.stream(pair.theirs, plan, lambda step: pair.theirs.encode(sound[step, :, None])[:, :, 0])
    assert torch.equal(_encode(pair, plan, sound, codebooks)[plan.runs], theirs[plan.runs])

    clip = sound.transpose(0, 1).flatten(1)[:, :-5]
    with torch.inference_mode():
        found = encoder.encode_clip(pair.ours.encoder, pair.config, clip, codebooks)
        assert torch.equal(found, pair.theirs.encode(clip[:, None]))


def _decode(pair: Pair, plan: reference.Schedule, codes: Tensor) -> Tensor:
    outputs, state, slots = [], decoder_state(pair.config, 2), torch.arange(2)
    for step, resets, runs in plan:
        _clear(state, resets)
        samples, advance = decoder.decode(pair.ours.decoder, pair.config, codes[step], state, slots)
        state.advance(slots, runs, advance)
        outputs.append(samples)
    return torch.stack(outputs)


def _encode(pair: Pair, plan: reference.Schedule, sound: Tensor, codebooks: int) -> Tensor:
    outputs, state, slots = [], encoder_state(pair.config, 2), torch.arange(2)
    for step, resets, runs in plan:
        _clear(state, resets)
        codes, advance = encoder.encode(pair.ours.encoder, pair.config, sound[step], state, slots, codebooks)
        state.advance(slots, runs, advance)
        outputs.append(codes[:, :, 0])
    return torch.stack(outputs)


def _clear(state: StreamState, resets: Tensor) -> None:
    for slot in resets.nonzero().flatten().tolist():
        state.clear(slot)


def test_published_is_what_moshi_means_by_no_configuration(tmp_path: Path) -> None:
    path = tmp_path / "mimi.json"
    path.write_text(json.dumps(loaders._mimi_config))
    assert load_mimi_config(path) == PUBLISHED


def test_several_frames_at_once_equal_moshis(tmp_path: Path) -> None:
    """Two frames' positions overwrite the ring before any of them attends, in moshi's encoder as in ours."""
    pair = build(tmp_path, {}, 6)
    sound = torch.randn(6, 1, 2 * pair.config.frame_samples, generator=torch.Generator().manual_seed(9))
    plan = reference.schedule(6, joins=(0,), stalls=(0,))
    theirs = reference.stream(pair.theirs, plan, lambda step: pair.theirs.encode(sound[step, :, None]))
    state, slots = encoder_state(pair.config, 1), torch.zeros(1, dtype=torch.int64)
    for step in range(6):
        ours, advance = encoder.encode(pair.ours.encoder, pair.config, sound[step], state, slots, 6)
        state.advance(slots, torch.ones(1, dtype=torch.bool), advance)
        assert torch.equal(ours, theirs[step])
