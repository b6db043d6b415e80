"""Fast path against slow twin: every native kernel agrees with torch, and rows never depend on their batch."""

from __future__ import annotations

import ctypes

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


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    rows=st.integers(1, 40),
    inputs=st.integers(1, 70),
    outputs=st.integers(1, 100),
    half=st.booleans(),
    biased=st.booleans(),
    tiles=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_linear_is_exact_by_row(
    rows: int, inputs: int, outputs: int, half: bool, biased: bool, tiles: bool, seed: int
) -> None:
    """Close to torch, and bit for bit the same for a row alone, for any number of rows and any place among them."""
    random = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=random).to(torch.float16 if half else torch.float32)
    bias = torch.randn(outputs, generator=random) if biased else None
    x = torch.randn(rows, inputs, generator=random)
    tiles = tiles and k.has_tiles()
    packer = k.Packer.empty(tiles)
    packed = packer.linear(weight, bias)
    weight = weight.to(torch.float16) if tiles else weight
    lib = k.load()

    def run(part: torch.Tensor) -> torch.Tensor:
        y = torch.full((len(part), packed.panels * k.LANES), torch.nan)
        lib.antiphon_linear(ctypes.addressof(packed), len(part), part.data_ptr(), inputs, y.data_ptr(), y.shape[1])
        return y[:, :outputs]

    together = run(x)
    want = torch.nn.functional.linear(x, weight.float(), bias)
    assert torch.allclose(together, want, atol=5e-4 if tiles else 1e-4, rtol=1e-4)
    assert all(torch.equal(run(x[row : row + 1].clone())[0], together[row]) for row in range(rows))
