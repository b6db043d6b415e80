"""Sessions without a row: parked between generations, in line for a row, back ahead of new opens."""

from __future__ import annotations

import pytest

from scheduler.messages import Cancel, Cancelled, Ended, Open, Parked, Started
from tests.scheduler_room import Room, options

RUN_AHEAD = pytest.mark.parametrize("run_ahead", [0, 1, 2])


def interrupt(room: Room, session: str = "a", generation: int = 1) -> None:
    room.submit(Cancel(session, options(generation, seed=8)))


@RUN_AHEAD
def test_a_parked_session_frees_its_row_and_speaks_as_if_it_had_kept_it(run_ahead: int) -> None:
    audio = []
    for parked in (False, True):
        room = Room(1, run_ahead=run_ahead)
        room.open("a", words=50, seed=8)
        room.run(0.5)
        interrupt(room)
        if parked:
            room.park("a", 1)
            room.run(1.0)
            assert room.of("a")[-1] == Parked("a", 1)
            assert room.loop.active == 0
            assert room.engine.open_slots == []
            room.open("b", words=3, finish=True)
            room.run_out()
        room.push("a", 6, generation=1)
        room.finish("a", generation=1)
        room.run_out()
        assert room.of("a")[-1] == Ended("a", 1)
        audio.append(b"".join(frame.frame.pcm for frame in room.frames("a", 1)))
    assert audio[0] == audio[1] != b""


@RUN_AHEAD
def test_a_row_whose_steps_are_in_flight_is_parked_and_given_on_at_once(run_ahead: int) -> None:
    room = Room(1, run_ahead=run_ahead, frame_s=lambda rows: 0.010)
    room.open("a", words=50, seed=8)
    room.run(0.5)
    interrupt(room)
    room.park("a", 1)
    room.open("b", words=4, finish=True, seed=3)
    room.push("a", 3, generation=1)
    room.finish("a", generation=1)
    room.run_out()
    assert room.kinds("b") == ["Started", "FirstStep", "Ended"]
    assert room.kinds("a") == ["Started", "FirstStep", "Cancelled", "Parked", "Started", "Ended"]
    order = [event for event in room.events if isinstance(event, Started | Ended)]
    assert [event.session for event in order] == ["a", "b", "b", "a", "a"]


def test_what_the_model_has_in_mind_is_not_parked() -> None:
    room = Room()
    room.open("spoken", words=2)
    room.flush("spoken")
    room.open("stalled", words=2)
    room.run(6.0)
    room.open("crossing")
    room.push("crossing", 1)
    for name in ("spoken", "stalled", "crossing"):
        room.park(name, 0)
        room.park(name, 1)
    room.park("nobody", 0)
    room.run(1.0)
    assert not any(isinstance(event, Parked) for event in room.events)
    assert room.loop.active == 3


def test_who_comes_back_goes_ahead_of_new_opens_and_in_order() -> None:
    room = Room(2)
    for name in ("a", "b"):
        room.open(name)
        room.park(name, 0)
    for name in ("c", "d"):
        room.open(name, words=200)
    room.run(1.0)
    for name in ("b", "a"):
        room.push(name, 3)
        room.finish(name)
    room.run(0.1)
    assert room.kinds("a") == room.kinds("b") == ["Started", "Parked"]
    room.cancel("c")
    room.open("new", words=1)
    room.cancel("d")
    room.open("newer", words=1)
    room.run_out()
    assert room.kinds("new") == room.kinds("newer") == ["Refused"]
    assert [event.session for event in room.events if isinstance(event, Started)] == ["a", "b", "c", "d", "b", "a"]
    assert room.of("a")[-1] == Ended("a", 0)
    assert room.of("b")[-1] == Ended("b", 0)


def test_who_comes_back_waits_for_admission_too() -> None:
    """Steps so slow that one session fills the beat."""
    room = Room(4, frame_s=lambda rows: 0.050 * rows, warm=True)
    assert room.loop.limit == 1
    room.open("a")
    room.park("a", 0)
    room.open("b", words=20)
    room.run(0.5)
    room.push("a", 2)
    room.run(1.0)
    assert room.kinds("a")[-1] == "Parked"
    room.cancel("b")
    room.run(1.0)
    assert room.kinds("a")[2:4] == ["Started", "FirstStep"]


def test_the_wait_for_a_row_is_told() -> None:
    room = Room(1)
    room.open("a")
    room.park("a", 0)
    room.open("b", words=200)
    room.run(1.0)
    room.push("a", 2)
    room.run(2.0)
    room.cancel("b")
    room.run(0.5)
    started = [event for event in room.of("a") if isinstance(event, Started)]
    assert started[0].queued_s == 0.0
    assert started[1].queued_s == pytest.approx(2.0, abs=0.2)


def test_nothing_to_say_needs_no_row() -> None:
    room = Room(1)
    room.open("a")
    room.park("a", 0)
    room.open("b", words=200)
    room.run(0.2)
    room.flush("a")
    room.submit(Cancel("a", options(1)))
    room.finish("a", 1)
    room.run(0.2)
    assert room.kinds("a") == ["Started", "Parked", "Flushed", "Cancelled", "Ended"]


@pytest.mark.parametrize("keep", [True, False])
def test_a_cancel_takes_a_session_out_of_the_line(keep: bool) -> None:
    room = Room(1)
    room.open("a")
    room.park("a", 0)
    room.open("b", words=200)
    room.push("a", 2)
    room.run(0.2)
    room.submit(Cancel("a", options(1) if keep else None))
    room.cancel("b")
    room.run(1.0)
    assert room.of("a")[-1] == Cancelled("a", 0, kept=keep)
    assert room.loop.active == 0
    room.open("c")
    room.run(0.1)
    assert room.kinds("c") == ["Started"]


@RUN_AHEAD
def test_a_cancel_that_crosses_with_the_end_keeps_a_lasting_session(run_ahead: int) -> None:
    """``Ended`` is out already, so the row is gone; the next generation gets another."""
    room = Room(1, run_ahead=run_ahead)
    room.submit(Open("a", options(seed=8), lasting=True, credit_ms=60_000.0))
    room.push("a", 3)
    room.finish("a")
    room.run(6.0)
    assert room.of("a")[-1] == Ended("a", 0)
    assert room.loop.active == 0
    room.push("a", 3)
    room.flush("a")
    room.finish("a")
    room.run(1.0)
    assert room.of("a")[-1] == Ended("a", 0), "it has said that there is no more"
    interrupt(room)
    room.push("a", 3, generation=1)
    room.finish("a", 1)
    room.run(6.0)
    assert room.kinds("a")[3:] == ["Cancelled", "Started", "Ended"]
    assert {frame.generation for frame in room.frames("a")} == {0, 1}
    room.cancel("a")
    room.run(0.1)
    assert room.of("a")[-1] == Cancelled("a", 1, kept=False)
    room.open("a")
    room.run(0.1)
    assert isinstance(room.of("a")[-1], Started), "its name is free again"


def test_credit_and_hold_outlive_the_parking() -> None:
    room = Room(1)
    room.open("a", words=50, credit_ms=400.0)
    room.run(3.0)
    assert len(room.audio("a")) == 5 * 3840
    interrupt(room)
    room.park("a", 1)
    room.hold("a")
    room.push("a", 50, 1)
    room.run(1.0)
    assert len(room.audio("a")) == 5 * 3840
    room.resume("a")
    room.run(1.0)
    assert len(room.audio("a")) == 5 * 3840, "the credit is used up"
    room.credit("a", 80.0)
    room.run(1.0)
    assert len(room.audio("a")) == 6 * 3840


def test_stopping_ends_those_without_a_row_too() -> None:
    room = Room(1)
    room.open("a")
    room.park("a", 0)
    room.open("b", words=200)
    room.push("a", 1)
    room.run(0.2)
    room.loop.stop()
    room.loop.run()
    assert room.of("a")[-1] == Cancelled("a", 0, kept=False)
    assert room.of("b")[-1] == Cancelled("b", 0, kept=False)
