"""Mimi at the published configuration, all 32 codebooks, against moshi's own on the same file of random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from engine.codec.mimi import decoder, encoder
from engine.codec.mimi.config import PUBLISHED
from engine.codec.mimi.state import Advance, StreamState, decoder_state, encoder_state
from engine.codec.mimi.weights import MimiWeights, load_mimi

pytest.importorskip("moshi")

from tests.parity import mimi_reference as reference

if TYPE_CHECKING:
    from moshi.models.compression import MimiModel

pytestmark = [pytest.mark.usefixtures("one_torch_thread"), pytest.mark.timeout(300)]

TOLERANCE = 1e-4
CONTEXT_FRAMES = PUBLISHED.transformer.context // PUBLISHED.stride
FRAME = PUBLISHED.frame_samples
SLOTS = (3, 0)
"""Of five: the slot of each row."""


@dataclass(frozen=True, slots=True)
class Pair:
    theirs: MimiModel
    ours: MimiWeights


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    path: Path = tmp_path_factory.mktemp("mimi") / "mimi.safetensors"
    reference.write_mimi(path, None, seed=1)
    return Pair(reference.load_reference(path, None, PUBLISHED.codebooks), load_mimi(path, PUBLISHED))


def stream(
    plan: reference.Schedule, state: StreamState, frame: Callable[[int, list[int], Tensor], tuple[Tensor, Advance]]
) -> Tensor:
    """The counterpart of ``reference.stream``; the rows of a batch change places from step to step."""
    outputs, count = [], plan.runs.shape[1]
    with torch.inference_mode():
        for step, resets, runs in plan:
            for row in resets.nonzero().flatten().tolist():
                state.clear(SLOTS[row])
            order = [(row + step) % count for row in range(count)]
            slots = torch.tensor([SLOTS[row] for row in order])
            output, advance = frame(step, order, slots)
            state.advance(slots, runs[order], advance)
            outputs.append(output[torch.tensor(order).argsort()])
    return torch.stack(outputs)


def test_decoder_equals_moshis_past_a_full_ring(pair: Pair) -> None:
    plan = reference.schedule(steps=254, joins=(0, 110), stalls=(0, 17))
    codes = torch.randint(0, PUBLISHED.bins, (254, 2, PUBLISHED.codebooks), generator=torch.Generator().manual_seed(2))
    theirs = reference.stream(pair.theirs, plan, lambda step: pair.theirs.decode(codes[step][:, :, None])[:, 0])
    state = decoder_state(PUBLISHED, 5)
    ours = stream(
        plan,
        state,
        lambda step, order, slots: decoder.decode(pair.ours.decoder, PUBLISHED, codes[step, order], state, slots),
    )
    assert ours.shape == (254, 2, FRAME)
    assert 0.1 < theirs[plan.runs].std() < 2, "the reference's own scale, or the tolerance means nothing"
    assert (state.position[list(SLOTS)] > PUBLISHED.transformer.context).all(), "every ring has wrapped"
    assert (ours - theirs)[plan.runs].abs().max() < TOLERANCE


def test_encoder_equals_moshis_past_a_full_ring(pair: Pair) -> None:
    steps, rows = 140, len(SLOTS)
    plan = reference.schedule(steps, joins=(0, 6), stalls=(0, 40))
    sound = torch.randn(steps, rows, FRAME, generator=torch.Generator().manual_seed(3)) * 0.3

    def latents(step: int) -> Tensor:
        return pair.theirs._encode_to_unquantized_latent(sound[step][:, None])[:, :, 0]

    theirs = reference.stream(pair.theirs, plan, latents)
    state = encoder_state(PUBLISHED, 5)

    def frame(step: int, order: list[int], slots: Tensor) -> tuple[Tensor, Advance]:
        found, advance = encoder.encode_latents(pair.ours.encoder, PUBLISHED, sound[step, order], state, slots)
        return found[:, 0], advance

    ours = stream(plan, state, frame)
    assert 0.1 < theirs[plan.runs].std() < 3
    assert (state.position[list(SLOTS)] > PUBLISHED.transformer.context).all()
    assert (ours - theirs)[plan.runs].abs().max() < TOLERANCE


def test_codes_of_a_whole_clip_equal_moshis(pair: Pair) -> None:
    """A clip longer than the context and not of whole frames, where moshi keeps no ring."""
    length = (CONTEXT_FRAMES + 5) * FRAME - 700
    sound = torch.randn(1, length, generator=torch.Generator().manual_seed(4)) * 0.3
    with torch.inference_mode():
        latents = pair.theirs.encode_to_latent(sound[:, None], quantize=False)
        theirs = pair.theirs.quantizer.encode(latents)
        found = encoder.encode_clip_latents(pair.ours.encoder, PUBLISHED, sound)
        ours = encoder.encode_clip(pair.ours.encoder, PUBLISHED, sound, PUBLISHED.codebooks)
        assert ours.shape == (1, PUBLISHED.codebooks, CONTEXT_FRAMES + 5)
        assert (found - latents.transpose(1, 2)).abs().max() < TOLERANCE
        flat = [codes.transpose(1, 2).flatten(0, 1) for codes in (ours, theirs)]
        differing, gap = reference.unlike_codes(pair.theirs, latents.transpose(1, 2).flatten(0, 1), *flat)
    assert torch.bincount(theirs.flatten()).count_nonzero() > PUBLISHED.bins / 4, "the codewords are in use"
    assert differing <= 2
    assert gap < reference.NEAR_TIE


def test_a_row_is_the_same_alone(pair: Pair) -> None:
    state = decoder_state(PUBLISHED, 4)
    single = decoder_state(PUBLISHED, 4)
    slots = torch.tensor([2, 0, 3, 1])
    codes = torch.randint(0, PUBLISHED.bins, (4, 4, PUBLISHED.codebooks), generator=torch.Generator().manual_seed(5))
    with torch.inference_mode():
        for step in range(4):
            batch, advance = decoder.decode(pair.ours.decoder, PUBLISHED, codes[step], state, slots)
            state.advance(slots, torch.ones(4, dtype=torch.bool), advance)
            for row in range(4):
                one = slice(row, row + 1)
                alone, advance = decoder.decode(pair.ours.decoder, PUBLISHED, codes[step, one], single, slots[one])
                single.advance(slots[one], torch.ones(1, dtype=torch.bool), advance)
                assert (batch[one] - alone).abs().max() < 1e-5
