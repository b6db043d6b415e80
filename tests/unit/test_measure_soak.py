from __future__ import annotations

import io
import itertools
import os

import pytest
from rich.console import Console

from tests.unit.measure_pool import HearMore, Script, ScriptedPool, end, frames
from worker.errors import WireError
from worker.measure.report import soak_dict, soak_lines
from worker.measure.soak import AHEAD_CHARS, Soak, SoakFailed
from worker.wire.events import End, Error, NeedText

SENTENCE = "This is a sentence of the soak."


def soak_of(script: Script | WireError, minutes: float = 0.5) -> tuple[Soak, ScriptedPool]:
    pool = ScriptedPool([script])
    return Soak(pool, os.getpid(), minutes, itertools.repeat(SENTENCE), seed=5), pool


async def test_so_many_minutes_are_heard_and_then_it_is_cancelled() -> None:
    soak, pool = soak_of(frames(1_000))
    said: list[str] = []
    heard: list[bytes] = []
    soak.on_text, soak.on_audio = said.append, heard.append
    await soak.run()
    assert soak.player.audio_s == pytest.approx(30.0, abs=0.08)
    assert len(heard) == 375
    assert pool.speeches[0].cancelled
    assert "".join(said) == pool.speeches[0].sent
    (request,) = pool.requests
    assert (request.pace, request.seed, request.final) == ("fast", 5, False)
    growth = soak.samples.judge()
    assert growth.flat
    assert soak_dict(soak, growth)["flat"] is True
    out = io.StringIO()
    for line in soak_lines(soak, growth):
        Console(file=out, width=300).print(line)
    assert "0.5 minutes of audio" in out.getvalue()
    assert "flat" in out.getvalue()


async def test_text_is_given_ahead_of_the_voice_and_when_it_is_asked_for() -> None:
    script: Script = [HearMore(AHEAD_CHARS), NeedText(text_seq=1), HearMore(2 * AHEAD_CHARS), *frames(400)]
    soak, pool = soak_of(script)
    await soak.run()
    assert soak.waits == 1
    assert len(pool.speeches[0].sent) >= 2 * AHEAD_CHARS


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (end(3, "limit"), "the session ended: limit"),
        (Error(code="model_failure", message="x", retryable=True), "error model_failure"),
    ],
)
async def test_a_session_that_does_not_last_is_no_soak(step: Error | End, said: str) -> None:
    soak, _ = soak_of([*frames(3), step])
    with pytest.raises(SoakFailed, match=said):
        await soak.run()


async def test_a_soak_that_is_not_opened_says_why() -> None:
    soak, _ = soak_of(WireError("no_capacity", "no worker has room"))
    with pytest.raises(WireError, match="no_capacity"):
        await soak.run()
