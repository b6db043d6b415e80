from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.client_stage import Stage, read
from tests.integration.conftest import MakeBus
from tests.integration.mailbox import until
from tests.integration.scripted_worker import FRAME, ScriptedWorker
from worker.client import AudioGap, Client, Gap, TimedAudio
from worker.connection import BusOptions
from worker.embedded import EmbeddedServer
from worker.errors import WireError
from worker.wire.events import Cancelled, Error, Flushed, Limits, Mark, NeedText, Pulse
from worker.wire.requests import Cancel, Credit, Finish, Flush, Open, Ping, Text

SMALL = Limits(text_chars=50, buffer_chars=80, session_s=3600.0, idle_s=600.0)
"""70 characters may wait at the worker."""


@pytest_asyncio.fixture
async def stage(server: EmbeddedServer, make_bus: MakeBus, pool: str) -> AsyncIterator[Stage]:
    worker = await ScriptedWorker.start(await make_bus(), pool)
    async with await Client.connect(BusOptions((server.url,)), pool=pool) as client:
        yield Stage(client, worker)


# --- the producer -----------------------------------------------------------------------------------------------------


async def test_what_is_said_arrives_numbered_and_in_order(stage: Stage) -> None:
    speech, session = await stage.open()
    await speech.send("Hel")
    await speech.send("")
    await speech.send("lo \U0001f642")
    await speech.flush()
    await speech.credit(80.5)
    await speech.ping()
    await speech.finish()
    await speech.finish()
    said = [await session.next() for _ in range(6)]
    assert said == [
        Text(seq=0, text="Hel", gen=0),
        Text(seq=1, text="lo \U0001f642", gen=0),
        Flush(seq=2, gen=0),
        Credit(ms=80.5),
        Ping(),
        Finish(seq=2, gen=0),
    ]
    await stage.settle()
    assert session.heard.empty(), "the second finish says nothing new"


async def test_long_text_is_cut_to_what_the_worker_takes(stage: Stage) -> None:
    speech, session = await stage.open(limits=SMALL)
    await speech.send("x" * 60)
    assert [await session.next(), await session.next()] == [
        Text(seq=0, text="x" * 50, gen=0),
        Text(seq=1, text="x" * 10, gen=0),
    ]


async def test_a_message_never_exceeds_what_the_server_takes(stage: Stage) -> None:
    wide = Limits(text_chars=10**6, buffer_chars=10**7, session_s=1.0, idle_s=1.0)
    speech, session = await stage.open(limits=wide)
    text = "\U0001f642" * 300_000
    await speech.send(text)
    heard = ""
    while len(heard) < len(text):
        message = await session.next()
        assert isinstance(message, Text)
        heard += message.text
    assert heard == text


async def test_text_waits_until_the_worker_has_room(stage: Stage) -> None:
    speech, session = await stage.open(limits=SMALL)
    await speech.send("x" * 45)
    sending = asyncio.ensure_future(speech.send("y" * 30))
    await session.next()
    await stage.settle()
    session.audio()
    session.event(Pulse(text_seq=1))
    await stage.settle()
    assert not sending.done(), "taken is not spoken"
    session.event(NeedText(text_seq=1))
    await sending
    assert await session.next() == Text(seq=1, text="y" * 30, gen=0)


async def test_the_text_of_the_open_takes_room_too(stage: Stage) -> None:
    speech, session = await stage.open(request=Open(text="x" * 60), limits=SMALL)
    sending = asyncio.ensure_future(speech.send("y" * 30))
    await stage.settle()
    assert not sending.done()
    session.event(NeedText(text_seq=0))
    await sending


async def test_who_waits_for_room_learns_of_the_end(stage: Stage) -> None:
    speech, session = await stage.open(limits=SMALL)
    sending = asyncio.ensure_future(speech.send("x" * 200))
    await session.next()
    session.end("limit")
    with pytest.raises(WireError, match="no_session"):
        await sending


@pytest.mark.parametrize("text", ["a\0b", "x" * 60 + "\ud83d!"])
async def test_what_is_no_text_is_refused_before_any_of_it_is_sent(stage: Stage, text: str) -> None:
    speech, session = await stage.open(limits=SMALL)
    with pytest.raises(WireError, match="bad_request: text"):
        await speech.send(text)
    await speech.send("fine")
    assert await session.next() == Text(seq=0, text="fine", gen=0)


async def test_after_the_end_text_is_refused_and_the_rest_is_quiet(stage: Stage) -> None:
    speech, session = await stage.open()
    session.end("idle")
    await until(lambda: speech.over)
    with pytest.raises(WireError, match="no_session"):
        await speech.send("late")
    with pytest.raises(WireError, match="no_session"):
        await speech.flush()
    await speech.finish()
    await speech.cancel()
    await speech.credit(80)
    await speech.ping()
    await stage.settle()
    assert session.heard.empty()


# --- the listener -----------------------------------------------------------------------------------------------------


async def test_events_come_in_order_and_end_with_the_end(stage: Stage) -> None:
    speech, session = await stage.open()
    await speech.send("Hello.")
    await speech.flush()
    session.audio()
    session.event(NeedText(text_seq=1))
    session.audio(FRAME[:1000])
    session.event(Flushed(text_seq=1, pts=2420))
    session.event(Pulse(text_seq=1))
    session.end()
    events = [event async for event in speech]
    kinds = [type(event).__name__ for event in events]
    assert kinds == ["TimedAudio", "NeedText", "TimedAudio", "Flushed", "Pulse", "End"]
    first, second = (event for event in events if isinstance(event, TimedAudio))
    assert (first.payload, first.seq, first.pts, first.gen, first.encoding) == (FRAME, 0, 0, 0, "pcm_s16le")
    assert (second.payload, second.seq, second.pts) == (FRAME[:1000], 1, 1920)
    assert events[-1] is speech.end
    assert speech.usage is not None
    assert speech.usage.words == 2
    assert [event async for event in speech] == [], "it stays over"


async def test_audio_knows_when_it_arrived_however_late_it_is_read(stage: Stage) -> None:
    now = asyncio.get_running_loop().time
    speech, session = await stage.open()
    assert speech.first_audio_at is None
    session.audio(b"")
    session.audio()
    session.audio()
    await until(lambda: speech._inlet.waiting_bytes == 2 * len(FRAME))
    arrived_by = now()
    session.end()
    audio = [event async for event in speech.audio()]
    assert len(audio) == 2, "an empty payload is no audio"
    assert speech.opened_at < audio[0].at <= audio[1].at <= arrived_by
    assert speech.first_audio_at == audio[0].at


async def test_a_lost_payload_is_a_gap_and_ends_plain_audio(stage: Stage) -> None:
    speech, session = await stage.open()
    session.audio()
    session.lose_audio()
    session.lose_audio()
    session.audio()
    session.end()
    audio = speech.audio()
    assert (await anext(audio)).seq == 0
    with pytest.raises(AudioGap) as gap:
        await anext(audio)
    assert (gap.value.seq, gap.value.missing) == (1, 2)
    assert isinstance(await anext(speech), TimedAudio), "whoever can do with a hole goes on"


async def test_a_reader_who_does_not_read_loses_audio_not_memory(stage: Stage) -> None:
    speech, session = await stage.open(queue_bytes=2 * len(FRAME))
    for _ in range(10):
        session.audio()
    session.end()
    await until(lambda: speech.over)
    kinds = [event if isinstance(event, Gap) else type(event).__name__ async for event in speech]
    assert kinds == ["TimedAudio", "TimedAudio", Gap(2, 8), "End"]


async def test_a_failed_session_raises_what_it_failed_with(stage: Stage) -> None:
    speech, session = await stage.open()
    session.audio()
    session.event(Error(code="model_failure", message="not finite", retryable=True))
    session.end("failed")
    heard: list[TimedAudio] = []
    with pytest.raises(WireError) as failed:
        await read(speech.audio(), heard)
    assert failed.value.code == "model_failure"
    assert len(heard) == 1
    speech, session = await stage.open()
    session.end("failed")
    with pytest.raises(WireError, match="internal"):
        await read(speech.audio(), [])


async def test_an_error_that_leaves_the_session_alive_is_not_lost_in_plain_audio(stage: Stage) -> None:
    speech, session = await stage.open()
    session.event(Error(code="over_limit", message="busy", retryable=True))
    session.audio()
    session.end()
    heard: list[TimedAudio] = []
    with pytest.raises(WireError, match="over_limit: busy"):
        await read(speech.audio(), heard)
    assert len(heard) == 1


async def test_what_is_no_event_of_the_contract_is_passed_over(stage: Stage) -> None:
    speech, session = await stage.open()
    bus = stage.worker.bus
    bus.publish(session.reply, b'{"type":"mark","word":"a"}', headers={"Tts-Event": "mark"})
    bus.publish(session.reply, b"\xff", headers={"Tts-Event": "audio"})
    bus.publish(session.reply)
    bus.publish(session.reply + "-x", headers={"Status": "503"})
    session.audio()
    session.end()
    assert [audio.seq async for audio in speech.audio()] == [0]
    assert stage.client._bus.stats.handler_errors == 0


# --- cancel -----------------------------------------------------------------------------------------------------------


async def test_a_barge_in_silences_the_old_generation_at_once(stage: Stage) -> None:
    speech, session = await stage.open()
    await speech.send("One two three")
    session.audio()
    session.audio()
    await until(lambda: speech._inlet.waiting_bytes == 2 * len(FRAME))
    await speech.cancel(played_ms=80.0, keep=True)
    await speech.send("Four")
    assert speech.gen == 1
    session.event(Mark(word="two", offset=4, start_ms=80.0, end_ms=None))  # of the old generation, like the next four
    session.audio()
    session.event(NeedText(text_seq=1))
    session.event(Flushed(text_seq=1, pts=0))
    session.event(Pulse(text_seq=1))
    session.event(Cancelled(gen=1, spoken="One", unspoken=" two three"))
    session.event(Mark(word="Four", offset=0, start_ms=160.0, end_ms=None))
    session.audio(gen=1)
    session.event(Cancelled(gen=1, spoken="One", unspoken=" two three"))  # acknowledged again
    session.event(NeedText(text_seq=1))
    session.end()
    events = [event async for event in speech]
    assert [type(event).__name__ for event in events] == ["Cancelled", "Mark", "TimedAudio", "NeedText", "End"]
    assert [await session.next() for _ in range(3)] == [
        Text(seq=0, text="One two three", gen=0),
        Cancel(gen=0, played_ms=80.0, keep=True),
        Text(seq=0, text="Four", gen=1),
    ]


async def test_a_cancel_ends_the_session_unless_it_keeps_it(stage: Stage) -> None:
    speech, session = await stage.open()
    await speech.send("One two three")
    await speech.cancel()
    await speech.cancel()
    with pytest.raises(WireError, match="no_session"):
        await speech.send("late")
    session.event(Cancelled(gen=1, spoken="", unspoken="One two three"))
    session.end("cancelled")
    assert [type(event).__name__ async for event in speech] == ["Cancelled", "End"]
    await session.next()
    assert await session.next() == Cancel(gen=0)
    assert session.heard.empty()


async def test_a_cancel_names_the_generation_it_means(stage: Stage) -> None:
    speech, session = await stage.open()
    await speech.cancel(keep=True, gen=0)
    await speech.cancel(keep=True, gen=0)
    assert speech.gen == 1
    await speech.cancel(keep=True, gen=1)
    assert [await session.next(), await session.next()] == [Cancel(gen=0, keep=True), Cancel(gen=1, keep=True)]
    await stage.settle()
    assert session.heard.empty()


async def test_leaving_the_block_cancels_what_still_speaks(stage: Stage) -> None:
    speech, session = await stage.open()
    with pytest.raises(ZeroDivisionError):
        async with speech:
            raise ZeroDivisionError
    assert await session.next() == Cancel(gen=0)
    speech, session = await stage.open()
    async with speech:
        session.end()
        assert [type(event).__name__ async for event in speech] == ["End"]
    await stage.settle()
    assert session.heard.empty()
