"""What breaks costs the sessions it concerns, and nobody else."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from engine.contract import Entry, SlotOptions
from engine.fake import FakeEngine
from scheduler.errors import InboxFull
from scheduler.loop import LoopRules, StepLoop
from scheduler.messages import Cancel, Credit, Failed, Finish, Push
from tests.scheduler_room import WORD, Room, options

RUN_AHEAD = pytest.mark.parametrize("run_ahead", [0, 1, 2])


@RUN_AHEAD
def test_a_row_that_is_not_finite_ends_its_session_alone(run_ahead: int) -> None:
    room = Room(run_ahead=run_ahead)
    room.open("a", words=20, finish=True, seed=1)
    room.open("b", words=20, finish=True, seed=2)
    room.run(1.0)
    heard = len(room.frames("a"))
    room.engine.poison(0)
    room.run_out()
    assert room.of("a")[-1] == Failed("a", 0, "a value of the row was not finite")
    assert len(room.frames("a")) <= heard + run_ahead + 1, "those of steps already launched"
    alone = Room()
    alone.open("b", words=20, finish=True, seed=2)
    alone.run_out()
    assert room.audio("b") == alone.audio("b")
    assert room.engine.open_slots == []


@RUN_AHEAD
@pytest.mark.parametrize("in_collect", [False, True])
def test_an_engine_that_raises_in_a_step_fails_its_sessions_and_the_loop_goes_on(
    run_ahead: int, in_collect: bool, caplog: pytest.LogCaptureFixture
) -> None:
    room = Room(run_ahead=run_ahead)
    room.open("a", words=20, finish=True)
    room.open("b", words=20, finish=True)
    room.open("idle")
    room.run(1.0)
    room.engine.raise_once(RuntimeError("device lost"), in_collect=in_collect)
    room.run_until(lambda: room.loop.active == 1)
    room.run(0.5)
    assert room.of("a")[-1] == Failed("a", 0, "engine raised RuntimeError")
    assert room.of("b")[-1] == Failed("b", 0, "engine raised RuntimeError")
    assert room.kinds("idle") == ["Started"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert room.loop.failures == 1
    room.push("idle", 4)
    room.finish("idle")
    room.open("c", words=4, finish=True)
    room.run_out()
    assert room.kinds("idle")[-1] == room.kinds("c")[-1] == "Ended"
    assert room.loop.failures == 0
    assert room.engine.open_slots == []


@pytest.mark.parametrize("keep", [False, True])
def test_a_step_that_fails_after_a_cancel_costs_the_next_one_on_the_row_nothing(keep: bool) -> None:
    room = Room(1, run_ahead=1)
    room.open("a", words=50)
    room.run(0.1)
    room.push("a", 50)
    room.engine.raise_once(RuntimeError("device lost"), in_collect=True)
    launched = len(room.engine.stepped)
    room.run_until(lambda: len(room.engine.stepped) > launched)
    if keep:
        room.submit(Cancel("a", options(1)), Push("a", 1, (WORD,) * 4), Finish("a", 1))
    else:
        room.cancel("a")
        room.open("b", words=4, finish=True)
    room.run_out()
    assert room.loop.failures == 0
    assert room.kinds("a" if keep else "b")[-1] == "Ended"
    assert "Failed" not in room.kinds("a")
    assert room.engine.open_slots == []


class Fussy(FakeEngine):
    """Refuses the first calls of a method."""

    def __init__(self, method: str, times: int = 1) -> None:
        super().__init__(2)
        self.method, self.times = method, times

    def _check(self, method: str, slot: int) -> None:
        if method == self.method and self.times:
            self.times -= 1
            raise ValueError("no")

    def open(self, slot: int, options: SlotOptions) -> None:
        self._check("open", slot)
        super().open(slot, options)

    def push(self, slot: int, entries: Sequence[Entry]) -> None:
        self._check("push", slot)
        super().push(slot, entries)

    def flush(self, slot: int) -> None:
        self._check("flush", slot)
        super().flush(slot)

    def finish(self, slot: int) -> None:
        self._check("finish", slot)
        super().finish(slot)

    def close(self, slot: int) -> None:
        super().close(slot)
        self._check("close", slot)


@pytest.mark.parametrize("method", ["open", "push", "flush", "finish"])
def test_an_engine_that_refuses_a_call_fails_that_session(method: str, caplog: pytest.LogCaptureFixture) -> None:
    room = Room(2)
    room.engine = engine = Fussy(method)
    room.loop = StepLoop(engine, room.clock, room._deliver)
    for name in "ab":
        room.open(name, words=4)
        if method == "flush":
            room.flush(name)
        room.finish(name)
    room.run_out()
    assert room.of("a")[-1] == Failed("a", 0, "engine raised ValueError")
    assert room.kinds("a").count("Failed") == 1
    assert room.kinds("b")[-1] == "Ended"
    assert len(caplog.records) == 1
    assert engine.open_slots == []
    for name in "cd":
        room.open(name, words=4, finish=True)
    room.run_out()
    assert room.kinds("c")[-1] == room.kinds("d")[-1] == "Ended", "no row was lost"


def test_an_engine_that_cannot_close_a_slot_loses_no_row(caplog: pytest.LogCaptureFixture) -> None:
    room = Room(2)
    room.engine = engine = Fussy("close", times=4)
    room.loop = StepLoop(engine, room.clock, room._deliver)
    for name in "abcd":
        room.open(name, words=2, finish=True)
        room.run_out()
    assert [room.kinds(name)[-1] for name in "abcd"] == ["Ended"] * 4
    assert len(caplog.records) == 4


class Stubborn(FakeEngine):
    """Breaks the contract: goes on wanting text after ``finish``."""

    def finish(self, slot: int) -> None:
        pass


def test_a_stall_after_finish_is_a_failure_and_not_an_endless_wait() -> None:
    room = Room(2)
    room.engine = Stubborn(2)
    room.loop = StepLoop(room.engine, room.clock, room._deliver)
    room.open("a", words=3, finish=True)
    room.run_out()
    assert isinstance(room.of("a")[-1], Failed)
    assert "Stalled" not in room.kinds("a")


def test_a_full_inbox_says_so_and_takes_commands_again_once_it_is_read() -> None:
    room = Room(rules=LoopRules(inbox=3))
    for _ in range(3):
        room.submit(Credit("nobody", 1.0))
    with pytest.raises(InboxFull) as caught:
        room.submit(Credit("nobody", 1.0))
    assert caught.value.capacity == 3
    room.loop.tick()
    room.open("a", words=1)
    room.run(1.0)
    assert room.kinds("a")[0] == "Started"


def test_one_session_cannot_fill_the_inbox_for_all() -> None:
    room = Room(rules=LoopRules(inbox=8 * 64 + 1))
    for _ in range(64):
        room.submit(Credit("flood", 1.0))
    with pytest.raises(InboxFull) as caught:
        room.submit(Credit("flood", 1.0))
    assert caught.value.capacity == 64
    room.open("a", words=1)
    room.loop.tick()
    room.submit(Credit("flood", 1.0))
    room.run(1.0)
    assert room.kinds("a")[0] == "Started"


def test_a_failing_row_in_flight_is_not_given_away_before_its_steps_are_in() -> None:
    """The fake engine asserts it: a slot that changed hands with a step in flight would end this test."""
    room = Room(1, run_ahead=2)
    for number in range(10):
        room.open(f"{number}", words=9, finish=True)
        room.run(0.2)
        room.engine.poison(0)
        room.run(0.2)
        assert isinstance(room.of(f"{number}")[-1], Failed)
