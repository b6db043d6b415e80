"""Barge-in: one answer at once, nothing old after it, and nothing of it to pay for."""

from __future__ import annotations

import math

import pytest

from tests.stage import Caller, Stage, perform

TEXT = "one two three four five six seven eight nine ten "
FIRST_WORD_MS, WORD_MS = 80.0, 320.0
"""When the fake begins words."""
EIGHT = {"encoding": "pcm_s16le", "sample_rate": 8_000}


async def opened(stage: Stage, **fields: object) -> Caller:
    caller = stage.caller()
    caller.open(**fields)
    await stage.settle()
    return caller


@pytest.mark.parametrize("pace", ["live", "fast"])
@pytest.mark.parametrize("run_ahead", [0, 2])
def test_a_cancel_is_answered_before_anything_else_happens(pace: str, run_ahead: int) -> None:
    """At every moment of the first second, with frames on their way from the engine: no time passes, no frame goes
    out, and no old one follows."""

    async def play(stage: Stage) -> None:
        for moment in range(40):
            caller = await opened(stage, text=TEXT, pace=pace)
            await stage.run(0.025 * moment)
            before, now = len(caller.events), stage.clock.now()
            caller.say("cancel", keep=True)
            await stage.settle()
            answer = caller.events[before]
            assert (answer.kind, answer.at) == ("cancelled", now)
            assert answer.fields["spoken"] + answer.fields["unspoken"] == TEXT
            await stage.run(0.5)
            assert "audio" not in caller.kinds[before:]
            caller.say("cancel", gen=1)
            await stage.run(0.1)
            assert caller.last("end")["reason"] == "cancelled"

    perform(play, run_ahead=run_ahead, latency=lambda: 2)


def test_late_text_of_an_old_generation_is_never_taken_for_new() -> None:
    async def play(stage: Stage) -> None:
        caller = await opened(stage)
        caller.say("text", seq=0, gen=0, text="one two ")
        caller.say("cancel", gen=0, keep=True)
        for seq in range(3):
            caller.say("text", seq=seq, gen=0, text="old old old ")
        caller.say("flush", gen=0)
        caller.say("finish", gen=0)
        caller.say("text", seq=0, gen=1, text="new words here ")
        caller.say("text", seq=1, gen=0, text="old ")
        await stage.run(3.0)
        caller.say("cancel", gen=1)
        await stage.run(0.1)
        assert caller.last("cancelled")["spoken"] + caller.last("cancelled")["unspoken"] == "new words here "
        assert {"error", "flushed"}.isdisjoint(caller.kinds)
        assert caller.last("end")["usage"]["characters"] == len("one two new words here ")

    perform(play)


def test_a_word_that_begins_where_the_hearing_ends_is_not_spoken() -> None:

    async def play(stage: Stage) -> None:
        for played_ms in (0.0, 79.0, 81.0, 400.0, 401.0, 721.0, 1e6, None):
            caller = await opened(stage, text=TEXT, pace="fast")
            await stage.run(2.0)
            caller.say("cancel", **({} if played_ms is None else {"played_ms": played_ms}))
            await stage.run(0.1)
            said = caller.last("cancelled")
            words = len(said["spoken"].split())
            assert said["spoken"] + said["unspoken"] == TEXT
            sent_ms = caller.last("end")["usage"]["audio_ms"]
            heard_ms = sent_ms if played_ms is None else min(played_ms, sent_ms)
            assert words == math.ceil(max(0.0, heard_ms - FIRST_WORD_MS) / WORD_MS)

    perform(play)


@pytest.mark.parametrize("sample_rate", [8_000, 24_000])
def test_credit_for_audio_that_a_cancel_drops_comes_back(sample_rate: int) -> None:
    """What a resampler holds at a cancel, and frames that were on their way: 30 cancels cost nothing."""

    async def play(stage: Stage) -> None:
        caller = await opened(stage, format={**EIGHT, "sample_rate": sample_rate}, credit_ms=4_000.0)
        for generation in range(30):
            caller.say("text", seq=0, gen=generation, text=TEXT)
            await stage.run(0.05)
            caller.say("cancel", gen=generation, keep=True)
        caller.say("text", seq=0, gen=30, text=TEXT * 5)
        await stage.run(10.0)
        heard = sum(len(event.payload) for event in caller.events if event.kind == "audio")
        assert 4_000 - 3 * 80 < 500 * heard / sample_rate <= 4_000 + 0.1
        assert caller.kinds[-1] == "ping"

    perform(play, latency=lambda: 1)


def test_silence_that_is_trimmed_costs_no_credit() -> None:
    """A second of it would else use up a credit of 400 ms, and nobody would ever hear a frame to grant more for."""

    async def play(stage: Stage) -> None:
        caller = await opened(stage, text=TEXT, trim_silence=True, credit_ms=400.0)
        await stage.run(5.0)
        heard = sum(len(event.payload) for event in caller.events if event.kind == "audio")
        assert 320 <= heard / 48 <= 400

    perform(play, silent=True)


def test_queueing_ends_with_the_first_step() -> None:
    """Not with the row: both have theirs at once, and the second one's first step waits for the first one's."""

    async def play(stage: Stage) -> None:
        caller = await opened(stage)
        await stage.run(2.0)
        caller.say("text", seq=0, text=TEXT)
        await stage.run(1.0)
        caller.say("cancel")
        await stage.run(0.1)
        usage = caller.last("end")["usage"]
        assert usage["queued_ms"] == pytest.approx(2_000.0, abs=60.0)
        assert usage["queued_ms"] < usage["first_audio_ms"]

    perform(play)
