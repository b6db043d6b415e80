"""What the network, the worker or the server does to a session, and how the client takes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.client_stage import MakeStage, Stage, read
from tests.integration.conftest import MakeBus, MakeServer
from tests.integration.mailbox import until
from tests.integration.scripted_worker import ScriptedWorker
from worker.client import Client, Patience, SpeechEvent, WorkerGone
from worker.connection import BusOptions
from worker.embedded import EmbeddedServer
from worker.errors import WireError
from worker.wire.events import Cancelled, Error, NeedText, Pulse
from worker.wire.requests import Cancel, Credit, Finish, Open, Ping, Text

BY_HAND = Patience(silence_s=3000.0, unheard_s=60.0, tick_s=1000.0, ping_s=1000.0)
"""Ticks come from the test alone; three of them may pass in silence."""
PATIENT = Patience(silence_s=60.0, unheard_s=60.0, retry_s=0.02, refused_s=0.02)


@pytest_asyncio.fixture
async def make_stage(server: EmbeddedServer, make_bus: MakeBus, pool: str) -> AsyncIterator[MakeStage]:
    clients: list[Client] = []

    async def make(patience: Patience = PATIENT, url: str | None = None) -> Stage:
        worker = await ScriptedWorker.start(await make_bus(url), pool)
        options = BusOptions((url or server.url,), reconnect_wait_s=0.02)
        clients.append(await Client.connect(options, pool=pool, patience=patience))
        return Stage(clients[-1], worker)

    yield make
    for client in clients:
        await client.close()


def gap(**detail: int) -> Error:
    return Error(code="text_gap", message="lost", retryable=True, detail={**detail})


async def test_lost_text_is_said_again_from_where_the_worker_misses_it(make_stage: MakeStage) -> None:
    stage = await make_stage()
    speech, session = await stage.open()
    for text in "abc":
        await speech.send(text)
    await speech.finish()
    for _ in range(4):
        await session.next()
    session.event(gap(expected=1))
    assert [await session.next() for _ in range(3)] == [
        Text(seq=1, text="b", gen=0),
        Text(seq=2, text="c", gen=0),
        Finish(seq=3, gen=0),
    ]
    session.end()
    assert [type(event).__name__ async for event in speech] == ["End"], "the gap was nobody else's business"


async def test_a_lost_cancel_is_said_again_before_what_follows_it(make_stage: MakeStage) -> None:
    stage = await make_stage()
    speech, session = await stage.open()
    await speech.send("old")
    await speech.cancel(keep=True)
    await speech.send("new")
    for _ in range(3):
        await session.next()
    session.event(gap(expected=0))  # on its way before the cancel, and about text that is void
    session.event(gap(gen=0))
    assert [await session.next(), await session.next()] == [Cancel(gen=0, keep=True), Text(seq=0, text="new", gen=1)]
    session.event(Cancelled(gen=1, spoken="", unspoken="old"))
    session.event(gap(expected=0))
    assert await session.next() == Text(seq=0, text="new", gen=1)


async def test_a_burst_of_gaps_is_answered_once(make_stage: MakeStage) -> None:
    stage = await make_stage()
    speech, session = await stage.open()
    await speech.send("a")
    await session.next()
    for _ in range(20):
        session.event(gap(expected=0))
    await session.next()
    await stage.settle()
    assert session.heard.empty()


async def test_text_that_is_gone_here_ends_the_session(make_stage: MakeStage) -> None:
    stage = await make_stage()
    speech, session = await stage.open()
    await speech.send("a")
    await speech.send("b")
    session.event(NeedText(text_seq=2))
    session.event(gap(expected=0))
    with pytest.raises(WireError, match="text_gap"):
        await read(speech.audio(), [])
    assert [await session.next() for _ in range(3)][-1] == Cancel()


async def test_what_nobody_received_is_said_again_until_somebody_does(make_stage: MakeStage) -> None:
    stage = await make_stage()
    speech, session = await stage.open()
    await stage.worker.stop_listening()
    await speech.send("a")
    await speech.credit(80.0)
    await speech.cancel(keep=True)
    await speech.send("b")
    await stage.settle()
    assert session.heard.empty()
    stage.worker.listen()
    said = [await session.next() for _ in range(3)]
    assert said == [Credit(ms=80.0), Cancel(gen=0, keep=True), Text(seq=0, text="b", gen=1)]
    session.event(Cancelled(gen=1, spoken="", unspoken="a"))
    session.event(Pulse(text_seq=1))
    session.end()
    assert [type(event).__name__ async for event in speech] == ["Cancelled", "Pulse", "End"]


async def test_a_worker_that_nobody_hears_any_more_is_gone(make_stage: MakeStage) -> None:
    stage = await make_stage(Patience(unheard_s=0.1, retry_s=0.02))
    speech, session = await stage.open()
    session.audio()
    await stage.worker.stop_listening()
    await speech.send("a")
    events: list[SpeechEvent] = []
    with pytest.raises(WorkerGone, match="nobody receives"):
        await read(speech, events)
    assert [type(event).__name__ for event in events] == ["TimedAudio"], "what had arrived is given out first"
    with pytest.raises(WorkerGone):
        await speech.send("b")


async def test_a_worker_that_falls_silent_while_audio_is_due_is_gone(make_stage: MakeStage) -> None:
    stage = await make_stage(BY_HAND)
    speech, session = await stage.open()
    await speech.send("a")
    for _ in range(3):
        speech.tick()
    session.event(Pulse(text_seq=1))
    await anext(speech)
    for _ in range(3):
        speech.tick()
    assert not speech.over, "it has let itself be heard in between"
    speech.tick()
    with pytest.raises(WorkerGone, match=r"nothing heard for 3000 s$"):
        await anext(speech)


async def test_a_worker_that_comes_back_after_it_was_given_up_is_told_to_stop(make_stage: MakeStage) -> None:
    stage = await make_stage(BY_HAND)
    speech, session = await stage.open(request=Open(text="", final=True))
    for _ in range(4):
        speech.tick()
    with pytest.raises(WorkerGone):
        await anext(speech)
    for _ in range(2):
        session.event(Pulse(text_seq=0))
        session.audio()
    assert await session.next() == Cancel()
    session.end("cancelled")
    await stage.settle()
    assert session.heard.empty(), "once is enough"


async def test_a_final_open_is_due_until_its_end(make_stage: MakeStage) -> None:
    stage = await make_stage(BY_HAND)
    speech, _ = await stage.open(request=Open(text="", final=True))
    for _ in range(4):
        speech.tick()
    assert speech.over


async def test_silence_is_fine_while_nothing_is_due(make_stage: MakeStage) -> None:
    stage = await make_stage(BY_HAND)
    speech, session = await stage.open()
    await speech.send("a")
    session.event(NeedText(text_seq=1))
    await anext(speech)
    for _ in range(10):
        speech.tick()
    assert not speech.over


async def test_pings_find_a_dead_worker_when_nothing_is_due(make_stage: MakeStage) -> None:
    stage = await make_stage(BY_HAND)
    speech, session = await stage.open(pings=True)
    for _ in range(4):
        speech.tick()
    assert await session.next() == Ping()
    with pytest.raises(WorkerGone):
        await anext(speech)


async def test_ticks_come_by_themselves(make_stage: MakeStage) -> None:
    stage = await make_stage(Patience(silence_s=0.05, tick_s=0.01))
    speech, _ = await stage.open()
    await speech.finish()
    with pytest.raises(WorkerGone):
        await anext(speech)


async def test_what_stays_unconfirmed_over_two_pulses_is_said_again(make_stage: MakeStage) -> None:
    stage = await make_stage()
    speech, session = await stage.open()
    await speech.send("a")
    await speech.send("b")
    await speech.finish()
    for _ in range(3):
        await session.next()
    session.event(Pulse(text_seq=1))
    await stage.settle()
    assert session.heard.empty(), "the first may have crossed it"
    session.event(Pulse(text_seq=1))
    assert [await session.next(), await session.next()] == [Text(seq=1, text="b", gen=0), Finish(seq=2, gen=0)]
    session.event(Pulse(text_seq=2))
    session.event(Pulse(text_seq=2))
    assert await session.next() == Finish(seq=2, gen=0)
    session.audio()
    session.event(Pulse(text_seq=2))
    await stage.settle()
    assert session.heard.empty(), "audio in between: it is at work"


async def test_text_without_room_is_said_again_later(make_stage: MakeStage) -> None:
    stage = await make_stage()
    speech, session = await stage.open()
    await speech.send("a")
    await speech.send("b")
    await session.next()
    await session.next()
    session.event(Error(code="too_large", message="full", retryable=True))
    session.event(gap(expected=0))
    await until(lambda: speech._line._refused)
    sending = asyncio.ensure_future(speech.send("c"))
    said = [await session.next() for _ in range(3)]
    assert said == [Text(seq=seq, text=text, gen=0) for seq, text in enumerate("abc")]
    await sending


async def test_text_that_never_fits_ends_the_session(make_stage: MakeStage) -> None:
    stage = await make_stage()
    speech, session = await stage.open()
    await speech.send("a")
    session.event(NeedText(text_seq=0))
    for _ in range(6):
        assert await session.next() == Text(seq=0, text="a", gen=0)
        assert not speech.over, "it may still find room"
        session.event(Error(code="too_large", message="full", retryable=True))
    with pytest.raises(WireError, match="too_large"):
        await read(speech.audio(), [])
    assert await session.next() == Cancel()


async def test_a_session_that_the_worker_does_not_know_is_over(make_stage: MakeStage) -> None:
    stage = await make_stage()
    speech, session = await stage.open()
    session.event(Error(code="no_session", message="no such session", retryable=False))
    with pytest.raises(WireError, match="no_session"):
        await anext(speech)


async def test_a_session_survives_the_restart_of_the_server(make_stage: MakeStage, make_server: MakeServer) -> None:
    server = await make_server()
    stage = await make_stage(url=server.url)
    speech, session = await stage.open()
    await speech.send("before")
    assert await session.next() == Text(seq=0, text="before", gen=0)
    await server.stop(kill=True)
    await until(lambda: not stage.client._bus.connected)
    await speech.send("meanwhile")
    await speech.credit(80.0)
    await speech.finish()
    await server.start()
    await until(lambda: stage.client._bus.connected and stage.worker.bus.connected)
    said = []
    while Finish(seq=2, gen=0) not in said:
        said.append(await session.next())
    assert Text(seq=1, text="meanwhile", gen=0) in said
    assert said.count(Credit(ms=80.0)) == 1
    session.audio()
    session.end()
    assert [type(event).__name__ async for event in speech] == ["TimedAudio", "End"]


async def test_a_connection_that_stays_away_is_named(make_stage: MakeStage, make_server: MakeServer) -> None:
    server = await make_server()
    stage = await make_stage(BY_HAND, url=server.url)
    speech, _ = await stage.open()
    await speech.finish()
    await server.stop(kill=True)
    await until(lambda: not stage.client._bus.connected)
    for _ in range(4):
        speech.tick()
    with pytest.raises(WorkerGone, match="the connection to NATS is lost"):
        await anext(speech)
