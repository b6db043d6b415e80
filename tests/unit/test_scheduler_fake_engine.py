"""The fake engine keeps the contract that the real one keeps."""

from __future__ import annotations

import pytest

from engine.contract import Entry, FrameEngine, SlotFrame
from engine.fake import FakeEngine
from tests.scheduler_room import WORD, options


def engine_with(words: int = 0, *, finish: bool = False, flush: bool = False, seed: int = 0) -> FakeEngine:
    engine = FakeEngine(2)
    engine.open(0, options(seed=seed))
    engine.push(0, [WORD] * words)
    if flush:
        engine.flush(0)
    if finish:
        engine.finish(0)
    return engine


def step(engine: FrameEngine, slot: int = 0) -> SlotFrame:
    (frame,) = engine.collect(engine.launch([slot]))
    return frame


def steps(engine: FrameEngine, limit: int = 200) -> list[SlotFrame]:
    """Until the slot stalls, sleeps or ends; the frame that says so is the last."""
    frames = [step(engine)]
    while frames[-1].committed and not (frames[-1].ended or frames[-1].flushed):
        assert len(frames) < limit
        frames.append(step(engine))
    return frames


def test_the_sound_of_a_word_begins_at_the_sample_of_the_step_that_took_it() -> None:
    frames = steps(engine_with(4, finish=True))
    assert [frame.step for frame in frames] == list(range(1, len(frames) + 1))
    assert all(not frame.pcm for frame in frames[:6])
    assert [frame.model_start for frame in frames[6:]] == [1920 * number for number in range(len(frames) - 6)]
    assert [frame.step - 1 for frame in frames if frame.word] == [1, 5, 9, 13]
    assert frames[-1].ended


def test_a_step_inside_the_delay_is_announced() -> None:
    engine = engine_with(4, finish=True)
    in_delay = []
    for _ in range(7):
        in_delay.append(engine.in_delay(0))
        step(engine)
    assert in_delay == [True] * 5 + [False] * 2


def test_a_word_waits_for_the_next_one_and_a_retry_changes_nothing() -> None:
    engine = engine_with(2, seed=3)
    first = steps(engine)
    assert (first[-1].committed, sum(frame.word for frame in first)) == (False, 1)
    assert [step(engine) for _ in range(3)] == [first[-1]] * 3
    engine.push(0, [WORD])
    engine.finish(0)
    resumed = [*first[:-1], *steps(engine)]
    assert resumed == steps(engine_with(3, finish=True, seed=3))


def test_a_break_needs_no_word_after_it() -> None:
    engine = engine_with()
    engine.push(0, [Entry((), padding=5)])
    frames = steps(engine)
    assert len(frames) == 1 + 6 + 1
    assert not any(frame.word for frame in frames)


def test_flush_speaks_the_tail_and_the_slot_sleeps_until_more_text() -> None:
    engine = engine_with(2, flush=True)
    frames = steps(engine)
    assert frames[-1].flushed
    assert sum(frame.word for frame in frames) == 2
    assert not step(engine).committed
    engine.push(0, [WORD])
    engine.finish(0)
    more = steps(engine)
    assert more[-1].ended
    assert more[0].step == frames[-1].step + 1
    assert sum(frame.word for frame in more) == 1


def test_text_behind_a_flush_is_spoken_after_it() -> None:
    engine = engine_with(2, flush=True)
    engine.push(0, [WORD] * 2)
    engine.finish(0)
    frames = steps(engine)
    assert frames[-1].flushed
    assert sum(frame.word for frame in frames) == 2
    rest = steps(engine)
    assert (rest[-1].ended, sum(frame.word for frame in rest)) == (True, 2)


def test_a_slot_that_has_ended_does_nothing_more() -> None:
    engine = engine_with(1, finish=True)
    steps(engine)
    assert not step(engine).committed


def test_audio_is_decided_by_seed_generation_and_step_alone() -> None:
    engine = FakeEngine(3)
    for slot, (seed, generation) in enumerate([(1, 0), (1, 0), (1, 1)]):
        engine.open(slot, options(generation, seed))
        engine.push(slot, [WORD] * 9)
    frames = [engine.collect(engine.launch([0, 1, 2])) for _ in range(10)]
    first, twin, other = ([frame[slot].pcm for frame in frames if frame[slot].pcm] for slot in range(3))
    assert first == twin != other
    assert len(set(first)) == len(first)
    assert {len(pcm) for pcm in first} == {2 * 1920}


def test_a_codec_that_is_behind_gives_what_it_kept_back_with_the_last_frame() -> None:
    engine = FakeEngine(1, overlap=720)
    engine.open(0, options())
    engine.push(0, [WORD] * 2)
    engine.finish(0)
    heard = [frame for frame in steps(engine) if frame.pcm]
    sizes = [len(frame.pcm) // 2 for frame in heard]
    assert sizes == [1200, *[1920] * (len(heard) - 2), 2640]
    assert [frame.model_start for frame in heard] == [0, *[1920 * n - 720 for n in range(1, len(heard))]]


def test_failures_that_were_ordered() -> None:
    engine = engine_with(9)
    engine.raise_once(OSError("launch"))
    with pytest.raises(OSError, match="launch"):
        engine.launch([0])
    engine.raise_once(OSError("collect"), in_collect=True)
    ticket = engine.launch([0])
    with pytest.raises(OSError, match="collect"):
        engine.collect(ticket)
    assert step(engine).committed
    engine.poison(0)
    frame = step(engine)
    assert (frame.failed, frame.committed) == (True, False)


def test_misuse_is_caught() -> None:
    engine = FakeEngine(2, run_ahead=1)
    engine.open(0, options())
    engine.push(0, [WORD] * 9)
    with pytest.raises(AssertionError, match="not open"):
        engine.launch([1])
    with pytest.raises(AssertionError, match="distinct"):
        engine.launch([0, 0])
    tickets = [engine.launch([0]), engine.launch([0])]
    with pytest.raises(AssertionError, match="collect first"):
        engine.launch([0])
    with pytest.raises(AssertionError, match="in flight"):
        engine.close(0)
    for ticket in tickets:
        engine.collect(ticket)
    engine.close(0)
    assert engine.open_slots == []


def test_steps_cost_what_was_ordered() -> None:
    spent: list[tuple[int, int]] = []
    engine = FakeEngine(2, spend=lambda text_rows, frame_rows: spent.append((text_rows, frame_rows)))
    engine.open(0, options())
    engine.push(0, [WORD] * 9)
    for _ in range(5):
        step(engine)
    engine.open(1, options())
    engine.push(1, [WORD] * 9)
    engine.collect(engine.launch([0, 1]))
    assert spent == [(1, 0)] * 5 + [(1, 1)]


def test_a_break_is_told_at_the_step_that_takes_it() -> None:
    engine = engine_with()
    engine.push(0, [WORD, Entry((), 3), WORD])
    engine.finish(0)
    told = [(frame.word, frame.pause) for frame in steps(engine) if frame.word or frame.pause]
    assert told == [(True, False), (False, True), (True, False)]
