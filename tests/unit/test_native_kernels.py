"""Fast path against slow twin: every native kernel agrees with torch, and rows never depend on their batch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda_ext import kernels as k
from engine.checkpoint import Checkpoint, load_checkpoint
from engine.kernels import TorchKernels
from engine.loading import BUILTIN
from engine.native import NativeKernels
from engine.sampling import Draws

ROWS = 11


@pytest.fixture(scope="module")
def model() -> Checkpoint:
    return load_checkpoint(BUILTIN)


@pytest.fixture
def pair(model: Checkpoint) -> tuple[NativeKernels, TorchKernels]:
    return NativeKernels(model, 16, 16), TorchKernels(model, 16, torch.device("cpu"), row_by_row=False)


def draws(rows: int) -> Draws:
    whole = torch.arange(rows)
    return Draws(whole + 5, whole, whole, torch.full((rows,), 0.5), torch.full((rows,), 50))


def test_backbone_over_a_ring_wrap(pair: tuple[NativeKernels, TorchKernels]) -> None:
    """Rows at different positions, one of them past the ring's end."""
    random = torch.Generator().manual_seed(3)
    slots = torch.randperm(16, generator=random)[:ROWS]
    start = torch.arange(ROWS) * 20
    worst = 0.0
    for offset in range(270):
        tokens = torch.randint(-1, 512, (ROWS, 9), generator=random)
        tokens[:, 0] = torch.randint(-1, 2049 * 2049, (ROWS,), generator=random)
        rows = slice(None) if offset % 7 else slice(2, 5)
        position = start + offset
        if offset < 250 and rows != slice(None):
            rows = slice(None)
        got = pair[0].backbone(tokens[rows], slots[rows], position[rows].contiguous())
        want = pair[1].backbone(tokens[rows], slots[rows], position[rows])
        worst = max(worst, *(float((a - b).abs().max()) for a, b in zip(got, want, strict=True)))
    assert worst < 2e-4


def test_depth_with_forced_tokens(pair: tuple[NativeKernels, TorchKernels]) -> None:
    random = torch.Generator().manual_seed(4)
    native, plain = pair
    native.keep_logits = True
    hidden = torch.randn(ROWS, 320, generator=random)
    text = torch.randint(0, 2049, (ROWS,), generator=random)
    forced = torch.randint(-1, 512, (ROWS, 8), generator=random)
    everyone = torch.ones(ROWS, dtype=torch.bool)
    got = native.depth(hidden, text, draws(ROWS), forced, everyone)
    want = plain.depth(hidden, text, draws(ROWS), forced, everyone)
    assert torch.equal(got, want)
    assert bool(((forced < 0) | (got == forced)).all())
    assert native.logits is not None
    assert plain.logits is not None
    assert float((native.logits - plain.logits).abs().max()) < 1e-4


def test_codec_with_uncommitted_rows(pair: tuple[NativeKernels, TorchKernels]) -> None:
    random = torch.Generator().manual_seed(5)
    slots = torch.arange(ROWS) + 3
    for _ in range(6):
        codes = torch.randint(0, 512, (ROWS, 8), generator=random)
        commit = torch.rand(ROWS, generator=random) < 0.7
        got, want = (kernels.codec(codes, slots, commit) for kernels in pair)
        assert float((got - want)[commit].abs().max()) < 1e-4
    for slot in (3, 9):
        assert float((pair[0].codec_tail(slot) - pair[1].codec_tail(slot)).abs().max()) < 1e-4


KINDS = {k.FLOAT_PANELS: 1e-6, k.HALF_PANELS: 1e-6, k.FIXED_16: 5e-5, k.FIXED_8: 6e-3}
"""Kinds of matrices, and the largest error of an output, relative to the sizes of what goes in."""


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    rows=st.integers(1, 40),
    inputs=st.integers(1, 200),
    outputs=st.integers(1, 100),
    kind=st.sampled_from([None, *KINDS]),
    biased=st.booleans(),
    spread=st.sampled_from([0.0, 1.0, 1e-3, 50.0]),
    seed=st.integers(0, 1000),
)
def test_linear_is_exact_by_row(
    rows: int, inputs: int, outputs: int, kind: int | None, biased: bool, spread: float, seed: int
) -> None:
    """Close to torch, and bit for bit the same for a row alone, for any number of rows and any place among them."""
    random = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=random).half()
    bias = torch.randn(outputs, generator=random) if biased else None
    x = torch.randn(rows, inputs, generator=random) * spread
    packed, run = packed_linear(kind, weight, bias)
    together = run(x)
    want = torch.nn.functional.linear(x, weight.float(), bias)
    size = x.norm(dim=1, keepdim=True) * weight.float().norm(dim=1) + (0.0 if bias is None else bias.abs()) + 1e-6
    assert packed.kind == (k.HALF_PANELS if kind is None else kind)
    assert float(((together - want).abs() / size).max()) < max(KINDS[packed.kind] * inputs**0.5, 2e-6) + 1e-7
    assert all(torch.equal(run(x[row : row + 1].clone())[0], together[row]) for row in range(rows))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    rows=st.integers(1, 40),
    inputs=st.integers(1, 200),
    outputs=st.integers(1, 70),
    kind=st.sampled_from([k.FIXED_16, k.FIXED_8]),
    seed=st.integers(0, 1000),
)
def test_fixed_point_is_the_same_on_tiles_by_dots_and_plainly(
    rows: int, inputs: int, outputs: int, kind: int, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    _, run = packed_linear(kind, torch.randn(outputs, inputs, generator=random).half(), None)
    x = torch.randn(rows, inputs, generator=random)
    best = run(x)
    lib = k.load()
    try:
        for products in (k.PLAINLY, k.BY_DOTS):
            lib.antiphon_limit_products(products)
            assert torch.equal(run(x), best)
    finally:
        lib.antiphon_tiles()


@pytest.mark.parametrize("kind", [k.FIXED_16, k.FIXED_8])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_fixed_point_shows_what_is_not_finite(kind: int, value: float) -> None:
    _, run = packed_linear(kind, torch.ones(20, 70).half(), None)
    x = torch.ones(3, 70)
    x[1, 65] = value
    finite = torch.isfinite(run(x))
    assert finite[[0, 2]].all()
    assert not finite[1].any()


def packed_linear(
    kind: int | None, weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[k.LinearStruct, Callable[[torch.Tensor], torch.Tensor]]:
    packer = k.Packer.empty(kind)
    packed = packer.linear(weight, bias)
    lib = k.load()

    def run(x: torch.Tensor) -> torch.Tensor:
        assert packer.kept
        y = torch.full((len(x), packed.panels * k.LANES), torch.nan)
        lib.antiphon_linear(ctypes.addressof(packed), len(x), x.data_ptr(), x.shape[1], y.data_ptr(), y.shape[1])
        return y[:, : packed.outputs]

    return packed, run
