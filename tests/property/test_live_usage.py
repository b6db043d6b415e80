"""The figures of ``usage`` are those of what was said and heard, in every format."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.stage import Stage, perform

WIDTHS = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1, "wav": 2}
RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)
FORMATS = st.sampled_from([(name, rate) for name in WIDTHS for rate in RATES if name not in ("mulaw", "alaw")]) | (
    st.sampled_from([("mulaw", 8_000), ("alaw", 8_000)])
)
DELTA = st.text("ab \u00e9\U0001f642", max_size=12)
ACT = st.sampled_from(["text", "text", "text", "flush", "cancel", "wait", "wait"])


@settings(max_examples=60, deadline=None)
@given(chosen=FORMATS, acts=st.lists(st.tuples(ACT, DELTA, st.floats(0.0, 1.5)), max_size=12), halves=st.booleans())
def test_usage_adds_up(chosen: tuple[str, int], acts: list[tuple[str, str, float]], halves: bool) -> None:
    encoding, rate = chosen

    async def play(stage: Stage) -> None:
        caller = stage.caller()
        opened_at = stage.clock.now()
        caller.open(format={"encoding": encoding, "sample_rate": rate}, pace="fast", idle_timeout_s=60.0)
        await stage.settle()
        generation = seq = characters = flushes = 0
        for kind, delta, wait_s in acts:
            match kind:
                case "text":
                    parts = [delta]
                    if halves:  # a pair cut in the middle is one character
                        units = delta.encode("utf-16-le")
                        parts = [
                            units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2)
                        ]
                    for part in parts:
                        caller.say("text", seq=seq, gen=generation, text=part)
                        seq += 1
                    characters += len(delta)
                case "flush":
                    caller.say("flush", gen=generation)
                    flushes += 1
                case "cancel":
                    caller.say("cancel", gen=generation, keep=True)
                    generation, seq = generation + 1, 0
                case "wait":
                    await stage.run(wait_s)
        caller.say("finish", gen=generation)
        await stage.run_until(lambda: caller.over)
        audio = [event for event in caller.events if event.kind == "audio"]
        header = 44 if encoding == "wav" and audio else 0
        samples = (sum(len(event.payload) for event in audio) - header) / WIDTHS[encoding]
        usage = caller.last("end")["usage"]
        assert caller.last("end")["reason"] == "finished"
        assert usage["characters"] == characters
        assert usage["audio_ms"] == pytest.approx(1000 * samples / rate)
        assert (usage["audio_ms"] > 0) == bool(audio) == ("first_audio_ms" in usage)
        lag_ms = 80.0 * (generation + 1) + 120.0 * (flushes + generation + 1)
        assert abs(usage["audio_ms"] - 80.0 * usage["frames"]) <= lag_ms, "a frame is 80 ms, but for codec and filters"
        life_ms = 1000 * (caller.events[-1].at - opened_at)
        assert usage["queued_ms"] + usage["stalled_ms"] <= life_ms + 0.01
        if audio:
            assert usage["first_audio_ms"] == pytest.approx(1000 * (audio[0].at - opened_at), abs=0.01)
            assert usage["queued_ms"] <= usage["first_audio_ms"]

    perform(play)
