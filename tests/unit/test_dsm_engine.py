"""The engine's promises to the scheduler: stalls, flush, ends, long texts, and one row's fault staying its own."""

from __future__ import annotations

import pytest

from engine.contract import Entry
from engine.dsm import DsmEngine
from engine.loading import load_engine
from engine.native import NativeKernels
from tests.unit.engine_helpers import audio, options, run_to_end, run_to_stall, step, words

FRAME_BYTES = 3840
TAIL_BYTES = 1440


@pytest.fixture(scope="module")
def engine() -> DsmEngine:
    return load_engine(capacity=4)


def spoken(engine: DsmEngine, entries: list[Entry], seed: int = 1) -> bytes:
    engine.open(0, options(engine, seed))
    engine.push(0, entries)
    engine.finish(0)
    sound = audio(run_to_end(engine, 0))
    engine.close(0)
    return sound


def test_audio_is_contiguous_from_sample_zero(engine: DsmEngine) -> None:
    engine.open(0, options(engine, 3))
    engine.push(0, words(6))
    engine.finish(0)
    position = 0
    for frame in run_to_end(engine, 0):
        if frame.pcm:
            assert frame.model_start == position
        position += len(frame.pcm) // 2
    assert position % 1920 == 0
    assert position > 0


def test_same_seed_same_audio_and_other_seed_other_audio(engine: DsmEngine) -> None:
    assert spoken(engine, words(5), 7) == spoken(engine, words(5), 7)
    assert spoken(engine, words(5), 7) != spoken(engine, words(5), 8)


def test_generation_changes_the_noise(engine: DsmEngine) -> None:
    first = spoken(engine, words(5), 7)
    engine.open(0, options(engine, 7, generation=1))
    engine.push(0, words(5))
    engine.finish(0)
    assert audio(run_to_end(engine, 0)) != first


def test_text_that_comes_late_gives_the_same_audio(engine: DsmEngine) -> None:
    """Each word arrives only when the slot has stalled for it."""
    entries = words(8)
    want = spoken(engine, entries, 11)
    engine.open(0, options(engine, 11))
    frames = []
    for entry in entries:
        engine.push(0, [entry])
        frames += run_to_stall(engine, 0)
    engine.finish(0)
    frames += run_to_end(engine, 0)
    assert audio(frames) == want


def test_flush_speaks_everything_and_then_sleeps(engine: DsmEngine) -> None:
    engine.open(0, options(engine, 5))
    engine.push(0, words(4))
    engine.flush(0)
    engine.push(0, words(3, start=500))  # must wait for the flush
    frames = run_to_end(engine, 0)
    assert frames[-1].flushed
    assert not frames[-1].ended
    assert sum(frame.word for frame in frames) == 4
    assert len(frames[-1].pcm) == FRAME_BYTES + TAIL_BYTES
    end = frames[-1].model_start + len(frames[-1].pcm) // 2
    more = run_to_stall(engine, 0)
    assert sum(frame.word for frame in more) == 2, "the third word waits for its look-ahead"
    heard = [frame for frame in more if frame.pcm]
    assert heard[0].model_start > end, "audio between the utterances is skipped"
    engine.finish(0)
    rest = run_to_end(engine, 0)
    assert rest[-1].ended
    assert sum(frame.word for frame in rest) == 1


def test_flush_of_the_same_text_sounds_like_finish(engine: DsmEngine) -> None:
    want = spoken(engine, words(5), 9)
    engine.open(0, options(engine, 9))
    engine.push(0, words(5))
    engine.flush(0)
    assert audio(run_to_end(engine, 0)) == want


def test_a_text_longer_than_the_rings(engine: DsmEngine) -> None:
    """700 words wait on the host and flow through a ring of 512 entries; each is spoken once."""
    engine.open(1, options(engine, 2, max_padding=1, temperature_text=0.0))
    engine.push(1, [Entry((5 + i % 900, 6 + i % 700)) for i in range(700)])
    engine.finish(1)
    frames = run_to_end(engine, 1, most=12_000)
    assert sum(frame.word for frame in frames) == 700
    assert frames[-1].ended


def test_break_pads_for_its_length(engine: DsmEngine) -> None:
    def word_steps(entries: list[Entry]) -> list[int]:
        engine.open(2, options(engine, 4))
        engine.push(2, entries)
        engine.finish(2)
        return [frame.step for frame in run_to_end(engine, 2) if frame.word]

    first, second = words(2)
    steps = word_steps([first, Entry((), padding=25), second])
    assert steps[1] - steps[0] >= 25


def test_no_text_at_all_ends_soon(engine: DsmEngine) -> None:
    engine.open(3, options(engine, 4))
    engine.finish(3)
    frames = run_to_end(engine, 3, most=40)
    assert not any(frame.word for frame in frames)


def test_a_row_that_is_not_finite_fails_alone(engine: DsmEngine) -> None:
    want = spoken(engine, words(5), 21)
    for slot in (0, 1):
        engine.open(slot, options(engine, 21))
        engine.push(slot, words(5))
        engine.finish(slot)
    sound = b""
    kernels = engine.kernels
    assert isinstance(kernels, NativeKernels)
    for index in range(200):
        if index == 9:
            kernels._kv[0, 1, 1] = 255  # of numbers, and of scales: none
        good, bad = step(engine, [0, 1])
        assert bad.failed == (index >= 9)
        assert not good.failed
        sound += good.pcm
        if good.ended:
            break
    assert sound == want
    kernels._kv[0, 1, 1] = 0


def test_a_word_of_too_many_tokens_is_refused(engine: DsmEngine) -> None:
    engine.open(0, options(engine, 1))
    with pytest.raises(AssertionError, match="tokens in a word"):
        engine.push(0, [Entry(tuple(range(4, 1000)))])


def test_a_break_is_told_at_the_step_that_takes_it(engine: DsmEngine) -> None:
    """Also behind the last word, and not while a step waits for the word after it."""
    one, two, three = words(3)
    engine.open(0, options(engine, 5))
    engine.push(0, [one, Entry((), 4), two, three, Entry((), 9)])
    waiting = run_to_stall(engine, 0)
    engine.finish(0)
    frames = [*waiting, *run_to_end(engine, 0)]
    engine.close(0)
    told = [("word" if frame.word else "pause", frame.step) for frame in frames if frame.word or frame.pause]
    assert [kind for kind, _ in told] == ["word", "pause", "word", "word", "pause"]
    steps = [at for _, at in told]
    assert steps[0] < steps[1] <= steps[2] - 4
