"""What a session does when its listener, its producer or the server is lost, in the time that it promises."""

from __future__ import annotations

import pytest

from tests.stage import Caller, Stage, perform

LONG = "one two three four five six seven eight nine ten " * 4


async def speaking(stage: Stage, **fields: object) -> Caller:
    caller = stage.caller()
    caller.open(text=LONG, final=True, **fields)
    await stage.settle()
    await stage.run(1.0)
    return caller


def samples(caller: Caller) -> bytes:
    return b"".join(event.payload for event in caller.events if event.kind == "audio")


def test_a_lost_server_holds_the_session_and_gives_up_after_30_s() -> None:
    async def play(stage: Stage) -> None:
        caller = await speaking(stage)
        stage.bus.lose()
        await stage.run(0.2)
        steps, lost_at = len(stage.engine.stepped), stage.clock.now()
        await stage.run(29.5)
        assert len(stage.engine.stepped) == steps
        assert stage.desk.sessions == 1
        await stage.run_until(lambda: stage.desk.sessions == 0)
        assert 29.7 <= stage.clock.now() - lost_at <= 30.2
        assert stage.engine.open_slots == []
        assert not caller.over
        await stage.run_until(lambda: not stage.bus.watches)
        assert stage.desk._tokens.target == 4

    perform(play)


def test_a_server_that_comes_back_loses_nothing() -> None:
    whole = []

    async def play(stage: Stage, away_s: float | None) -> None:
        caller = await speaking(stage, seed=3)
        if away_s is not None:
            stage.bus.lose()
            await stage.run(away_s)
            stage.bus.restore()
        await stage.run_until(lambda: caller.over)
        assert caller.last("end")["reason"] == "finished"
        assert caller.last("end")["usage"]["audio_ms"] == len(samples(caller)) / 48
        whole.append(samples(caller))

    for away_s in (None, 0.1, 25.0):
        perform(lambda stage, away_s=away_s: play(stage, away_s))  # type: ignore[misc]
    assert whole[0] == whole[1] == whole[2]


def test_time_without_a_server_is_nobodys_silence() -> None:
    """Neither idle nor a producer that is gone: nobody can be heard."""

    async def play(stage: Stage) -> None:
        caller = stage.caller()
        caller.open(idle_timeout_s=3.0)
        await stage.settle()
        caller.say("ping")
        await stage.run(1.0)
        stage.bus.lose()
        await stage.run(20.0)
        stage.bus.restore()
        await stage.run(1.0)
        assert not caller.over
        await stage.run_until(lambda: caller.over)
        assert caller.last("end")["reason"] in ("idle", "gone")

    perform(play)


@pytest.mark.parametrize("pings", [True, False])
def test_a_producer_who_vanishes(pings: bool) -> None:
    """Who pinged is missed after 3.5 s, who did not after the idle time-out; the listener hears what was given."""

    async def play(stage: Stage) -> None:
        caller = stage.caller()
        caller.open(text="one two three ", idle_timeout_s=8.0)
        await stage.settle()
        begun = stage.clock.now()
        if pings:
            caller.say("ping")
        await stage.run_until(lambda: caller.over)
        took_s = stage.clock.now() - begun
        assert caller.last("end")["reason"] == ("gone" if pings else "idle")
        assert (3.5 <= took_s <= 4.7) if pings else (8.0 <= took_s <= 10.0)
        assert "need_text" in caller.kinds
        await stage.run(0.2)
        assert stage.desk._tokens.target == 4

    perform(play)


def test_a_listener_who_vanishes_is_missed_within_four_seconds() -> None:
    async def play(stage: Stage) -> None:
        caller = await speaking(stage)
        caller.deafen()
        gone_at = stage.clock.now()
        await stage.run_until(lambda: stage.desk.sessions == 0)
        assert 3.0 <= stage.clock.now() - gone_at <= 4.5
        assert stage.engine.open_slots == []

    perform(play)


def test_a_session_ends_at_its_limit_whatever_it_does() -> None:
    async def play(stage: Stage) -> None:
        caller = await speaking(stage, max_session_s=2.0)
        await stage.run_until(lambda: caller.over)
        assert caller.last("end")["reason"] == "limit"
        assert 2.0 <= caller.events[-1].at - caller.events[0].at <= 3.1

    perform(play)


def test_no_room_is_said_at_once() -> None:
    async def play(stage: Stage) -> None:
        await speaking(stage)
        late = stage.caller()
        late.open(text="Hello.")
        await stage.settle()
        assert late.kinds == ["status 503"]

    perform(play, slots=1)
