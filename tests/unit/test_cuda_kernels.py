"""``CudaKernels`` and its operators, on the host twin: the shipped voice and the operators' registrations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from cuda_ext.build import compiler
from engine import ops, packing
from engine.checkpoint import Checkpoint, load_checkpoint
from engine.cuda_kernels import CudaKernels, refusals
from engine.depth import Guidance
from engine.dsm import DsmEngine
from engine.kernels import TorchKernels
from engine.loading import BUILTIN, model_info
from engine.sampling import Draws
from tests.property.random_models import Dice, backbone_weights, config, depth_weights
from tests.unit.engine_helpers import audio, options, run_to_end, words

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
ROWS, CPU = 3, torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> Checkpoint:
    return load_checkpoint(BUILTIN)


def draws(rows: int) -> Draws:
    whole = torch.arange(rows)
    return Draws(whole + 5, whole, whole, torch.full((rows,), 0.5), torch.full((rows,), 50))


def test_the_shipped_voice(model: Checkpoint) -> None:
    """Each operation against torch, on either side of the ring's end. Tolerances: sums in another order."""
    plain, phases = TorchKernels(model, 4, CPU, row_by_row=False), CudaKernels(model, 4, CPU)
    dice, slots, everyone = Dice(6), torch.tensor([2, 0, 3]), torch.ones(ROWS, dtype=torch.bool)
    assert refusals(model) == ()
    for position in (torch.tensor([0, 1, 7]), torch.tensor([1, 249, 600])):
        tokens = dice.whole(-1, 512, ROWS, 9)
        tokens[:, 0] = dice.whole(-1, 2049 * 2049, ROWS)
        got, want = (kernels.backbone(tokens, slots, position) for kernels in (phases, plain))
        assert all(torch.allclose(a, b, atol=2e-5) for a, b in zip(got, want, strict=True))
    text = dice.whole(0, 2049, ROWS)
    drawn = [kernels.depth(want[0], text, draws(ROWS), None, everyone) for kernels in (phases, plain)]
    assert torch.equal(*drawn)
    assert phases.logits is not None
    assert plain.logits is not None
    assert torch.allclose(phases.logits, plain.logits, atol=1e-4)
    codes, commit = dice.whole(0, 512, ROWS, 8), torch.tensor([True, False, True])
    sound, other = (kernels.codec(codes, slots, commit) for kernels in (phases, plain))
    assert torch.allclose(sound, other, atol=2e-6)
    tail, other = (kernels.codec_tail(2) for kernels in (phases, plain))
    assert torch.allclose(tail, other, atol=2e-6)
    assert float(other.abs().max()) > 0.0


def test_guidance_reaches_the_phases(model: Checkpoint) -> None:
    plain, phases = TorchKernels(model, 4, CPU, row_by_row=False), CudaKernels(model, 4, CPU)
    dice = Dice(8)
    hidden, text = dice.normal(ROWS, 320), dice.whole(0, 2049, ROWS)
    guidance = Guidance(dice.normal(2, 320), torch.tensor([2, 0]), torch.tensor([2.0, 3.0]))
    everyone = torch.ones(ROWS, dtype=torch.bool)
    forced = dice.whole(0, 512, ROWS, 8)
    for kernels in (plain, phases):
        kernels.depth(hidden, text, draws(ROWS), forced, everyone, guidance)
    assert phases.logits is not None
    assert plain.logits is not None
    assert phases.logits.shape == plain.logits.shape
    assert torch.allclose(phases.logits, plain.logits, atol=3e-4)


def test_many_rows_are_left_to_torch(model: Checkpoint) -> None:
    """Above its limits the products are torch's; the result is the same."""
    phases, few = CudaKernels(model, 4, CPU, few_rows=ROWS), CudaKernels(model, 4, CPU, few_rows=ROWS - 1)
    dice = Dice(7)
    tokens, slots, position = dice.whole(0, 512, ROWS, 9), torch.arange(ROWS), torch.arange(ROWS)
    assert torch.allclose(
        phases.backbone(tokens, slots, position)[0], few.backbone(tokens, slots, position)[0], atol=2e-5
    )


def test_a_session_from_its_first_word_to_its_end(model: Checkpoint) -> None:
    """The same words at the same steps, and the same audio but for rounding."""
    spoken = []
    for kernels in (CudaKernels(model, 2, CPU), TorchKernels(model, 2, CPU, row_by_row=False)):
        engine = DsmEngine(model, model_info(model), kernels, 2, CPU)
        engine.open(1, options(engine, 11))
        engine.push(1, words(2))
        engine.finish(1)
        spoken.append(run_to_end(engine, 1))
    assert [frame.word for frame in spoken[0]] == [frame.word for frame in spoken[1]]
    got, want = (np.frombuffer(audio(frames), dtype=np.int16).astype(int) for frames in spoken)
    assert len(want) > 5 * 1920
    assert abs(got - want).max() <= 2


@pytest.fixture(scope="module")
def columns() -> tuple[Tensor, ...]:
    d = draws(ROWS)
    return d.seed, d.generation, d.step, d.temperature, d.top_k


CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")


def check(operator: object, *arguments: object) -> None:
    """torch's own examination: what is said to be mutated is, and the fake has the real one's shapes."""
    results = torch.library.opcheck(operator, arguments, test_utils=CHECKS)  # type: ignore[arg-type]
    assert set(results.values()) == {"SUCCESS"}


def test_operators_small(columns: tuple[Tensor, ...]) -> None:
    dice, slots = Dice(3), torch.tensor([2, 0, 1])
    commit = torch.tensor([True, False, True])
    check(ops.sample, dice.normal(ROWS, 9), *columns, 1)
    table = dice.normal(4, 2, 5, 8)
    check(ops.attend, dice.normal(ROWS, 2, 8), table, table, slots, slots, None)
    check(ops.attend, dice.normal(ROWS, 2, 8), table, table, None, None, slots)
    rings = (dice.whole(0, 3, 4, 16), dice.whole(0, 9, 4, 8), dice.whole(0, 9, 4, 8), dice.whole(0, 9, 4, 8))
    check(ops.text_step, *rings, slots, slots, 1, 50, 3)
    circle, window = packing.circle(12, CPU), dice.normal(12)
    check(ops.spectral_wave, dice.normal(ROWS, 4, 14), dice.normal(4, 12), slots, commit, circle, window, 3, 3, 1.0)
    weight = (dice.normal(6, 3, 5), dice.normal(6))
    check(ops.elu_convolve, dice.normal(ROWS, 4, 5), dice.normal(4, 10), slots, commit, *weight, None, 1, True)


def test_operators_of_packed_models(columns: tuple[Tensor, ...]) -> None:
    dice, slots = Dice(4), torch.tensor([2, 0, 1])
    c = config((0, 1), (16, 16), cross=True, positions="rope", extras=True)
    packed = packing.pack_depth(depth_weights(dice, c), c, CPU)
    counter = torch.zeros(1, dtype=torch.int32)
    inputs = (dice.normal(ROWS, 32), dice.normal(ROWS, 24))
    none = (None, None, None)
    check(ops.depth_frame, *inputs, *columns, *none, counter, packed.handle, 2, c.card)
    kv = torch.zeros(2, 2, 4, 2, c.context, 16)
    model = packing.pack_backbone(backbone_weights(dice, c), c, 4, kv)
    voices = (dice.normal(2, 2, 2, 2, 5, 16), torch.tensor([0, 1, 0]), torch.tensor([5, 2, 1]))
    commit = torch.tensor([True, False, True])
    check(ops.backbone_step, dice.normal(ROWS, 32), kv, slots, slots, commit, *voices, model.handle)
