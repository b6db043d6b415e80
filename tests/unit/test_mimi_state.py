"""A stream's state: rows join, stall, move and end without a trace in another."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from engine.codec.mimi import decoder, encoder
from engine.codec.mimi.state import StreamState, decoder_state, encoder_state, slot_bytes
from engine.codec.mimi.weights import MimiWeights, load_mimi
from tests.unit.mimi_files import CONFIG, tensors, write

STEPS = 12
"""Of two positions each: the ring of six wraps several times."""


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> MimiWeights:
    return load_mimi(write(tmp_path_factory.mktemp("mimi") / "mimi.safetensors", tensors()), CONFIG)


@pytest.fixture
def codes() -> Tensor:
    """int64 [steps, rows, codebooks]"""
    return torch.randint(0, CONFIG.bins, (STEPS, 3, CONFIG.codebooks), generator=torch.Generator().manual_seed(1))


def step(weights: MimiWeights, codes: Tensor, state: StreamState, slots: list[int], commit: list[bool]) -> Tensor:
    places = torch.tensor(slots)
    samples, advance = decoder.decode(weights.decoder, CONFIG, codes, state, places)
    state.advance(places, torch.tensor(commit), advance)
    return samples


def run(weights: MimiWeights, codes: Tensor, state: StreamState, slots: list[int]) -> Tensor:
    return torch.stack([step(weights, frame, state, slots, [True] * len(slots)) for frame in codes])


def copied(state: StreamState) -> StreamState:
    return state.gather(torch.arange(len(state.position)))


def same(one: StreamState, other: StreamState) -> bool:
    names = (field.name for field in dataclasses.fields(StreamState))
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


def test_decoding_itself_changes_no_state(weights: MimiWeights, codes: Tensor) -> None:
    state = decoder_state(CONFIG, 3)
    run(weights, codes, state, [0, 1, 2])
    before = copied(state)
    decoder.decode(weights.decoder, CONFIG, codes[0], state, torch.arange(3))
    assert same(before, state)


def test_rows_that_are_not_committed_stay_bit_for_bit(weights: MimiWeights, codes: Tensor) -> None:
    state = decoder_state(CONFIG, 4)
    run(weights, codes, state, [3, 0, 1])
    before = copied(state)
    first = step(weights, codes[0], state, [3, 0, 1], [False, True, False])
    kept = torch.tensor([3, 1, 2])
    assert same(before.gather(kept), state.gather(kept))
    assert not torch.equal(before.pasts[0], state.pasts[0])
    assert state.position.tolist() == [2 * STEPS + 2, 2 * STEPS, 0, 2 * STEPS]
    again = step(weights, codes[0], state, [3, 0, 1], [True, False, True])
    assert torch.equal(first[[0, 2]], again[[0, 2]]), "a retry says the same"


def test_a_cleared_slot_is_a_new_one(weights: MimiWeights, codes: Tensor) -> None:
    used, new = decoder_state(CONFIG, 3), decoder_state(CONFIG, 3)
    run(weights, codes.flip(0), used, [0, 1, 2])
    for slot in range(3):
        used.clear(slot)
    assert torch.equal(run(weights, codes, used, [0, 1, 2]), run(weights, codes, new, [0, 1, 2]))


def test_a_cleared_slot_of_the_encoder_is_a_new_one(weights: MimiWeights) -> None:
    sound = torch.randn(2, 1, 3 * CONFIG.frame_samples, generator=torch.Generator().manual_seed(2))
    state, slots, found = encoder_state(CONFIG, 1), torch.zeros(1, dtype=torch.int64), []
    for part in (sound[0], sound[1], sound[0]):
        latents, advance = encoder.encode_latents(weights.encoder, CONFIG, part, state, slots)
        state.advance(slots, torch.ones(1, dtype=torch.bool), advance)
        found.append(latents)
        if len(found) == 2:
            state.clear(0)
    assert torch.equal(found[0], found[2])


def test_streams_that_join_late_and_stall_equal_streams_alone(weights: MimiWeights, codes: Tensor) -> None:
    expected = torch.cat([run(weights, codes[:, [row]], decoder_state(CONFIG, 1), [0]) for row in range(3)], dim=1)
    state, done = decoder_state(CONFIG, 5), [0, 0, 0]
    slots, joins, stalls = [4, 1, 3], [0, 3, 5], [99, 2, 5]
    for now in range(5 + 2 * STEPS):
        rows = [row for row in range(3) if done[row] < STEPS and now >= joins[row]]
        if not rows:
            break
        commit = [now % stalls[row] != 1 for row in rows]
        frame = torch.stack([codes[done[row], row] for row in rows])
        samples = step(weights, frame, state, [slots[row] for row in rows], commit)
        for index, row in enumerate(rows):
            if commit[index]:
                assert (samples[index] - expected[done[row], row]).abs().max() < 1e-5
                done[row] += 1
    assert done == [STEPS] * 3


def test_a_state_moves_to_another_slot(weights: MimiWeights, codes: Tensor) -> None:
    state = decoder_state(CONFIG, 4)
    run(weights, codes[:5, [0]], state, [2])
    state.scatter(torch.tensor([0, 3]), state.gather(torch.tensor([2, 2])))
    here, there = (run(weights, codes[5:, [0]], state, [slot]) for slot in (2, 0))
    assert torch.equal(here, there)
    assert torch.equal(run(weights, codes[5:, [0]], state, [3]), here)


def test_codes_that_are_not_there_yet_are_taken_as_zero(weights: MimiWeights, codes: Tensor) -> None:
    missing = torch.where(codes == 0, -1, codes)
    assert (missing < 0).any()
    assert torch.equal(run(weights, missing, decoder_state(CONFIG, 3), [0, 1, 2]),
                       run(weights, codes, decoder_state(CONFIG, 3), [0, 1, 2]))  # fmt: skip


def test_fewer_codebooks_than_the_file_has(weights: MimiWeights, codes: Tensor) -> None:
    full, fewer = (run(weights, codes[:, :, :count], decoder_state(CONFIG, 3), [0, 1, 2]) for count in (3, 2))
    assert full.shape == fewer.shape == (STEPS, 3, CONFIG.frame_samples)
    assert not torch.equal(full, fewer)


def test_the_size_of_a_slot_is_known_beforehand() -> None:
    state = decoder_state(CONFIG, 3)
    assert 3 * slot_bytes(CONFIG) == state.pasts.nbytes + state.ring.nbytes + state.position.nbytes


def test_an_empty_clip_has_no_codes(weights: MimiWeights) -> None:
    assert encoder.encode_clip(weights.encoder, CONFIG, torch.zeros(2, 0), 3).shape == (2, 3, 0)
