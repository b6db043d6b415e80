"""What a take-over keeps: numbers, text, flushes, cancels, formats, and whose session it is.

Two workers in one process; which of them takes a session over is the server's choice, and may be the one that had it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client

from scheduler.loop import LoopRules
from tests.integration.fleet import ask_again, heard_once
from tests.integration.live import OpenRefused, Session, eventually, house, live_settings
from worker.embedded import EmbeddedServer
from worker.sections import JournalSettings, NatsSettings, WorkerSettings
from worker.service import Service, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "We paid $12.50 for the old map \u2014 and then we walked down to the river."
LONG = f"{TEXT} Nobody had seen the bridge for a week. {TEXT} The water was as high as in the spring. "
REACH_S = 4.0


@dataclass
class Pair:
    client: Client
    services: list[Service]

    async def session(self, session: str, tenant: str = "default", **fields: Any) -> Session:
        async with asyncio.timeout(30):
            while True:
                try:
                    return await Session(self.client, tenant=tenant).open(
                        {"session": session, "resume": True, **fields}
                    )
                except OpenRefused as refused:
                    if refused.code not in ("503", "no_capacity"):
                        raise
                await asyncio.sleep(0.02)

    async def spoken(self, **fields: Any) -> Session:
        session = await Session(self.client).open({**fields, "pace": "fast"})
        assert (await session.to_end())["reason"] == "finished"
        return session

    @property
    def sessions(self) -> int:
        return sum(service.desk.sessions for service in self.services)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        store = Path(tmp_path_factory.mktemp("journal"))
        server = await stack.enter_async_context(EmbeddedServer(store_dir=store))
        services = []
        for name in ("one", "other"):
            settings = live_settings(
                slots=4,
                nats=NatsSettings(url=(server.url,), embedded="off"),
                worker=WorkerSettings(id=name),
                journal=JournalSettings(enabled="on", reach_s=REACH_S),
            )
            services.append(await stack.enter_async_context(running(settings, rules=LoopRules(headroom=100.0))))
        client = await nats.connect(server.url)
        stack.push_async_callback(client.close)
        yield Pair(client, services)


async def reached(session: Session, media_ms: float) -> None:
    """Returns when audio of that media time has come."""
    while (await session.until("audio")).number("Tts-Pts") < media_ms * session.ready["format"]["sample_rate"] / 1000:
        pass


FORMATS: list[dict[str, Any]] = [
    {},
    {"format": {"encoding": "mulaw", "sample_rate": 8000}, "trim_silence": True, "gain_db": -6.0, "marks": True},
    {"format": {"encoding": "pcm_f32le", "sample_rate": 44100}},
    {"format": {"encoding": "opus", "sample_rate": 24000}},
    {"format": {"encoding": "wav", "sample_rate": 22050}},
]


@pytest.mark.parametrize("options", FORMATS, ids=lambda options: options.get("format", {}).get("encoding", "plain"))
async def test_every_format_goes_on_to_the_byte(pair: Pair, options: dict[str, Any]) -> None:
    """Paused for want of credit twice, and taken over in both pauses; ``fast``, so that nothing waits for a beat."""
    name = f"formats-{options.get('format', {}).get('encoding', 'plain'):-<20}"
    spoken: dict[str, Any] = {"text": TEXT, "final": True, "seed": 5, "session": name, **options}
    undisturbed = await pair.spoken(**spoken)
    session = await pair.session(**spoken, pace="fast", credit_ms=800)
    for takeovers in (1, 2):
        await reached(session, 600.0 * takeovers)
        ready = (await ask_again(pair.client, session, name)).fields
        assert (ready["gen"], ready["exact"], ready["seed"]) == (takeovers, True, 5)
        await session.say("credit", ms=800)
    await session.say("credit", ms=60_000)
    end = await session.to_end()
    assert heard_once(session) == undisturbed.pcm
    wanted = undisturbed.events[-1].fields["usage"]
    same = ("characters", "words", "frames", "audio_ms")
    assert {name: end["usage"][name] for name in same} == {name: wanted[name] for name in same}
    told = [event.fields for event in session.events if event.kind == "mark"]
    marks = {mark["offset"]: mark for mark in told}
    assert list(marks.values()) == [event.fields for event in undisturbed.events if event.kind == "mark"]


async def test_text_goes_on_under_its_old_numbers(pair: Pair) -> None:
    deltas = ["We looked ", "at the old map ", "together, and then we walked down ", "to the river."]
    undisturbed = await pair.spoken(text="".join(deltas), final=True, seed=7)
    session = await pair.session("text-in-four-deltas", text=deltas[0], seed=7, pace="fast")
    for seq in range(2):
        await session.until("need_text")
        ready = (await ask_again(pair.client, session, "text-in-four-deltas")).fields
        assert ready["text_seq"] == seq
        await session.until("need_text")  # what the new one is asked again
        await session.text(seq, deltas[seq + 1], gen=0)
        await session.text(seq, "What was taken is not taken again. ", gen=0)
    await session.text(2, deltas[3], gen=0)
    await session.say("finish", seq=3, gen=0)
    assert (await session.to_end())["usage"]["characters"] == len("".join(deltas))
    assert heard_once(session) == undisturbed.pcm


async def test_a_flush_is_answered_once(pair: Pair) -> None:
    session = await pair.session("flush-and-flush-again", text="One two three.", pace="fast", seed=3)
    await session.say("flush", seq=0)
    assert (await session.until("flushed")).fields["text_seq"] == 0
    await asyncio.sleep(0.2)
    await ask_again(pair.client, session, "flush-and-flush-again")
    await session.text(0, "Four five six.")
    await session.say("flush", seq=1)
    assert (await session.until("flushed")).fields["text_seq"] == 1
    await session.say("finish")
    await session.to_end()
    assert session.count("flushed") == 2
    heard_once(session)


async def test_a_cancel_by_the_old_number_and_text_behind_it(pair: Pair) -> None:
    """The producer has not heard that the generation has another number now."""
    session = await pair.session("cancelled-after-a-move", text=TEXT, seed=9, credit_ms=1600, pace="fast")
    await reached(session, 1_400.0)
    await asyncio.sleep(0.3)  # until the journal has it: what was sent since its last tick is not known elsewhere
    ready = (await ask_again(pair.client, session, "cancelled-after-a-move")).fields
    assert (ready["gen"], ready["since_gen"]) == (1, 0)
    await session.say("cancel", gen=0, keep=True)
    await session.text(0, "And now something else.", gen=1)
    await session.say("finish", seq=1, gen=1)
    await session.say("credit", ms=60_000)
    cancelled = (await session.until("cancelled")).fields
    assert cancelled["gen"] == 2
    assert cancelled["spoken"] + cancelled["unspoken"] == TEXT
    assert cancelled["spoken"] != ""
    await session.to_end()
    at = next(index for index, event in enumerate(session.events) if event.kind == "cancelled")
    audio = [event for event in session.events[at:] if event.kind == "audio"]
    assert {event.number("Tts-Gen") for event in audio} == {2}
    first = audio[0].number("Tts-Seq")
    assert [event.number("Tts-Seq") for event in audio] == list(range(first, first + len(audio)))


async def test_a_repeated_cancel_is_acknowledged_again_by_the_next_worker(pair: Pair) -> None:
    session = await pair.session("cancelled-and-moved", text=TEXT, credit_ms=400, pace="fast")
    await asyncio.sleep(0.3)
    await session.say("cancel", gen=0, keep=True)
    first = (await session.until("cancelled")).fields
    await ask_again(pair.client, session, "cancelled-and-moved")
    await session.say("cancel", gen=0, keep=True)
    assert (await session.until("cancelled")).fields == first
    await session.say("cancel")
    await session.to_end()


async def test_a_long_generation_goes_on_but_not_exactly(pair: Pair) -> None:
    undisturbed = await pair.spoken(text=LONG, final=True, seed=4)
    name = "longer-than-the-reach"
    session = await pair.session(name, text=LONG, final=True, seed=4, credit_ms=9_000, pace="fast", marks=True)
    await reached(session, 8_700.0)
    ready = (await ask_again(pair.client, session, name)).fields
    assert ready["exact"] is False
    before = sum(len(event.payload) for event in session.audio)
    await session.say("credit", ms=600_000)
    end = await session.to_end()
    assert b"".join(event.payload for event in session.audio)[:before] == undisturbed.pcm[:before]
    numbers = {event.number("Tts-Seq") for event in session.audio}
    assert numbers == set(range(len(numbers)))
    words, characters = (undisturbed.events[-1].fields["usage"][name] for name in ("words", "characters"))
    assert (end["reason"], end["usage"]["words"], end["usage"]["characters"]) == ("finished", words, characters)
    marks = {event.fields["offset"]: event.fields for event in session.events if event.kind == "mark"}
    assert [mark["word"] for mark in marks.values()] == LONG.split()
    starts = [mark["start_ms"] for mark in marks.values()]
    assert starts == sorted(starts)


async def test_the_name_of_another_tenants_session_is_just_a_name(pair: Pair) -> None:
    session = await pair.session("belongs-to-default", text=TEXT, final=True, seed=5, credit_ms=400, pace="fast")
    with contextlib.suppress(OpenRefused):  # at the same worker; at the other it begins a session of its own
        stranger = await Session(pair.client, tenant="b").open({"session": "belongs-to-default", "resume": True})
        assert "gen" not in stranger.ready
        await stranger.say("cancel")
        await stranger.to_end()
    await session.say("credit", ms=60_000)
    assert (await session.to_end())["reason"] == "finished"
    assert session.count("ready") == 1


async def test_what_has_ended_cannot_be_resumed(pair: Pair) -> None:
    session = await pair.session("over-and-done-with-it", text="Yes.", final=True, pace="fast")
    await session.to_end()
    await asyncio.sleep(0.1)
    assert (await ask_again(pair.client, session, "over-and-done-with-it")).fields["code"] == "no_session"


async def test_one_message_a_tick_for_all_sessions(pair: Pair) -> None:
    """Four live sessions for two seconds: a worker's ticks do not grow with them."""
    stream = pair.client.jetstream()
    before = (await stream.stream_info("TTS_JOURNAL")).state.messages
    sessions = [await pair.session(f"one-of-four-sessions-{index}", text=LONG, final=True) for index in range(4)]
    await asyncio.sleep(2.0)
    after = (await stream.stream_info("TTS_JOURNAL")).state.messages
    for session in sessions:
        await session.say("cancel")
        await session.to_end()
    ticks = 2 * (2.5 / 0.08)
    assert after - before < ticks + 4 * 3
    await eventually(lambda: pair.sessions == 0)


async def test_without_jetstream_there_is_nothing_to_resume() -> None:
    async with house(live_settings(slots=1)) as home:
        with pytest.raises(OpenRefused) as refused:
            await home.session({"resume": True})
        assert (refused.value.code, refused.value.fields["detail"]) == ("unsupported_option", {"option": "resume"})
