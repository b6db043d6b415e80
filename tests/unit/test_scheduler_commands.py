"""Text that comes and stops coming, barge-in, credit and hold."""

from __future__ import annotations

import itertools

import pytest

from scheduler.messages import Cancel, Cancelled, Ended, Flushed, Frame, Pace, Stalled
from tests.scheduler_room import FRAME_S, Room, options

RUN_AHEAD = pytest.mark.parametrize("run_ahead", [0, 1, 2])


@RUN_AHEAD
def test_a_stall_is_reported_once_and_nothing_follows_until_text_comes(run_ahead: int) -> None:
    room = Room(run_ahead=run_ahead)
    room.open("a", words=3)
    room.run(4.0)
    assert room.kinds("a") == ["Started", "FirstStep", "Stalled"]
    assert room.of("a")[-1] == Stalled("a", 0, 1)
    assert sum(frame.frame.word for frame in room.frames("a")) == 2, "the last word waits for the next"
    steps = len(room.engine.stepped)
    room.run(5.0)
    assert len(room.engine.stepped) == steps
    room.push("a")
    room.run(4.0)
    assert room.kinds("a")[3:] == ["Stalled"]
    assert sum(frame.frame.word for frame in room.frames("a")) == 3
    room.finish("a")
    room.run_out()
    assert room.kinds("a")[4:] == ["Ended"]
    assert sum(frame.frame.word for frame in room.frames("a")) == 4


@RUN_AHEAD
def test_stalls_leave_no_trace_in_the_audio(run_ahead: int) -> None:
    whole = Room()
    whole.open("a", words=6, finish=True, seed=5)
    whole.run_out()
    room = Room(run_ahead=run_ahead)
    room.open("a", seed=5)
    for _ in range(6):
        room.push("a")
        room.run(1.7)
    room.finish("a")
    room.run_out()
    assert room.kinds("a").count("Stalled") == 6
    assert room.audio("a") == whole.audio("a")


@RUN_AHEAD
def test_text_that_crosses_with_a_stall_is_not_waited_for_again(run_ahead: int) -> None:
    """The word comes while steps that stalled without it are still in flight."""
    for moment in range(1, 40):
        room = Room(run_ahead=run_ahead, frame_s=lambda rows: 0.010, text_s=lambda rows: 0.010)
        room.open("a", words=2)
        room.clock.at(room.clock.now() + 0.004 * moment, lambda room=room: room.push("a", 2))  # type: ignore[misc]
        room.run(5.0)
        assert sum(frame.frame.word for frame in room.frames("a")) == 3, "all but the last, which waits for the next"
        assert room.kinds("a").count("Stalled") in (1, 2)
        room.finish("a")
        room.run_out()
        assert sum(frame.frame.word for frame in room.frames("a")) == 4
        assert room.kinds("a")[-1] == "Ended"


@RUN_AHEAD
def test_flush_speaks_everything_and_the_session_sleeps(run_ahead: int) -> None:
    room = Room(run_ahead=run_ahead)
    room.open("a", words=3)
    room.flush("a")
    room.run(6.0)
    assert room.kinds("a") == ["Started", "FirstStep", "Flushed"]
    assert sum(frame.frame.word for frame in room.frames("a")) == 3
    events = room.of("a")
    assert isinstance(events[-2], Frame)
    assert events[-2].frame.flushed
    assert events[-1] == Flushed("a", 0)
    steps = len(room.engine.stepped)
    room.run(5.0)
    assert len(room.engine.stepped) == steps


@RUN_AHEAD
def test_text_after_a_flush_continues_the_generation(run_ahead: int) -> None:
    room = Room(run_ahead=run_ahead)
    room.open("a", words=3)
    room.flush("a")
    room.run(6.0)
    room.push("a", 2)
    room.finish("a")
    room.run_out()
    assert room.kinds("a") == ["Started", "FirstStep", "Flushed", "Ended"]
    steps = [frame.frame.step for frame in room.frames("a")]
    assert steps == list(range(1, len(steps) + 1))


@RUN_AHEAD
def test_commands_behind_a_flush_wait_for_it_so_that_timing_changes_nothing(run_ahead: int) -> None:
    later = Room()
    later.open("a", words=3, seed=2)
    later.flush("a")
    later.run(6.0)
    later.push("a", 3)
    later.flush("a")
    later.run(6.0)
    later.push("a", 1)
    later.finish("a")
    later.run_out()
    at_once = Room(run_ahead=run_ahead)
    at_once.open("a", words=3, seed=2)
    at_once.flush("a")
    at_once.push("a", 3)
    at_once.flush("a")
    at_once.push("a", 1)
    at_once.finish("a")
    at_once.run_out()
    assert at_once.kinds("a") == later.kinds("a") == ["Started", "FirstStep", "Flushed", "Flushed", "Ended"]
    assert at_once.audio("a") == later.audio("a")


@RUN_AHEAD
def test_text_behind_a_flush_goes_on_without_a_gap(run_ahead: int) -> None:
    room = Room(run_ahead=run_ahead)
    room.open("a", words=10)
    room.flush("a")
    room.push("a", 10)
    room.finish("a")
    room.run_out()
    assert max(frame.lateness_s for frame in room.frames("a")) == 0.0
    assert room.kinds("a") == ["Started", "FirstStep", "Flushed", "Ended"]


def test_every_flush_is_answered_also_where_there_is_nothing_to_say() -> None:
    room = Room()
    room.open("a")
    room.flush("a")
    room.run(1.0)
    assert room.kinds("a") == ["Started", "Flushed"]
    assert room.engine.stepped == []
    room.push("a", 2)
    room.flush("a")
    room.flush("a")
    room.run(6.0)
    assert room.kinds("a") == ["Started", "Flushed", "FirstStep", "Flushed", "Flushed"]


def test_finish_after_a_flush_with_nothing_new_ends_without_another_step() -> None:
    room = Room()
    room.open("a", words=2)
    room.flush("a")
    room.finish("a")
    room.run_out()
    events = room.of("a")
    assert events[-2:] == [Flushed("a", 0), Ended("a", 0)]
    assert sum(isinstance(event, Flushed) for event in events) == 1


def test_after_finish_the_tail_starts_at_once() -> None:
    room = Room()
    room.open("a", words=2)
    room.run(5.0)
    before, now = len(room.engine.stepped), room.clock.now() - room.start
    room.finish("a")
    room.run(0.1)
    assert len(room.engine.stepped) > before
    assert min(at for at in room.audio_times("a") if at > now) < now + 0.010


def test_text_after_finish_is_not_taken() -> None:
    room = Room()
    room.open("a", words=3, finish=True)
    room.push("a", 3)
    room.flush("a")
    room.finish("a")
    room.run_out()
    assert sum(frame.frame.word for frame in room.frames("a")) == 3
    assert room.kinds("a") == ["Started", "FirstStep", "Ended"]


@RUN_AHEAD
def test_nothing_of_a_cancelled_session_follows_its_cancellation(run_ahead: int) -> None:
    for moment in range(60):
        room = Room(1, run_ahead=run_ahead, frame_s=lambda rows: 0.010, text_s=lambda rows: 0.002)
        room.open("a", words=20, finish=True)
        room.clock.at(room.clock.now() + 0.0015 * moment, lambda room=room: room.cancel("a"))  # type: ignore[misc]
        room.run(0.4)
        assert room.of("a")[-1] == Cancelled("a", 0, kept=False)
        assert room.loop.active == 0
        assert room.engine.open_slots == []


@RUN_AHEAD
def test_the_row_of_a_cancelled_session_serves_the_next_one_at_once(run_ahead: int) -> None:
    room = Room(1, run_ahead=run_ahead, frame_s=lambda rows: 0.010)
    room.open("a", words=50, finish=True)
    room.run(0.5)
    room.cancel("a")
    room.open("b", words=4, finish=True, seed=8)
    room.run_out()
    assert room.kinds("b") == ["Started", "FirstStep", "Ended"]
    alone = Room()
    alone.open("b", words=4, finish=True, seed=8)
    alone.run_out()
    assert room.audio("b") == alone.audio("b")


@RUN_AHEAD
def test_barge_in_keeps_the_session_and_starts_the_next_generation_afresh(run_ahead: int) -> None:
    room = Room(1, run_ahead=run_ahead, frame_s=lambda rows: 0.010)
    room.open("a", words=50, seed=8)
    room.run(0.5)
    for generation in (1, 2, 3):
        room.submit(Cancel("a", options(generation, seed=8)))
        room.push("a", 6, generation)
        room.finish("a", generation)
        if generation < 3:
            room.run(0.2)
    room.run_out()
    cancelled = [event for event in room.of("a") if isinstance(event, Cancelled)]
    assert cancelled == [Cancelled("a", generation, kept=True) for generation in (0, 1, 2)]
    generations = [event.generation for event in room.frames("a")]
    assert generations == sorted(generations)
    steps = [frame.frame.step for frame in room.frames("a", 3)]
    assert steps == list(range(1, len(steps) + 1))
    assert room.of("a")[-1] == Ended("a", 3)
    assert room.kinds("a").count("FirstStep") == 1
    for before, after in itertools.pairwise(room.of("a")):
        if isinstance(before, Cancelled):
            assert not (isinstance(after, Frame) and after.generation == before.generation)


def test_what_waited_behind_a_flush_dies_with_its_generation() -> None:
    room = Room()
    room.open("a", words=3)
    room.flush("a")
    room.push("a", 9)
    room.finish("a")
    room.run(0.2)
    room.submit(Cancel("a", options(1)))
    room.push("a", 2, 1)
    room.run(3.0)
    assert sum(frame.frame.word for frame in room.frames("a", 1)) == 1
    assert room.kinds("a")[-1] == "Stalled"


@RUN_AHEAD
def test_barge_in_takes_nothing_from_lead_or_credit(run_ahead: int) -> None:
    """Steps of the old generation that are still in flight bring no audio of the new one."""
    room = Room(run_ahead=run_ahead, frame_s=lambda rows: 0.010)
    room.open("a", words=50, lead_ms=160.0, credit_ms=100 * 80.0)
    for generation in range(1, 6):
        room.run(0.3)
        room.submit(Cancel("a", options(generation)))
        room.push("a", 50, generation)
    room.run(30.0)
    assert len(room.audio("a")) == 100 * 3840
    late = [frame.lateness_s for frame in room.frames("a", 5) if frame.frame.pcm]
    assert max(late) == 0.0


def test_a_cancel_after_the_end_and_a_second_cancel_do_nothing() -> None:
    room = Room()
    room.open("a", words=3, finish=True)
    room.run_out()
    room.cancel("a")
    room.open("b", words=3)
    room.run(0.1)
    room.cancel("b")
    room.cancel("b")
    room.run(0.1)
    assert room.kinds("a")[-1] == "Ended"
    assert room.kinds("b").count("Cancelled") == 1


def test_after_barge_in_the_first_audio_is_urgent_again() -> None:
    room = Room(4, frame_s=lambda rows: 0.004 * rows, warm=True)
    for name in "abcd":
        room.open(name, words=200)
    room.run(3.0)
    room.submit(Cancel("a", options(1)))
    room.push("a", 5, 1)
    asked = room.clock.now() - room.start
    room.run(0.3)
    heard = [at for at, event in room.timed if isinstance(event, Frame) and event.generation == 1 and event.frame.pcm]
    assert heard[0] - asked < 5 * 0.001 + 2 * 0.004 + 0.016 + 0.004


@RUN_AHEAD
@pytest.mark.parametrize("pace", list(Pace))
def test_audio_never_exceeds_the_credit(run_ahead: int, pace: Pace) -> None:
    room = Room(run_ahead=run_ahead)
    room.open("a", words=100, finish=True, pace=pace, credit_ms=410.0)
    room.run(5.0)
    assert len(room.audio("a")) == 5 * 3840
    room.credit("a", 100.0)
    room.run(5.0)
    assert len(room.audio("a")) == 6 * 3840
    room.credit("a", 50.0)
    room.run(5.0)
    assert len(room.audio("a")) == 7 * 3840
    assert max(frame.lateness_s for frame in room.frames("a")) == 0.0, "a session without credit is not late"
    room.credit("a", 1e6)
    room.run_out()
    assert room.kinds("a") == ["Started", "FirstStep", "Ended"]


def test_a_session_that_lives_on_credit_is_not_late_and_does_not_count_as_starved() -> None:
    room = Room(2, frame_s=lambda rows: 0.020)
    room.open("a", words=60, finish=True, credit_ms=800.0)
    for beat in range(100):
        room.clock.at(room.clock.now() + 0.5 + beat * FRAME_S, lambda: room.credit("a", 80.0))
    room.run(6.0)
    lateness = [frame.lateness_s for frame in room.frames("a") if frame.frame.pcm]
    assert max(lateness) == 0.0
    assert max(lateness[10:]) < -0.2


def test_a_held_session_is_not_stepped_and_goes_on_where_it_was() -> None:
    room = Room()
    room.open("a", words=20, finish=True, seed=4)
    room.run(1.0)
    room.hold("a")
    room.hold("a")
    room.run(0.1)
    steps = len(room.engine.stepped)
    room.run(3.0)
    assert len(room.engine.stepped) == steps
    room.resume("a")
    room.run(0.5)
    frames = [frame for frame in room.frames("a") if frame.frame.pcm]
    assert max(frame.lateness_s for frame in frames) == 0.0, "a pause that was asked for makes nothing late"
    room.run_out()
    alone = Room()
    alone.open("a", words=20, finish=True, seed=4)
    alone.run_out()
    assert room.audio("a") == alone.audio("a")


def test_a_held_session_still_takes_text_and_can_be_cancelled() -> None:
    room = Room()
    room.open("a")
    room.hold("a")
    room.push("a", 5)
    room.run(1.0)
    assert room.kinds("a") == ["Started"]
    room.submit(Cancel("a", options(1)))
    room.push("a", 5, 1)
    room.run(1.0)
    assert room.kinds("a") == ["Started", "Cancelled"], "the hold outlives the generation"
    room.resume("a")
    room.finish("a", 1)
    room.run_out()
    assert room.kinds("a")[-1] == "Ended"


def test_resume_without_a_hold_does_nothing() -> None:
    room = Room()
    room.open("a", words=30, finish=True)
    for _ in range(20):
        room.resume("a")
        room.run(0.05)
    times = room.audio_times("a")
    assert max(times[0] + (n + 1) * FRAME_S - at for n, at in enumerate(times)) <= 0.480 + 1e-9
