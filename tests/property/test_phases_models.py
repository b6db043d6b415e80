"""The phases' transformers, on the host twin, against torch: shapes, switches, precisions, slot maps and ring wraps."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cuda_ext.build import compiler
from engine import backbone, depth, ops, packing
from engine.backbone import Heard
from engine.cuda_kernels import by_index
from engine.depth import Guidance
from engine.kernels import moved, quantised
from engine.sampling import Draws, sample
from tests.property.random_models import CARD, CONTEXT, Dice, backbone_weights, config, depth_weights

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
W = TypeVar("W")
CPU = torch.device("cpu")
KINDS = st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.int8])
CLOSE = 1e-5
"""Largest difference from torch in float32, over the largest number (or 1): the order of summation, no more. The same
for every precision of the weights, since both sides compute with the same weights in float32."""


def some_draws(dice: Dice, rows: int) -> Draws:
    return Draws(
        dice.whole(-(2**62), 2**62, rows),
        dice.whole(0, 9, rows),
        dice.whole(0, 999, rows),
        torch.rand(rows, generator=dice.generator).round(decimals=1),
        dice.whole(0, CARD + 3, rows),
    )


def in_kind(weights: W, kind: torch.dtype) -> tuple[W, W]:
    """The weights as the phases get them, and the same numbers in float32 for torch."""
    if kind == torch.int8:
        eight = quantised(weights, torch.float32)
        return eight, eight
    narrow = moved(weights, CPU, kind)
    return narrow, moved(narrow, CPU, torch.float32)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    schedule=st.sampled_from([(0,), (0, 1), (0, 1, 2, 2, 2), (0, 0, 1, 1)]),
    widths=st.sampled_from([(16, 16, 16), (8, 24, 16)]),
    kind=KINDS,
    extras=st.booleans(),
    rows=st.integers(1, 9),
    guided=st.integers(0, 3),
    force=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_depth(
    schedule: tuple[int, ...],
    widths: tuple[int, ...],
    kind: torch.dtype,
    extras: bool,
    rows: int,
    guided: int,
    force: bool,
    seed: int,
) -> None:
    """Logits are torch's for the same tokens; tokens are what torch draws from these logits."""
    dice, c = Dice(seed), config(schedule, widths, cross=False, positions="rope", extras=extras)
    packed_weights, plain = in_kind(depth_weights(dice, c), kind)
    packed, draws = packing.pack_depth(packed_weights, c, CPU), some_draws(dice, rows)
    hidden, first = dice.normal(rows, 32), dice.normal(rows, 24)
    guidance: Guidance | None = None
    guides: tuple[Tensor | None, Tensor | None] = (None, None)
    if guided := min(guided, rows):
        chosen = torch.randperm(rows, generator=dice.generator)[:guided]
        guidance = Guidance(dice.normal(guided, 32), chosen, 1.0 + torch.rand(guided, generator=dice.generator))
        guides = (chosen, guidance.strength)
    given_hidden = torch.cat([hidden, guidance.hidden]) if guidance else hidden
    given_first = torch.cat([first, first[guidance.rows]]) if guidance else first
    forced = dice.whole(-1, CARD, rows, len(schedule)) if force else None
    counter = torch.zeros(1, dtype=torch.int32)
    columns = (draws.seed, draws.generation, draws.step, draws.temperature, draws.top_k)
    tokens, logits = ops.depth_frame(
        given_hidden, given_first, *columns, forced, *guides, counter, packed.handle, len(schedule), CARD
    )
    _, want = depth.frame(plain, c, hidden, first, draws, tokens, guidance)
    assert float((logits[:rows] - want).abs().max()) < CLOSE * max(1.0, float(want.abs().max()))
    for book in range(len(schedule)):
        own = sample(logits[:rows, book], draws, book + 1)
        assert torch.equal(
            tokens[:, book], own if forced is None else torch.where(forced[:, book] >= 0, forced[:, book], own)
        )


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    kind=KINDS,
    kv_kind=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    cross=st.booleans(),
    positions=st.sampled_from(["rope", "rope_concat", "none"]),
    extras=st.booleans(),
    rows=st.integers(1, 6),
    steps=st.integers(1, 4),
    masked=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_backbone(
    kind: torch.dtype,
    kv_kind: torch.dtype,
    cross: bool,
    positions: str,
    extras: bool,
    rows: int,
    steps: int,
    masked: bool,
    seed: int,
) -> None:
    """Steps of rows at any positions, past the ring's end too; what is not committed stays in the ring bit for bit."""
    dice, c = Dice(seed), config((0,), (16,), cross, positions, extras)
    packed_weights, plain = in_kind(backbone_weights(dice, c), kind)
    slots_in_all = rows + 2
    kv = dice.normal(2, 2, slots_in_all, 2, CONTEXT, 16).to(kv_kind)
    want_kv = kv.float()
    packed = packing.pack_backbone(packed_weights, c, slots_in_all, kv)
    slots = torch.randperm(slots_in_all, generator=dice.generator)[:rows]
    position = dice.whole(0, 3 * CONTEXT, rows)
    heard, voices = some_voices(dice, rows) if cross else (None, (None, None, None))
    for _ in range(steps):
        x = dice.normal(rows, 32)
        commit = dice.whole(0, 2, rows).bool() if masked else None
        before, by_index_kv = want_kv.clone(), want_kv.clone()
        want = backbone.step(plain, c, x, want_kv, slots, position, heard)
        other = backbone.step(plain, c, x, by_index_kv, slots, position, heard, by_index)
        assert float((other - want).abs().max()) < 5 * CLOSE
        got = ops.backbone_step(x.clone(), kv, slots, position, commit, *voices, packed.handle)
        written = slots if commit is None else slots[commit]
        if commit is not None:  # the query of a row that writes nothing meets what is there
            want = torch.where(commit[:, None], want, got)
            want_kv[:, :, slots[~commit]] = before[:, :, slots[~commit]]
        rounding = {torch.float32: 5 * CLOSE, torch.float16: 2e-2, torch.bfloat16: 2e-1}[kv_kind]
        assert float((got - want).abs().max()) < rounding
        assert torch.allclose(kv[:, :, written].float(), want_kv[:, :, written], atol=rounding, rtol=0.0)
        others = [slot for slot in range(slots_in_all) if slot not in written.tolist()]
        assert torch.equal(kv[:, :, others].float(), before[:, :, others])
        want_kv = kv.float()
        position = position + (1 if commit is None else commit.long())


def some_voices(dice: Dice, rows: int) -> tuple[Heard, tuple[Tensor, Tensor, Tensor]]:
    table = dice.normal(3, 2, 2, 2, 5, 16)
    voice, length = dice.whole(0, 3, rows), dice.whole(1, 6, rows)
    return Heard(table, voice, length), (table, voice, length)


def test_refusals_name_the_switch() -> None:
    c = config((0, 1), (16, 16), cross=True, positions="rope", extras=True)
    assert packing.depth_refused(c) is None
    assert packing.backbone_refused(c) is None
    assert "norm 'layer_norm'" in str(
        packing.depth_refused(dataclasses.replace(c, depth=dataclasses.replace(c.depth, norm="layer_norm")))
    )
    assert "gating 'gelu'" in str(
        packing.backbone_refused(dataclasses.replace(c, backbone=dataclasses.replace(c.backbone, gating="gelu")))
    )
    assert "'rope'" in str(
        packing.depth_refused(dataclasses.replace(c, depth=dataclasses.replace(c.depth, positions="rope")))
    )
    assert "context" in str(packing.backbone_refused(dataclasses.replace(c, context=5000)))
