"""The oracle itself: deterministic, complete records, and codes that the offline codec turns into sound."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

pytest.importorskip("moshi")

from engine.contract import Entry
from tests.parity.reference import (
    Generation,
    ReferenceVoice,
    TokenOverride,
    count_near_ties,
    near_ties,
)
from tests.parity.spectral_reference import SpectralReference

pytestmark = pytest.mark.usefixtures("one_torch_thread")

SHORT = "Yes, it is ready."
OTHER = "We left our boots by the stove."


@pytest.fixture(scope="module")
def batch(one_torch_thread: None, reference_voice: ReferenceVoice) -> list[Generation]:
    return reference_voice.generate([reference_voice.entries(text) for text in (SHORT, OTHER)], seed=5)


def same(a: Generation, b: Generation) -> bool:
    pairs = [(getattr(a, field.name), getattr(b, field.name)) for field in fields(Generation)]
    return all(torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in pairs)


def test_records_are_complete_and_consistent(batch: list[Generation]) -> None:
    for generation in batch:
        assert generation.end_step is not None
        frames = generation.end_step + 3  # final_padding
        steps = frames + generation.delay + max(generation.delays)
        assert generation.steps == steps
        assert generation.codes.shape == (8, frames)
        assert generation.text_logits.shape == (steps, 5)
        assert generation.audio_logits.shape == (steps, 8, 512)
        assert generation.audio_sampled.shape == generation.audio_fed.shape == (steps, 8)
        assert bool(torch.isfinite(generation.audio_logits).all())
        audible = generation.audible
        assert torch.equal(generation.audio_fed[audible], generation.audio_sampled[audible])
        assert bool((generation.audio_fed[~audible] == -1).all())
        for codebook, late in enumerate(generation.delays):
            start = generation.delay + late
            assert torch.equal(generation.codes[codebook], generation.audio_fed[start : start + frames, codebook])


def test_every_word_is_taken_once_and_in_order(batch: list[Generation]) -> None:
    for generation, text in zip(batch, (SHORT, OTHER), strict=True):
        assert len(generation.word_steps) == len(text.split())
        assert list(generation.word_steps) == sorted(set(generation.word_steps))
        assert generation.pop_steps == generation.word_steps


def test_a_break_is_taken_but_is_no_word_and_keeps_its_distance(reference_voice: ReferenceVoice) -> None:
    first, second = reference_voice.entries("Well, yes.")
    (generation,) = reference_voice.generate([[first, Entry((), padding=6), second]], greedy=True)
    assert len(generation.pop_steps) == 3
    assert generation.word_steps == (generation.pop_steps[0], generation.pop_steps[2])
    assert generation.pop_steps[2] - generation.pop_steps[1] >= 6


def test_same_seed_same_record_and_another_seed_another(
    reference_voice: ReferenceVoice, batch: list[Generation]
) -> None:
    entries = [reference_voice.entries(text) for text in (SHORT, OTHER)]
    state = torch.get_rng_state()
    again = reference_voice.generate(entries, seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(same(a, b) for a, b in zip(batch, again, strict=True))
    other = reference_voice.generate(entries, seed=6, record_logits=False)
    assert not torch.equal(other[0].audio_sampled, batch[0].audio_sampled)


def test_greedy_takes_the_best_logit(reference_voice: ReferenceVoice) -> None:
    (generation,) = reference_voice.generate([reference_voice.entries(SHORT)], greedy=True)
    assert torch.equal(generation.audio_sampled, generation.audio_logits.argmax(-1))
    assert torch.equal(generation.text_sampled, generation.text_logits.argmax(-1))
    (zero,) = reference_voice.generate([reference_voice.entries(SHORT)], temperature=0.0, temperature_text=0.0)
    assert same(zero, generation)


def test_override_replays_a_record_whatever_the_seed_and_the_batch(
    reference_voice: ReferenceVoice, batch: list[Generation]
) -> None:
    """The overridden row takes the given tokens, sees the same logits but for rounding, and ends at the same step."""
    spoken = batch[1]
    forced = TokenOverride(spoken.text_sampled, spoken.audio_sampled)
    alone, free = reference_voice.generate(
        [reference_voice.entries(OTHER), reference_voice.entries(SHORT)], seed=77, override=[forced, None]
    )
    assert torch.equal(alone.codes, spoken.codes)
    assert torch.equal(alone.text_fed, spoken.text_fed)
    assert alone.end_step == spoken.end_step
    audible = spoken.audible
    torch.testing.assert_close(alone.audio_logits[audible], spoken.audio_logits[audible], rtol=0, atol=1e-4)
    torch.testing.assert_close(alone.text_logits, spoken.text_logits, rtol=0, atol=1e-4)
    assert not torch.equal(free.audio_sampled, batch[0].audio_sampled)


def test_override_ends_where_its_tokens_end(reference_voice: ReferenceVoice, batch: list[Generation]) -> None:
    spoken = batch[0]
    part = TokenOverride(spoken.text_sampled[:12], spoken.audio_sampled[:12])
    (generation,) = reference_voice.generate([reference_voice.entries(SHORT)], seed=78, override=[part])
    prefix = torch.arange(generation.steps)[:, None].expand(-1, 8) < 12
    kept = prefix & generation.audible
    assert torch.equal(generation.audio_sampled[kept], spoken.audio_sampled[: generation.steps][kept[: spoken.steps]])
    assert not torch.equal(generation.codes, spoken.codes)


def test_padding_bonus_slows_speech_down(reference_voice: ReferenceVoice) -> None:
    entries = [reference_voice.entries(OTHER)]
    (plain,) = reference_voice.generate(entries, greedy=True, record_logits=False)
    (slow,) = reference_voice.generate(entries, greedy=True, padding_bonus=3.0, record_logits=False)
    assert plain.end_step is not None
    assert slow.end_step is not None
    assert slow.end_step > plain.end_step


def test_a_text_that_does_not_end_in_time_says_so(reference_voice: ReferenceVoice) -> None:
    (generation,) = reference_voice.generate([reference_voice.entries(OTHER)], max_steps=10)
    assert generation.end_step is None
    assert generation.steps == 10
    assert generation.codes.shape == (8, 10 - generation.delay - 1)


def test_near_ties_count_only_what_is_heard(batch: list[Generation]) -> None:
    assert near_ties(torch.tensor([[1.0, 1.00005, 0.0], [1.0, 1.01, 0.0]])).tolist() == [True, False]
    generation = batch[0]
    assert count_near_ties(generation, margin=1e9) == generation.steps + int(generation.audible.sum())
    assert count_near_ties(generation, margin=-1.0) == 0


def test_near_ties_need_logits(reference_voice: ReferenceVoice) -> None:
    (generation,) = reference_voice.generate([reference_voice.entries("Yes.")], record_logits=False)
    with pytest.raises(ValueError, match="record_logits"):
        count_near_ties(generation)


def test_codec_turns_codes_into_finite_audible_sound(
    spectral_reference: SpectralReference, batch: list[Generation]
) -> None:
    for generation in batch:
        samples = spectral_reference.decode(generation.codes[None])[0]
        assert samples.shape == (generation.codes.shape[1] * 1920,)
        assert bool(torch.isfinite(samples).all())
        assert 0.01 < float(samples.square().mean().sqrt()) < 0.5
        assert float(samples.abs().max()) < 1.5


def test_codec_is_causal(spectral_reference: SpectralReference, batch: list[Generation]) -> None:
    """A frame's samples are complete 720 samples after the frame, and do not depend on what comes later."""
    codes = batch[1].codes[None]
    whole = spectral_reference.decode(codes)[0]
    part = spectral_reference.decode(codes[..., :10])[0]
    complete = 10 * 1920 - 720
    torch.testing.assert_close(part[:complete], whole[:complete], rtol=0, atol=1e-5)
    assert not torch.allclose(part[complete:], whole[complete : 10 * 1920], atol=1e-3)
