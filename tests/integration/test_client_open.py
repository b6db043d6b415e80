from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.conftest import MakeBus
from tests.integration.mailbox import until
from tests.integration.scripted_worker import ScriptedWorker
from worker.bus import Bus, Message
from worker.client import Client, ClientError
from worker.connection import BusOptions
from worker.embedded import EmbeddedServer
from worker.errors import BusUnavailable, NoResponders, RequestTimeout, WireError
from worker.wire.codec import ContentType, encode
from worker.wire.events import End, Error, Info, Limits, ModelCard
from worker.wire.requests import Cancel, Open
from worker.wire.subjects import pool_subject

SHORT_S = 0.05
LONG_S = 10.0


@pytest_asyncio.fixture
async def client(server: EmbeddedServer, pool: str) -> AsyncIterator[Client]:
    async with await Client.connect(BusOptions((server.url,)), pool=pool) as client:
        yield client


@pytest_asyncio.fixture
async def worker(make_bus: MakeBus, pool: str) -> ScriptedWorker:
    return await ScriptedWorker.start(await make_bus(), pool)


async def test_an_open_is_answered_with_everything_settled(client: Client, worker: ScriptedWorker) -> None:
    opening = asyncio.ensure_future(client.open(Open(text="Hello", seed=7), timeout_s=LONG_S))
    session = await worker.session()
    session.ready()
    speech = await opening
    assert session.opening.text == "Hello"
    assert speech.ready.session == session.id
    assert speech.ready.seed == 7
    assert not speech.over
    assert speech.end is None
    assert speech.usage is None


async def test_no_worker_with_room_is_no_capacity_at_once(client: Client) -> None:
    with pytest.raises(WireError) as refused:
        await client.open(Open(), timeout_s=LONG_S)
    assert refused.value.code == "no_capacity"
    assert refused.value.retryable


async def test_a_refusal_is_raised_as_the_worker_said_it(client: Client, worker: ScriptedWorker) -> None:
    opening = asyncio.ensure_future(client.open(Open(voice="nobody"), timeout_s=LONG_S))
    session = await worker.session()
    session.event(Error(code="voice_not_found", message="no", retryable=False, detail={"voices": ["default"]}))
    with pytest.raises(WireError) as refused:
        await opening
    assert refused.value.code == "voice_not_found"
    assert refused.value.detail == {"voices": ["default"]}


async def test_an_unanswered_open_is_repeated_under_a_fresh_session_id(client: Client, worker: ScriptedWorker) -> None:
    opening = asyncio.ensure_future(client.open(Open(), timeout_s=SHORT_S, retries=2))
    sessions = [await worker.session() for _ in range(3)]
    assert len({session.id for session in sessions}) == 3
    with pytest.raises(RequestTimeout):
        await opening


async def test_time_to_first_audio_counts_from_the_first_attempt(client: Client, worker: ScriptedWorker) -> None:
    before = asyncio.get_running_loop().time()
    opening = asyncio.ensure_future(client.open(Open(), timeout_s=0.5, retries=1))
    await worker.session()
    asked_at = asyncio.get_running_loop().time()
    (await worker.session()).ready()
    speech = await opening
    assert before <= speech.opened_at <= asked_at


async def test_a_session_id_of_the_caller_s_is_tried_once(client: Client, worker: ScriptedWorker) -> None:
    with pytest.raises(RequestTimeout):
        await client.open(Open(session="chosen-by-the-caller"), timeout_s=SHORT_S, retries=2)
    assert (await worker.session()).id == "chosen-by-the-caller"
    await worker.bus.barrier()
    assert worker._new.empty()


async def test_a_ghost_that_comes_to_life_is_cancelled(client: Client, worker: ScriptedWorker) -> None:
    with pytest.raises(RequestTimeout):
        await client.open(Open(), timeout_s=SHORT_S, retries=0)
    ghost = await worker.session()
    ghost.ready()
    assert await ghost.next() == Cancel(gen=0)
    ghost.end("cancelled")
    await until(lambda: not client._speeches)


async def test_an_open_that_its_caller_gives_up_is_a_ghost_too(client: Client, worker: ScriptedWorker) -> None:
    opening = asyncio.ensure_future(client.open(Open(), timeout_s=LONG_S))
    ghost = await worker.session()
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    ghost.ready()
    assert await ghost.next() == Cancel(gen=0)


async def test_sessions_share_one_subscription_and_keep_apart(client: Client, worker: ScriptedWorker) -> None:
    openings = [asyncio.ensure_future(client.open(Open(text=str(n)), timeout_s=LONG_S)) for n in range(50)]
    sessions = [await worker.session() for _ in openings]
    before = len(client._bus._subscriptions)
    for session in sessions:
        session.ready()
    for session in reversed(sessions):
        session.audio((session.opening.text or "").encode().zfill(2))
        session.end()
    for number, opening in enumerate(openings):
        speech = await opening
        assert [audio.payload for audio in [audio async for audio in speech.audio()]] == [b"%02d" % number]
    assert len(client._bus._subscriptions) == before
    assert not client._speeches


async def test_another_tenant_is_answered_below_its_own_inbox(
    server: EmbeddedServer, make_bus: MakeBus, pool: str
) -> None:
    worker = await ScriptedWorker.start(await make_bus(), pool, tenant="acme")
    async with await Client.connect(BusOptions((server.url,)), tenant="acme", pool=pool) as client:
        opening = asyncio.ensure_future(client.open(Open(), timeout_s=LONG_S))
        session = await worker.session()
        assert session.reply.startswith("_INBOX_acme.")
        session.ready()
        assert (await opening).ready.input.startswith("tts.v1.acme.in.")


async def test_closing_the_client_cancels_what_is_live_and_tells_its_readers(
    server: EmbeddedServer, worker: ScriptedWorker, pool: str
) -> None:
    client = await Client.connect(BusOptions((server.url,)), pool=pool)
    opening = asyncio.ensure_future(client.open(Open(), timeout_s=LONG_S))
    session = await worker.session()
    session.ready()
    speech = await opening
    reader = asyncio.ensure_future(anext(speech))
    await client.close()
    assert await session.next() == Cancel(gen=0)
    with pytest.raises(ClientError, match="the client was closed"):
        await reader


async def test_closing_the_client_ends_an_open_that_waits(
    server: EmbeddedServer, worker: ScriptedWorker, pool: str
) -> None:
    client = await Client.connect(BusOptions((server.url,)), pool=pool)
    opening = asyncio.ensure_future(client.open(Open(), timeout_s=LONG_S))
    await worker.session()
    await client.close()
    with pytest.raises(ClientError, match="the client was closed"):
        await opening


async def test_no_server_is_named(unused_tcp_port: int) -> None:
    options = BusOptions((f"nats://127.0.0.1:{unused_tcp_port}",))
    with pytest.raises(BusUnavailable, match=f"127.0.0.1:{unused_tcp_port}"):
        await Client.connect(options, timeout_s=SHORT_S)


@pytest.mark.parametrize(("tenant", "pool"), [("a.b", "std"), ("default", "*")])
async def test_a_tenant_or_pool_that_is_no_token_is_refused(server: EmbeddedServer, tenant: str, pool: str) -> None:
    with pytest.raises(WireError, match="bad_request"):
        await Client.connect(BusOptions((server.url,)), tenant=tenant, pool=pool)


# --- info -------------------------------------------------------------------------------------------------------------

INFO = Info(
    worker="w",
    pool="p",
    engine="0",
    model=ModelCard(name="m", digest="d", sample_rate=24_000, frame_ms=80.0),
    voices=["default"],
    languages=["en"],
    formats={"pcm_s16le": [24_000]},
    options=["seed"],
    limits=Limits(text_chars=1, buffer_chars=1, session_s=1.0, idle_s=1.0),
)


def answer_info(bus: Bus, pool: str, event: Info | Error | End | None) -> None:
    def answer(message: Message) -> None:
        if event is not None:
            packet = encode(event, ContentType.MSGPACK)
            bus.publish(message.reply, packet.payload, headers=packet.headers)

    bus.subscribe(pool_subject("info", "default", pool), answer)


async def test_info_is_what_the_pool_says(client: Client, make_bus: MakeBus, pool: str) -> None:
    bus = await make_bus()
    answer_info(bus, pool, INFO)
    await bus.barrier()
    assert await client.info(LONG_S) == INFO


async def test_info_without_a_worker_is_told_at_once(client: Client) -> None:
    with pytest.raises(NoResponders):
        await client.info(LONG_S)


async def test_info_without_an_answer_times_out(client: Client, make_bus: MakeBus, pool: str) -> None:
    bus = await make_bus()
    answer_info(bus, pool, None)
    await bus.barrier()
    with pytest.raises(RequestTimeout):
        await client.info(SHORT_S)


async def test_a_refused_info_is_raised(client: Client, make_bus: MakeBus, pool: str) -> None:
    bus = await make_bus()
    answer_info(bus, pool, Error(code="forbidden", message="no", retryable=False))
    await bus.barrier()
    with pytest.raises(WireError) as refused:
        await client.info(LONG_S)
    assert refused.value.code == "forbidden"
