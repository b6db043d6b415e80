"""Workers die, freeze and leave in the middle of a sentence; their sessions go on at others, to the byte."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client

from tests.integration.aborting_worker import SEED
from tests.integration.fleet import ABORTING, Fleet, ask_again, fleet, heard_once
from tests.integration.live import PATIENCE_S, Session
from worker.client import Client as OwnClient
from worker.client import Moved, TimedAudio
from worker.connection import BusOptions
from worker.embedded import EmbeddedServer
from worker.wire.requests import Open

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "We looked at the old map together, and then we walked down to the river."
SPOKEN = {"text": TEXT, "final": True, "seed": 5}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with EmbeddedServer(store_dir=Path(tmp_path_factory.mktemp("journal"))) as server, fleet(server.url) as one:
        await one.start("alpha", "beta", "gamma")
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def client(workers: Fleet) -> AsyncIterator[Client]:
    one = await nats.connect(workers.url)
    yield one
    await one.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def undisturbed(workers: Fleet) -> bytes:
    client = await nats.connect(workers.url)
    session = await Session(client).open({**SPOKEN, "pace": "fast"})
    assert (await session.to_end())["reason"] == "finished"
    await client.close()
    return session.pcm


async def begun(client: Client, name: str, frames: int = 8, **options: object) -> Session:
    session = await Session(client).open({**SPOKEN, "session": name, "resume": True, **options})
    for _ in range(frames):
        await session.until("audio")
    return session


async def test_a_killed_worker(workers: Fleet, undisturbed: bytes) -> None:
    """The client notices, and has another take the session over."""
    async with await OwnClient.connect(BusOptions((workers.url,))) as client:
        speech = await client.open(Open(text=TEXT, final=True, seed=5, resume=True), timeout_s=PATIENCE_S)
        first = speech.ready
        heard: list[TimedAudio] = []
        moved: list[Moved] = []
        async for event in speech:
            if isinstance(event, TimedAudio):
                heard.append(event)
                if len(heard) == 8:
                    await workers.kill(first.worker)
            elif isinstance(event, Moved):
                moved.append(event)
    assert b"".join(event.payload for event in heard) == undisturbed
    assert {event.gen for event in heard} == {0, 1}
    assert [(event.worker, event.exact) for event in moved] == [(speech.ready.worker, True)]
    assert (speech.ready.gen, speech.ready.since_gen, speech.ready.text_seq) == (1, 0, 0)
    assert speech.ready.worker != first.worker
    assert speech.ready.input != first.input
    assert speech.end is not None
    assert (speech.end.reason, speech.end.usage.characters) == ("finished", len(TEXT))
    assert speech.end.usage.audio_ms == len(undisturbed) / 48


async def test_a_frozen_worker_says_nothing_when_it_wakes(workers: Fleet, client: Client, undisturbed: bytes) -> None:
    session = await begun(client, "frozen-in-the-middle")
    old = session.ready["worker"]
    workers.signal(old, signal.SIGSTOP)
    await ask_again(client, session, "frozen-in-the-middle")
    await asyncio.sleep(3.0)  # longer than a worker trusts what it knows
    workers.signal(old, signal.SIGCONT)
    assert (await session.to_end())["reason"] == "finished"
    generations = [event.number("Tts-Gen") for event in session.audio]
    assert generations == sorted(generations)
    assert heard_once(session) == undisturbed
    assert session.count("end") == 1


async def test_a_worker_that_leaves_hands_over(workers: Fleet, client: Client, undisturbed: bytes) -> None:
    """And does not wait for the end of what it was saying; nobody asks for it."""
    session = await begun(client, "left-in-the-middle")
    old = session.ready["worker"]
    workers.signal(old, signal.SIGTERM)
    ready = (await session.until("ready")).fields
    assert ready["worker"] in set(workers.living()) - {old}
    assert await workers.gone(old) == 0
    assert session.count("end") == 0
    assert (await session.to_end())["reason"] == "finished"
    assert heard_once(session) == undisturbed


@pytest.mark.long
async def test_a_text_that_kills_workers_stops(workers: Fleet, client: Client) -> None:
    for name in workers.living():
        await workers.kill(name)
    names = [f"doomed{index}" for index in range(4)]
    await workers.start(*names, command=ABORTING)
    session = await begun(client, "kills-its-workers-all", frames=2, seed=SEED)
    for takeovers in (1, 2):
        assert await workers.gone(session.ready["worker"]) == -signal.SIGABRT
        ready = (await ask_again(client, session, "kills-its-workers-all")).fields
        assert ready["gen"] == takeovers
    assert await workers.gone(session.ready["worker"]) == -signal.SIGABRT
    error = await ask_again(client, session, "kills-its-workers-all")
    assert (error.fields["code"], error.fields["retryable"]) == ("model_failure", False)
    assert (await session.to_end())["reason"] == "failed"
    assert len(workers.living()) == 1
    assert (await ask_again(client, session, "kills-its-workers-all")).fields["code"] == "no_session"
