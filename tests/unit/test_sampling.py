"""Counter noise and sampling: known answers, the distribution, and the C++ twin."""

from __future__ import annotations

import ctypes

import pytest
import torch

from cuda_ext import kernels
from engine.native import packed_draws
from engine.sampling import Draws, gumbel, philox, sample


def word(value: int) -> torch.Tensor:
    return torch.tensor([value])


@pytest.mark.parametrize(
    ("seed", "counter", "answer"),
    [  # Random123's known answers for philox4x32-10, first output word
        (0, (0, 0, 0, 0), 0x6627E8D5),
        (-1, (0xFFFFFFFF,) * 4, 0x408F276D),
        (
            0x299F31D0A4093822 - (1 << 64) if 0x299F31D0A4093822 >= 1 << 63 else 0x299F31D0A4093822,
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0xD16CFE09,
        ),
    ],
)
def test_philox_known_answers(seed: int, counter: tuple[int, int, int, int], answer: int) -> None:
    c0, c1, c2, c3 = (word(value) for value in counter)
    assert int(philox(word(seed), (c0, c1, c2, c3))) == answer


def draws(rows: int, temperature: float, top_k: int) -> Draws:
    return Draws(
        torch.arange(rows) * 7919 - 3,
        torch.zeros(rows, dtype=torch.int64),
        torch.arange(rows),
        torch.full((rows,), temperature),
        torch.full((rows,), top_k),
    )


def test_frequencies_follow_the_softmax() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0, 0.5]])
    rows = 20_000
    tokens = sample(logits.expand(rows, -1), draws(rows, 0.7, 0), 1)
    seen = torch.bincount(tokens, minlength=5) / rows
    assert float((seen - torch.softmax(logits[0] / 0.7, 0)).abs().max()) < 0.012


def test_top_k_keeps_only_the_best() -> None:
    logits = torch.randn(400, 64, generator=torch.Generator().manual_seed(1))
    tokens = sample(logits, draws(400, 5.0, 3), 1)
    best = logits.topk(3).indices
    assert bool((best == tokens[:, None]).any(dim=1).all())


def test_zero_temperature_is_arg_max() -> None:
    logits = torch.randn(50, 64, generator=torch.Generator().manual_seed(2))
    assert torch.equal(sample(logits, draws(50, 0.0, 3), 1), logits.argmax(1))


def test_noise_depends_on_every_part_of_the_key() -> None:
    base = draws(1, 1.0, 0)
    one = gumbel(base, 1, 8)
    assert not torch.equal(one, gumbel(base, 2, 8))
    for field in ("seed", "generation", "step"):
        changed = Draws(**{name: getattr(base, name) for name in Draws.__slots__} | {field: getattr(base, field) + 1})
        assert not torch.equal(one, gumbel(changed, 1, 8)), field


@pytest.mark.parametrize("card", [5, 512, 2048])
@pytest.mark.parametrize(("temperature", "top_k"), [(0.0, 0), (0.4, 100), (1.0, 0), (0.7, 1)])
def test_native_sampler_equals_torch(card: int, temperature: float, top_k: int) -> None:
    rows = 64
    logits = torch.randn(rows, card, generator=torch.Generator().manual_seed(card)) * 3
    chosen = draws(rows, temperature, min(top_k, card))
    out = torch.empty(rows, dtype=torch.int64)
    packed = packed_draws(chosen)
    assert packed.shape[1] * 4 == ctypes.sizeof(kernels.DrawStruct)
    kernels.load().antiphon_sample(rows, logits.data_ptr(), card, card, packed.data_ptr(), 3, out.data_ptr())
    assert torch.equal(out, sample(logits, chosen, 3))
