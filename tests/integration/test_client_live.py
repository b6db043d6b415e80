"""The client against the real worker; a fake model says as many frames as there are words, and the same ones again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from engine.fake import FakeEngine
from tests.integration.conftest import MakeServer
from tests.integration.live import House, house, live_settings
from tests.integration.mailbox import until
from worker.client import Client, Gap, Patience, Speech, SpeechEvent, TimedAudio
from worker.connection import BusOptions
from worker.errors import WireError
from worker.sections import NatsSettings, WorkerSettings
from worker.wire.events import Cancelled, End, Flushed, NeedText, Pulse
from worker.wire.requests import Cancel, Open

LONG_S = 10.0
TEXT = "One two three four five six seven eight nine ten eleven twelve."


@asynccontextmanager
async def at_home(**sections: Any) -> AsyncIterator[tuple[House, Client]]:
    async with house(live_settings(**sections), load=FakeEngine) as home:
        options = BusOptions((home.url,), reconnect_wait_s=0.02)
        async with await Client.connect(options, pool=home.pool, patience=Patience(refused_s=0.02)) as client:
            yield home, client


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Client]:
    async with at_home() as (_, client):
        yield client


async def fast(client: Client, **options: Any) -> Speech:
    return await client.open(Open(seed=1, pace="fast", **options), timeout_s=LONG_S)


async def pcm(speech: Speech) -> bytes:
    return b"".join([audio.payload async for audio in speech.audio()])


async def whole(client: Client, text: str) -> bytes:
    return await pcm(await fast(client, text=text, final=True))


def names(events: list[SpeechEvent]) -> list[str]:
    """Runs of the same kind once; without what depends on who is quicker, the model or the text."""
    kinds = [type(event).__name__ for event in events if not isinstance(event, Pulse | NeedText)]
    return [kind for index, kind in enumerate(kinds) if index == 0 or kinds[index - 1] != kind]


async def test_deltas_are_spoken_like_the_whole_text(client: Client) -> None:
    speech = await fast(client)
    for letter in TEXT:
        await speech.send(letter)
    await speech.finish()
    assert await pcm(speech) == await whole(client, TEXT)
    assert speech.usage is not None
    assert (speech.usage.characters, speech.usage.words) == (len(TEXT), 12)


async def test_lost_text_and_a_lost_cancel_are_mended(client: Client) -> None:
    speech = await fast(client)
    await speech.send("One two ")
    speech._outbox.text("three four ")  # said, but it never leaves
    await speech.send("five six seven ")
    speech._outbox.text(TEXT[34:])
    await speech.finish()
    assert await pcm(speech) == await whole(client, TEXT)

    speech = await fast(client)
    await speech.send("One two three ")
    speech._outbox.cancel(None, keep=True)
    speech._inlet.begin(1)
    await speech.send("Four five six.")
    await speech.finish()
    events = [event async for event in speech]
    assert names(events) == ["Cancelled", "TimedAudio", "End"]
    assert {event.gen for event in events if isinstance(event, TimedAudio)} == {1}


async def test_saying_everything_twice_changes_nothing(client: Client) -> None:
    speech = await fast(client)
    await speech.send("One two three ")
    await speech.flush()
    speech.online()
    await until(lambda: speech._line._timer is None)
    await speech.send(TEXT[14:])
    await speech.finish()
    speech.online()
    events = [event async for event in speech]
    assert sum(isinstance(event, Flushed) for event in events) == 1
    end = events[-1]
    assert isinstance(end, End)
    assert (end.reason, end.usage.words) == ("finished", 12)


async def test_a_stall_a_flush_and_a_barge_in(client: Client) -> None:
    speech = await fast(client)
    await speech.send("One two three ")
    assert isinstance(await past_audio(speech), NeedText)
    await speech.flush()
    flushed = await past_audio(speech)
    assert isinstance(flushed, Flushed)
    assert flushed.text_seq == 1
    await speech.send("four five six ")
    assert isinstance(await past_audio(speech), NeedText)
    await speech.cancel(keep=True)
    await speech.send("Seven eight.")
    await speech.finish()
    cancelled = await past_audio(speech)
    assert isinstance(cancelled, Cancelled)
    assert cancelled.gen == 1
    assert cancelled.spoken + cancelled.unspoken == "One two three four five six "
    rest = [event async for event in speech]
    assert {event.gen for event in rest if isinstance(event, TimedAudio)} == {1}
    assert isinstance(rest[-1], End)


async def past_audio(speech: Speech) -> SpeechEvent:
    return await anext(event async for event in speech if not isinstance(event, TimedAudio | Pulse))


async def test_text_beyond_the_worker_s_room_waits_for_it() -> None:
    async with at_home(worker=WorkerSettings(text_chars=10, buffer_chars=32)) as (_, client):
        speech = await fast(client)
        await speech.send(TEXT * 3)
        await speech.finish()
        heard = await pcm(speech)
        assert speech.usage is not None
        assert (speech.usage.characters, speech.usage.words) == (3 * len(TEXT), 36)
    assert heard


async def test_credit_paces_the_worker(client: Client) -> None:
    speech = await fast(client, text=TEXT, final=True, credit_ms=400)
    heard = []
    async for audio in speech.audio():
        heard.append(audio.payload)
        if len(heard) % 5 == 0:
            await speech.credit(400)
    assert b"".join(heard) == await whole(client, TEXT)


async def test_pings_keep_company_without_disturbing(client: Client) -> None:
    speech = await client.open(Open(seed=1), timeout_s=LONG_S, pings=True)
    assert isinstance(await anext(speech), Pulse)
    await speech.send("One two.")
    await speech.finish()
    assert names([event async for event in speech]) == ["TimedAudio", "End"]


async def test_a_session_that_the_worker_has_forgotten_is_over_at_the_next_word(client: Client) -> None:
    speech = await fast(client)
    speech._line.say(Cancel())
    client._speeches, known = {}, client._speeches  # deaf while the worker says its last words
    await client._bus.barrier()
    await anext(event async for event in await fast(client, text="One.", final=True) if isinstance(event, End))
    client._speeches = known
    await speech.send("late")
    with pytest.raises(WireError, match="no_session"):
        await past_audio(speech)


async def test_a_session_survives_the_restart_of_the_server(make_server: MakeServer) -> None:
    server = await make_server()
    async with at_home(nats=NatsSettings(url=(server.url,))) as (home, client):
        speech = await fast(client)
        await speech.send("One two three ")
        assert isinstance(await past_audio(speech), NeedText)
        await server.stop(kill=True)
        await until(lambda: not client._bus.connected and not home.service.bus.connected)
        await speech.send(TEXT[14:])
        await speech.finish()
        await server.start()
        events = [event async for event in speech]
    assert not any(isinstance(event, Gap) for event in events)
    assert speech.end is not None
    assert (speech.end.reason, speech.end.usage.words) == ("finished", 12)
