"""Case C28 in numbers: a thousand sessions, ended in every way there is, leave nothing behind
(kyutai-labs/pocket-tts#238, remsky/Kokoro-FastAPI#25, #453, pipecat-ai/pipecat#3835, livekit/agents#5844)."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cases.test_case_sessions import ENDINGS, Leftovers
from tests.integration.live import House, eventually
from tests.live_callers import assert_nothing_left
from tests.stage import Caller, Stage, perform
from worker.seat import PARK_AFTER_S
from worker.session import LiveSession

SLOTS = 8


def finish(caller: Caller) -> None:
    caller.say("finish")


def cancel(caller: Caller) -> None:
    caller.say("cancel")


def leave(caller: Caller) -> None:
    caller.deafen()


def leave_finished(caller: Caller) -> None:
    caller.say("finish")
    caller.deafen()


def forget(caller: Caller) -> None:
    """Without a word: the idle time-out ends it."""


def stop_pinging(caller: Caller) -> None:
    caller.say("ping")


def interrupt(caller: Caller) -> None:
    for generation in range(10):
        caller.say("text", seq=0, gen=generation, text="one two three ")
        caller.say("cancel", gen=generation, keep=generation < 9)


def interrupt_and_forget(caller: Caller) -> None:
    caller.say("cancel", keep=True)


def interrupt_and_leave(caller: Caller) -> None:
    caller.say("cancel", keep=True)
    caller.deafen()


def fail(caller: Caller) -> None:
    session = caller.stage.loop._roster._sessions[caller.id]
    caller.stage.engine.poison(session.row)
    caller.say("flush")


def break_a_step(caller: Caller) -> None:
    caller.stage.engine.raise_once(RuntimeError("ordered"))
    caller.say("flush")


WAYS: tuple[Callable[[Caller], None], ...] = (
    finish,
    cancel,
    leave,
    leave_finished,
    forget,
    stop_pinging,
    interrupt,
    interrupt_and_forget,
    interrupt_and_leave,
    fail,
    break_a_step,
)


def test_c28_a_thousand_sessions_leave_nothing_behind() -> None:
    """Also parked ones, and those that nobody could seat again."""

    async def play(stage: Stage) -> None:
        tasks, interests, files = len(asyncio.all_tasks()), len(stage.bus.interests), os.listdir("/proc/self/fd")
        for round_ in range(1_000 // SLOTS):
            callers = [stage.caller() for _ in range(SLOTS)]
            for caller in callers:
                caller.open(text="one two three ", idle_timeout_s=1.0 + PARK_AFTER_S)
            await stage.run(0.1)
            assert [caller.kinds[0] for caller in callers] == ["ready"] * SLOTS
            for number, caller in enumerate(callers):
                WAYS[(round_ * SLOTS + number) % len(WAYS)](caller)
                await stage.run(0.02)
            await stage.run_until(lambda: stage.desk.sessions == 0 and not stage.bus.watches, limit_s=10.0)
            for caller in callers:
                caller.deafen()
        assert_nothing_left(stage, interests)
        assert len(asyncio.all_tasks()) == tasks
        assert os.listdir("/proc/self/fd") == files
        gc.collect()
        assert not [thing for thing in gc.get_objects() if type(thing) is LiveSession]

    perform(play, slots=SLOTS)


async def kill_a_client(home: House, sessions: int) -> None:
    """With kill -9, while all of its sessions speak."""
    clients = [sys.executable, "-m", "tests.cases.vanishing", home.url, home.pool, str(sessions)]
    process = await asyncio.create_subprocess_exec(*clients, stdout=asyncio.subprocess.PIPE, cwd=Path.cwd())
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"speaking\n"
    process.kill()
    await process.wait()


@pytest.mark.asyncio(loop_scope="module")
async def test_c28_a_killed_client_gives_its_slots_back(home: House) -> None:
    """How soon is tested on a fake clock (``test_live_losses``)."""
    await asyncio.gather(*(end(home) for end in ENDINGS))
    await home.empty()
    before = Leftovers(home)
    await kill_a_client(home, sessions=6)
    await home.empty()
    await eventually(lambda: Leftovers(home).counts == before.counts)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.asyncio(loop_scope="module")
async def test_c28_a_thousand_real_sessions_leave_nothing_behind(home: House) -> None:
    await asyncio.gather(*(end(home) for end in ENDINGS * 8))
    await home.empty()
    before = Leftovers(home)
    for _ in range(20):
        await kill_a_client(home, sessions=20)
        await asyncio.gather(*(end(home) for end in ENDINGS * 6))
        await home.empty()
    await eventually(lambda: Leftovers(home).counts == before.counts)
    assert Leftovers(home).resident - before.resident < 32_000_000
