"""The phases' smaller kernels, on the host twin, against torch."""

from __future__ import annotations

import ctypes

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda_ext import device
from cuda_ext.build import compiler
from engine import ops
from engine.codec.mimi.convolution import Convolution, Pasts, convolve
from engine.layers import attend
from engine.packing import circle
from engine.sampling import Draws, sample
from engine.text import FIELDS, Field, TextBuffers, advance
from tests.property.random_models import Dice

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
SEEDS = st.integers(0, 10**6)


def test_structures_are_those_of_the_headers() -> None:
    sizes = (ctypes.c_int32 * len(device.STRUCTURES))()
    device.library("cpu").antiphon_phase_sizes(ctypes.addressof(sizes))
    assert list(sizes) == [ctypes.sizeof(structure) for structure in device.STRUCTURES]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    rows=st.integers(1, 6),
    card=st.one_of(st.integers(1, 40), st.integers(200, 2500)),
    top_k=st.integers(-1, 300),
    heat=st.sampled_from([0.0, 0.3, 1.0, 4.0]),
    coarse=st.booleans(),
    seed=SEEDS,
)
def test_sampling(rows: int, card: int, top_k: int, heat: float, coarse: bool, seed: int) -> None:
    """coarse: many equal logits, zeros of both signs among them."""
    dice = Dice(seed)
    logits = dice.normal(rows, card + 5, scale=3.0)[:, :card]
    logits = logits.round() * 0.5 if coarse else logits
    seeds, generations, steps = dice.whole(0, 2**40, rows, 3).unbind(1)
    draws = Draws(seeds, generations, steps, torch.full((rows,), heat), torch.full((rows,), top_k))
    columns = (draws.seed, draws.generation, draws.step, draws.temperature, draws.top_k)
    assert torch.equal(ops.sample(logits, *columns, 4), sample(logits, draws, 4))


def test_sampling_of_what_is_no_number_stays_within_the_card() -> None:
    logits = torch.tensor([[float("nan")] * 5, [float("-inf")] * 5, [0.0, float("nan"), 1.0, float("inf"), 2.0]])
    ones = torch.ones(3, dtype=torch.int64)
    for heat in (0.0, 1.0):
        tokens = ops.sample(logits, ones, ones, ones, torch.full((3,), heat), ones * 2, 0)
        assert bool(((tokens >= 0) & (tokens < 5)).all())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    rows=st.integers(1, 6),
    heads=st.integers(1, 3),
    head_dim=st.sampled_from([8, 16, 24, 64, 128, 136]),
    positions=st.integers(1, 70),
    kind=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    ring=st.booleans(),
    seed=SEEDS,
)
def test_attention(
    rows: int, heads: int, head_dim: int, positions: int, kind: torch.dtype, ring: bool, seed: int
) -> None:
    """Any slot map; rings that are filling, full and wrapped; or lengths. Within 2e-6 of torch in float32."""
    dice = Dice(seed)
    table = dice.normal(2, rows + 3, heads, positions, head_dim).to(kind)
    q, index = dice.normal(rows, heads, head_dim), dice.whole(0, rows + 3, rows)
    count = dice.whole(0, 3 * positions, rows) if ring else dice.whole(1, positions + 1, rows)
    many = (count + 1).clamp(max=positions) if ring else count
    valid = torch.arange(positions) < many[:, None]
    want = attend(q, table[0, index].float(), table[1, index].float(), valid)
    got = ops.attend(q, table[0], table[1], index, count if ring else None, None if ring else count)
    assert float((got - want).abs().max()) < 2e-6 * positions**0.5 + 1e-6


@settings(max_examples=80, deadline=None, derandomize=True)
@given(rows=st.integers(1, 300), ahead=st.integers(0, 3), seed=SEEDS)
def test_text_machine_from_any_state(rows: int, ahead: int, seed: int) -> None:
    dice, capacity = Dice(seed), rows + 2
    buffers = TextBuffers(
        dice.whole(-1, 4, capacity, FIELDS),
        dice.whole(0, 9, capacity, 32),
        dice.whole(0, 40, capacity, 16),
        dice.whole(0, 8, capacity, 16),
    )
    for field in (Field.CUR, Field.END, Field.AHEAD, Field.AHEAD_END):
        buffers.state[:, field] = dice.whole(60, 70, capacity)
    for field in (Field.ENTRIES_TAKEN, Field.ENTRIES_GIVEN, Field.WORDS_TAKEN, Field.WORDS_GIVEN):
        buffers.state[:, field] = dice.whole(30, 36, capacity)
    slots, sampled = torch.randperm(capacity, generator=dice.generator)[:rows], dice.whole(0, 4, rows)
    rings = (buffers.state, buffers.tokens, buffers.word_begin, buffers.entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.text.TOKEN_RING", 32)
        patch.setattr("engine.text.ENTRY_RING", 16)
        want = advance(buffers, slots, sampled, ahead, 50, 3)
    token, word, commit, state = ops.text_step(*rings, slots, sampled, ahead, 50, 3)
    assert torch.equal(commit, want.commit)
    assert torch.equal(token[commit], want.token[commit])
    assert torch.equal(word, want.word)
    assert torch.equal(state, want.state)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    n=st.sampled_from([8, 12, 60, 240, 960]),
    overlap=st.integers(1, 4),
    subframes=st.integers(4, 8),
    rows=st.integers(1, 4),
    seed=SEEDS,
)
def test_spectra_to_samples(n: int, overlap: int, subframes: int, rows: int, seed: int) -> None:
    """Three frames in a row of slots in any order, with rows that are not committed. Within 1e-5 of torch's FFT."""
    dice, hop, bins = Dice(seed), n // overlap, n // 2 + 1
    window = torch.hann_window(n)
    store = dice.normal(rows + 2, n + 3)
    lines, want_lines = store[:, 3:], store[:, 3:].clone()
    radix = max(f for f in range(1, n) if n % f == 0 and f * f <= n)
    slots = torch.randperm(rows + 2, generator=dice.generator)[:rows]
    for _ in range(3):
        heads, commit = dice.normal(rows, subframes, 2 * bins), dice.whole(0, 2, rows).bool()
        got = ops.spectral_wave(heads, lines, slots, commit, circle(n, heads.device), window / n, radix, hop, 1.0)
        log, phase = heads.chunk(2, dim=-1)
        waves = torch.fft.irfft(torch.polar(log.clamp(max=1.0).exp(), phase), n) * window
        line = F.pad(want_lines[slots], (0, (subframes - 1) * hop))
        for j in range(subframes):
            line[:, j * hop : j * hop + n] += waves[:, j]
        size = subframes * hop
        assert float((got - line[:, :size]).abs().max()) < 1e-5
        fresh = F.pad(line[:, size:], (0, n - line[:, size:].shape[1]))
        want_lines[slots] = torch.where(commit[:, None], fresh, want_lines[slots])
        assert float((lines - want_lines).abs().max()) < 1e-5


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    kernel=st.sampled_from([1, 3, 7]),
    dilation=st.integers(1, 3),
    time=st.integers(1, 9),
    inputs=st.integers(1, 40),
    outputs=st.integers(1, 20),
    elu=st.booleans(),
    skip=st.booleans(),
    seed=SEEDS,
)
def test_mimi_convolution(
    kernel: int, dilation: int, time: int, inputs: int, outputs: int, elu: bool, skip: bool, seed: int
) -> None:
    """Several frames with pasts longer and shorter than a frame, rows that are not committed. Within 1e-5 of torch."""
    dice, rows, length = Dice(seed), 3, (kernel - 1) * dilation
    weight, bias = dice.matrix(outputs * kernel, inputs).view(outputs, kernel, inputs), dice.normal(outputs)
    store = dice.normal(rows + 2, length * inputs + 4)
    pasts, want_pasts = store[:, 4:], store[:, 4:].clone()
    slots = torch.randperm(rows + 2, generator=dice.generator)[:rows]
    for _ in range(3):
        x, commit = dice.normal(rows, time, inputs), dice.whole(0, 2, rows).bool()
        residual = dice.normal(rows, time, outputs) if skip else None
        got = ops.elu_convolve(x, pasts, slots, commit, weight, bias, residual, dilation, elu)
        flat = want_pasts[slots].view(rows, length, inputs)
        held = F.elu(flat) if elu else flat
        stack = Pasts(held.flatten(1))
        want = convolve(F.elu(x) if elu else x, Convolution(weight, bias), stack, dilation=dilation)
        assert float((got - (want + residual if residual is not None else want)).abs().max()) < 1e-5
        fresh = torch.cat([flat, x], dim=1)[:, time:].flatten(1)
        want_pasts[slots] = torch.where(commit[:, None], fresh, want_pasts[slots])
        assert torch.equal(pasts, want_pasts)
