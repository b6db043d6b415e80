"""``Client.listen``, ``Client.open`` with fan-out and ``antiphon listen`` beside a scripted worker."""

from __future__ import annotations

import asyncio
import secrets
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.integration.client_stage import read
from tests.integration.conftest import MakeBus
from tests.integration.scripted_worker import FRAME, LIMITS, ScriptedSession, ScriptedWorker
from worker.cli.command import CommandError
from worker.cli.listen import Listen
from worker.client import Client, Gap, Patience, Speech, TimedAudio, WorkerGone
from worker.connection import BusOptions
from worker.embedded import EmbeddedServer
from worker.errors import WireError
from worker.settings import compose
from worker.wire.codec import ContentType, encode
from worker.wire.events import Cancelled, Error, NeedText, Ready
from worker.wire.requests import Open, Text
from worker.wire.subjects import out_subject

PATIENT = Patience(silence_s=60.0, unheard_s=60.0, tick_s=1000.0)
HEADER = b"container"
OPUS = {"encoding": "opus", "sample_rate": 48_000}


def opening(session: str, **options: object) -> Open:
    return Open.model_validate({"session": session, "fanout": True, **options})


class Fanned:
    """A session that a scripted worker speaks on ``out``."""

    def __init__(self, client: Client, worker: ScriptedWorker, name: str) -> None:
        self.client, self.worker, self.name = client, worker, name

    async def open(self, **options: object) -> tuple[asyncio.Task[Speech], ScriptedSession]:
        speech = asyncio.ensure_future(self.client.open(opening(self.name, **options), timeout_s=10.0))
        session = await self.worker.session()
        session.ready(LIMITS)
        session.reply = out_subject("default", self.name)
        self.say_ready(session)
        return speech, session

    def say_ready(self, session: ScriptedSession, text_seq: int = 0) -> None:
        ready = Ready.answering(
            session.opening,
            session=self.name,
            input=f"tts.v1.default.in.{self.worker.name}.{self.name}",
            worker=self.worker.name,
            model="scripted",
            engine="0",
            frame_ms=80.0,
            limits=LIMITS,
            header=HEADER if session.opening.format.encoding == "opus" else b"",
            text_seq=text_seq,
        )
        session.event(ready)


@pytest_asyncio.fixture
async def fanned(server: EmbeddedServer, make_bus: MakeBus, pool: str) -> AsyncIterator[Fanned]:
    worker = await ScriptedWorker.start(await make_bus(), pool)
    client = await Client.connect(BusOptions((server.url,)), pool=pool, patience=PATIENT)
    yield Fanned(client, worker, secrets.token_hex(16))
    await client.close()


async def test_a_producer_hears_his_own_session_on_its_subject(fanned: Fanned) -> None:
    opened, session = await fanned.open()
    async with await opened as speech:
        await speech.send("a")
        assert await session.next() == Text(seq=0, text="a", gen=0)
        fanned.say_ready(session, text_seq=1)
        session.audio()
        session.end()
        events: list[object] = []
        await read(speech, events)
        assert [type(event).__name__ for event in events] == ["TimedAudio", "End"], "ready is no news"
        assert speech._outbox.oldest is None, "but a receipt"
    assert fanned.client._fanned == {}


async def test_an_open_that_is_refused_leaves_nothing(fanned: Fanned) -> None:
    before = len(fanned.client._bus._subscriptions)
    speech = asyncio.ensure_future(fanned.client.open(opening(fanned.name), timeout_s=10.0))
    session = await fanned.worker.session()
    session.event(Error(code="bad_request", message="no", retryable=False))
    with pytest.raises(WireError, match="bad_request"):
        await speech
    assert len(fanned.client._bus._subscriptions) == before


async def test_a_listener_from_the_beginning_hears_everything(fanned: Fanned) -> None:
    async with await fanned.client.listen(fanned.name) as listening:
        _, session = await fanned.open()
        session.event(NeedText(text_seq=0))
        session.audio(HEADER + FRAME)
        session.lose_audio()
        session.audio()
        session.event(Cancelled(gen=1, spoken="", unspoken=""))
        session.audio(gen=1)
        session.end("cancelled")
        ready = await listening.begun()
        assert ready.session == fanned.name
        events: list[object] = []
        await read(listening, events)
        kinds = ["NeedText", "TimedAudio", "Gap", "TimedAudio", "Cancelled", "TimedAudio", "End"]
        assert [type(event).__name__ for event in events] == kinds
        assert events[2] == Gap(1, 1)
        assert listening.header == b"", "it was heard already"
    assert fanned.client._listenings == set()


async def test_a_late_listener_gets_the_header_and_what_is_said_from_now_on(fanned: Fanned) -> None:
    _, session = await fanned.open(format=OPUS)
    session.audio(HEADER + FRAME)
    await fanned.worker.bus.barrier()
    async with await fanned.client.listen(fanned.name) as listening:
        session.audio(b"later")
        fanned.say_ready(session)
        session.audio(b"and on")
        session.end()
        parts: list[bytes] = []
        await read(listening.stream(), parts)
    assert parts == [HEADER + b"later", b"and on"]


async def test_a_listener_who_does_not_read_loses_by_himself(fanned: Fanned) -> None:
    slow = await fanned.client.listen(fanned.name, queue_bytes=2 * len(FRAME))
    good = await fanned.client.listen(fanned.name)
    _, session = await fanned.open()
    for _ in range(5):
        session.audio()
    session.end()
    heard: dict[str, list[object]] = {"slow": [], "good": []}
    await read(good, heard["good"])
    await read(slow, heard["slow"])
    assert [type(event).__name__ for event in heard["good"]] == ["TimedAudio"] * 5 + ["End"]
    assert [event for event in heard["slow"] if isinstance(event, Gap)] == [Gap(2, 3)]


async def test_silence_is_told_from_a_session_that_has_not_begun(fanned: Fanned) -> None:
    async with await fanned.client.listen(fanned.name) as listening:
        for _ in range(5):
            listening.tick()
        _, session = await fanned.open()
        session.audio()
        await listening.begun()
        assert isinstance(await anext(listening), TimedAudio)
        listening.tick()
        with pytest.raises(WorkerGone, match="5 s"):
            await anext(listening)


async def test_a_session_that_may_be_taken_over_is_waited_for_longer(fanned: Fanned) -> None:
    async with await fanned.client.listen(fanned.name) as listening:
        ready = Ready.answering(
            opening(fanned.name, resume=True),
            session=fanned.name,
            input="tts.v1.default.in.x.y",
            worker="x",
            model="m",
            engine="0",
            frame_ms=80.0,
            limits=LIMITS,
        )
        packet = encode(ready, ContentType.MSGPACK)
        fanned.worker.bus.publish(out_subject("default", fanned.name), packet.payload, headers=packet.headers)
        await listening.begun()
        listening._tick_s = 6.0
        for _ in range(3):
            listening.tick()
        with pytest.raises(WorkerGone, match="15 s"):
            await anext(listening)


async def test_what_is_no_name_or_no_event(fanned: Fanned) -> None:
    with pytest.raises(WireError, match="bad_request"):
        await fanned.client.listen("too.short.*")
    async with await fanned.client.listen(fanned.name) as listening:
        fanned.worker.bus.publish(out_subject("default", fanned.name), b"\xff")
        _, session = await fanned.open()
        session.end()
        assert type(await anext(listening)).__name__ == "End"
    waiting = await fanned.client.listen(fanned.name)
    await fanned.client.close()
    with pytest.raises(Exception, match="closed"):
        await waiting.begun()


# --- antiphon listen --------------------------------------------------------------------------------------------------


async def listen(server: EmbeddedServer, *argv: str) -> Listen:
    argv = ("--nats.url", server.url, *argv)
    return (await asyncio.to_thread(compose, Listen, argv, {}, prog="antiphon listen")).settings


async def spoken_late(fanned: Fanned, **options: object) -> ScriptedSession:
    """The beginning is over when anybody else can listen."""
    _, session = await fanned.open(**options)
    session.audio(HEADER + FRAME)
    await fanned.worker.bus.barrier()
    return session


async def told(command: Listen, fanned: Fanned, session: ScriptedSession) -> None:
    """``ready`` again until the command has opened its file; then one more payload, and the end."""
    listening = asyncio.create_task(command.cli_cmd())
    while not await asyncio.to_thread(_begun, Path(command.out or "")):
        fanned.say_ready(session)
        await fanned.worker.bus.barrier()
    session.audio()
    session.end()
    await listening


def _begun(out: Path) -> bool:
    return any(path.name.startswith(f".{out.name}.") for path in out.parent.iterdir())


async def test_the_command_writes_a_wav_from_where_it_came_in(
    server: EmbeddedServer, fanned: Fanned, tmp_path: Path
) -> None:
    session = await spoken_late(fanned)
    out = tmp_path / "late.wav"
    await told(await listen(server, fanned.name, "--out", str(out)), fanned, session)
    with wave.open(str(out)) as file:
        assert file.getframerate() == 24_000
        assert file.readframes(100_000) == FRAME


async def test_the_command_writes_another_format_as_it_is(
    server: EmbeddedServer, fanned: Fanned, tmp_path: Path
) -> None:
    session = await spoken_late(fanned, format=OPUS)
    out = tmp_path / "late.ogg"
    await told(await listen(server, fanned.name, "--out", str(out)), fanned, session)
    assert out.read_bytes() == HEADER + FRAME


async def test_the_command_says_that_it_hears_nothing(server: EmbeddedServer, fanned: Fanned, tmp_path: Path) -> None:
    out = tmp_path / "none.wav"
    with pytest.raises(CommandError, match="without fanout"):
        await (await listen(server, fanned.name, "--out", str(out), "--wait", "0.05")).cli_cmd()
    assert not await asyncio.to_thread(_begun, out)
    assert not await asyncio.to_thread(out.exists)
