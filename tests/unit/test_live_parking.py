"""Sessions that give their row up between two generations, and come back ahead of new ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.stage import Caller, Stage, perform
from worker.seat import PARK_AFTER_S, ROW_WITHIN_S, Place

Play = Callable[[Stage], Awaitable[None]]


async def opened(stage: Stage, **fields: object) -> Caller:
    caller = stage.caller()
    caller.open(**fields)
    await stage.settle()
    await stage.turn()
    return caller


async def interrupted(stage: Stage, **fields: object) -> Caller:
    """One that has spoken, was interrupted, and has had its row parked."""
    caller = await opened(stage, text="one two three ", **fields)
    await stage.run(0.4)
    caller.say("cancel", keep=True)
    await stage.run(PARK_AFTER_S + 0.2)
    assert place(caller) is Place.PARKED
    return caller


def place(caller: Caller) -> Place:
    return caller.stage.desk._sessions[caller.id].place


def audio(caller: Caller, generation: int) -> bytes:
    return b"".join(e.payload for e in caller.events if e.kind == "audio" and e.fields["gen"] == generation)


def test_a_row_is_given_up_after_two_seconds_of_silence_and_not_before() -> None:
    async def play(stage: Stage) -> None:
        caller = await opened(stage, text="one two three ")
        await stage.run(0.4)
        caller.say("cancel", keep=True)
        await stage.run(PARK_AFTER_S - 0.1)
        assert (place(caller), stage.loop.active, stage.desk._tokens.target) == (Place.ROW, 1, 3)
        await stage.run(0.2)
        assert (place(caller), stage.loop.active, stage.desk._tokens.target) == (Place.PARKED, 0, 4)
        assert stage.desk.sessions == 1
        assert caller.kinds[-1] == "ping", "its subjects are alive"

    perform(play)


def test_a_parked_session_speaks_as_if_it_had_kept_its_row() -> None:
    heard = []

    async def play(stage: Stage, pause_s: float) -> None:
        caller = await opened(stage, text="one two three ", seed=5)
        await stage.run(0.4)
        caller.say("cancel", keep=True)
        await stage.run(pause_s)
        caller.say("text", seq=0, gen=1, text="four five six")
        caller.say("finish", seq=1, gen=1)
        await stage.run_until(lambda: caller.over)
        assert caller.last("end")["reason"] == "finished"
        heard.append(audio(caller, 1))

    for pause_s in (0.1, 10.0):
        perform(lambda stage, pause_s=pause_s: play(stage, pause_s))  # type: ignore[misc]
    assert heard[0] == heard[1] != b""


@pytest.mark.parametrize("wait", ["flush", "stall", "nothing said yet"])
def test_what_the_model_has_in_mind_keeps_its_row(wait: str) -> None:
    async def play(stage: Stage) -> None:
        caller = await opened(stage)
        if wait != "nothing said yet":
            caller.say("cancel", keep=True)
            caller.say("text", seq=0, text="one two three ")
        if wait == "flush":
            caller.say("flush")
        await stage.run(20.0)
        assert place(caller) is Place.ROW
        assert stage.desk._tokens.target == 3

    perform(play)


def test_who_comes_back_goes_ahead_of_new_opens() -> None:
    async def play(stage: Stage) -> None:
        caller = await interrupted(stage)
        other = await opened(stage, text="and so on " * 50, pace="live")
        assert stage.desk._tokens.target == 0
        caller.say("text", seq=0, gen=1, text="four five six ")
        await stage.settle()
        assert place(caller) is Place.LINE
        other.say("cancel")
        new = stage.caller()
        new.open(text="me first")
        await stage.run(0.5)
        assert place(caller) is Place.ROW
        assert new.kinds == ["status 503"]
        assert audio(caller, 1)
        assert caller.kinds.count("ready") == 1

    perform(play, slots=1)


def test_no_row_in_time_is_told_and_ends_it() -> None:
    async def play(stage: Stage) -> None:
        caller = await interrupted(stage)
        other = await opened(stage, text="and so on " * 50, final=True)
        before = stage.clock.now()
        caller.say("text", seq=0, gen=1, text="four five ")
        await stage.run_until(lambda: caller.over)
        error, end = caller.last("error"), caller.last("end")
        assert (error["code"], error["retryable"], end["reason"]) == ("no_capacity", True, "failed")
        waited = caller.events[-1].at - before
        assert ROW_WITHIN_S <= waited <= ROW_WITHIN_S + 0.2
        assert end["usage"]["queued_ms"] == pytest.approx(1000 * waited, abs=100)
        await stage.run_until(lambda: other.over)
        assert other.last("end")["reason"] == "finished"
        assert stage.loop.waiting == 0

    perform(play, slots=1)


def test_there_are_never_more_parked_sessions_than_rows() -> None:
    async def play(stage: Stage) -> None:
        callers = []
        for _ in range(6):
            if stage.desk._tokens.target:
                callers.append(await opened(stage))
                callers[-1].say("cancel", keep=True)
                await stage.run(PARK_AFTER_S + 0.2)
        places = [place(caller) for caller in callers]
        assert places == [Place.PARKED] * 2 + [Place.ROW] * 2
        callers[0].say("cancel")
        await stage.run(PARK_AFTER_S + 0.2)
        assert [place(caller) for caller in callers[1:]].count(Place.PARKED) == 2

    perform(play, slots=2)


def test_finish_ends_a_held_word_and_brings_the_session_back() -> None:
    async def play(stage: Stage) -> None:
        caller = await interrupted(stage)
        caller.say("text", seq=0, gen=1, text="four")
        await stage.run(1.0)
        assert place(caller) is Place.PARKED, "it may go on"
        caller.say("finish", seq=1, gen=1)
        await stage.settle()
        assert place(caller) is Place.LINE
        await stage.run_until(lambda: caller.over)
        assert caller.last("end")["usage"]["words"] == 3, "two before the cancel"
        assert audio(caller, 1)

    perform(play)


@pytest.mark.parametrize("message", ["text", "text and cancel", "finish", "flush", "cancel"])
def test_what_crosses_with_the_parking(message: str) -> None:
    """Said while ``Parked`` is on its way."""

    async def play(stage: Stage) -> None:
        caller = await opened(stage)
        caller.say("cancel", keep=True)
        while place(caller) is Place.ROW and stage.loop.active:
            await stage.run(0.05)
        assert place(caller) is Place.ROW, "the desk does not know yet"
        if message == "text":
            caller.say("text", seq=0, gen=1, text="four five six ")
            await stage.run(1.0)
            assert place(caller) is Place.ROW
            assert audio(caller, 1)
        elif message == "text and cancel":
            caller.say("text", seq=0, gen=1, text="four five six ")
            caller.say("cancel", gen=1, keep=True)
            await stage.settle()
            assert place(caller) is Place.ROW
            places: list[Place] = []
            while not places or places[-1] is not Place.PARKED:
                await stage.turn()
                places += [place(caller)] if place(caller) not in places[-1:] else []
                assert stage.desk._occupied() >= stage.loop.active + stage.loop.waiting
            assert places[-2:] == [Place.LINE, Place.PARKED], "it was in line until the loop said that it is not"
        elif message == "cancel":
            caller.say("cancel", gen=1, keep=True)
            await stage.run(1.0)
            assert place(caller) is Place.PARKED
            assert caller.last("cancelled")["gen"] == 2
        else:
            caller.say(message, gen=1)
            await stage.run(1.0)
            assert caller.kinds[-1] == ("flushed" if message == "flush" else "end")

    perform(play, latency=lambda: 5)


def test_a_cancel_takes_a_session_out_of_the_line() -> None:
    async def play(stage: Stage) -> None:
        caller = await interrupted(stage)
        other = await opened(stage, text="and so on " * 50)
        caller.say("text", seq=0, gen=1, text="four five ")
        await stage.run(0.3)
        caller.say("cancel", gen=1, keep=True)
        await stage.settle()
        assert (place(caller), stage.loop.waiting) == (Place.LINE, 1)
        await stage.run(0.3)
        assert (place(caller), stage.loop.waiting) == (Place.PARKED, 0)
        other.say("cancel")
        await stage.run(ROW_WITHIN_S + 1.0)
        assert "error" not in caller.kinds
        caller.say("cancel", gen=2)
        await stage.run(0.1)
        assert caller.last("end")["usage"]["queued_ms"] == pytest.approx(300.0, abs=80.0)

    perform(play, slots=1)


def test_a_row_that_is_no_longer_wanted_is_parked_again() -> None:
    async def play(stage: Stage) -> None:
        caller = await interrupted(stage)
        caller.say("text", seq=0, gen=1, text="four five ")
        await stage.settle()
        while not stage.loop.active:
            stage.loop.tick()
        caller.say("cancel", gen=1, keep=True)
        await stage.settle()
        assert place(caller) is Place.LINE, "its row may be on the way"
        await stage.run(0.5)
        assert place(caller) is Place.ROW
        await stage.run(PARK_AFTER_S + 0.2)
        assert place(caller) is Place.PARKED
        assert stage.loop.active == 0

    perform(play, latency=lambda: 3)


@pytest.mark.parametrize("then", ["text", "finish", "finish, cancel and text", "nothing"])
def test_a_cancel_that_crosses_with_the_end(then: str) -> None:
    """The engine has given the row away; the session goes on with another, and ends once."""

    async def play(stage: Stage) -> None:
        caller = await opened(stage, text="one two", final=True)
        await stage.run_until(lambda: not stage.loop.active)
        assert not caller.over
        caller.say("cancel", keep=True)
        generation = 1
        if then == "finish, cancel and text":
            caller.say("finish", gen=1)
            await stage.settle()
            stage.loop.tick()
            caller.say("cancel", gen=1, keep=True)
            generation = 2
        if then.endswith("text"):
            caller.say("text", seq=0, gen=generation, text="three four five")
        if then == "nothing":
            await stage.run(2.0)
            assert place(caller) is Place.PARKED
        caller.say("finish", gen=generation)
        await stage.run_until(lambda: caller.over)
        assert caller.kinds.count("end") == 1
        assert bool(audio(caller, generation)) is then.endswith("text")
        assert caller.last("end")["reason"] == "finished"
        await stage.run(0.5)
        assert stage.desk.sessions == 0
        assert stage.desk._tokens.target == 4

    perform(play, latency=lambda: 6)


def test_a_parked_session_is_idle_and_ends() -> None:
    async def play(stage: Stage) -> None:
        caller = await interrupted(stage, idle_timeout_s=5.0)
        await stage.run_until(lambda: caller.over)
        assert caller.last("end")["reason"] == "idle"
        assert 5.0 <= caller.events[-1].at - next(e.at for e in caller.events if e.kind == "cancelled") <= 6.1
        await stage.run(0.2)
        assert stage.desk.sessions == 0

    perform(play)
