"""``antiphon serve`` as a process: two-stage SIGTERM, probes, and what its sessions see when it is killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError, TimeoutError

from tests.integration.live import PATIENCE_S, OpenRefused, Session, eventually, house, live_settings
from worker.embedded import EmbeddedServer
from worker.sections import NatsSettings, WorkerSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "We looked at the old map together, and then we walked down to the river."
FLAGS = (
    "--announce",
    "--nats.embedded",
    "off",
    "--probes.port",
    "0",
    "--model.slots",
    "4",
    "--scheduler.headroom",
    "1",
)


@dataclass
class Worker:
    """A child process with its probes, and a client of its server."""

    process: asyncio.subprocess.Process
    client: Client
    probes: str

    async def session(self, text: str) -> Session:
        session = Session(self.client)
        await session.open({"text": text, "final": True})
        await session.until("audio")
        return session

    async def probe(self, name: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as http, http.get(f"{self.probes}/{name}") as answer:
            return answer.status, await answer.text()

    async def unready(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await self.probe("readyz"))[0] == 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def hears(self, subject: str) -> bool:
        """Whether anybody does; the server takes a moment to notice that a connection is gone."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await self.client.request(subject, b" and more", timeout=0.5)
                except NoRespondersError:
                    return False
                except TimeoutError:
                    continue
                return True

    async def gone(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()


@asynccontextmanager
async def serving(server: EmbeddedServer) -> AsyncIterator[Worker]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "worker.cli.main", "serve", "--nats.url", server.url, *FLAGS, stdout=pipe, stderr=pipe
    )
    assert process.stdout is not None
    assert process.stderr is not None
    client = await nats.connect(server.url)
    try:
        async with asyncio.timeout(PATIENCE_S):
            word, url, port = (await process.stdout.readline()).decode().split()
        assert (word, url) == ("ready", server.url)
        yield Worker(process, client, f"http://127.0.0.1:{port}")
    finally:
        await client.close()
        if process.returncode is None:
            process.kill()
        out, err = await process.communicate()
        assert out == b"", "stdout is for the announcement alone"
        assert b"Traceback" not in err, err.decode()


async def test_sigterm_lets_live_sessions_finish_and_takes_no_new_ones(server: EmbeddedServer) -> None:
    async with serving(server) as worker:
        assert await worker.probe("livez") == (200, '{"status": "ok"}')
        assert await worker.probe("readyz") == (200, '{"status": "ok"}')
        status, metrics = await worker.probe("metrics")
        assert status == 200
        assert 'tts_slots{pool="std"} 4.0' in metrics
        assert (await worker.probe("nothing"))[0] == 404
        session = await worker.session(TEXT)

        worker.process.send_signal(signal.SIGTERM)
        await worker.unready()
        assert await worker.probe("readyz") == (503, '{"status": "failing", "failed": ["draining"]}')
        assert (await worker.probe("livez"))[0] == 200
        assert 'tts_sessions_active{pool="std"} 1.0' in (await worker.probe("metrics"))[1]
        with pytest.raises(OpenRefused, match=r"503|no_capacity"):
            await Session(worker.client).open({"text": "One more.", "final": True})
        assert session.count("end") == 0, "it was live all the while"

        end = await session.to_end()
        assert (end["reason"], end["usage"]["characters"]) == ("finished", len(TEXT))
        session.sample_count()
        assert await worker.gone() == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_them_now(server: EmbeddedServer, second: signal.Signals) -> None:
    async with serving(server) as worker:
        session = await worker.session(TEXT * 20)
        worker.process.send_signal(signal.SIGTERM)
        await worker.unready()
        worker.process.send_signal(second)
        end = await session.to_end()
        assert end["reason"] == "shutdown"
        assert end["usage"]["audio_ms"] < 60_000
        assert await worker.gone() == 0
        assert session.events[-1].kind == "end"


async def test_a_killed_worker_shows_as_503_to_its_producers(server: EmbeddedServer) -> None:
    async with serving(server) as worker:
        session = await worker.session(TEXT)
        worker.process.kill()
        await worker.gone()
        assert not await worker.hears(session.ready["input"])
        assert session.count("end") == 0
        with pytest.raises(OpenRefused, match="503"):
            await Session(worker.client).open({"text": "Anybody?", "final": True})


async def test_the_grace_of_a_drain_has_an_end() -> None:
    async with house(live_settings(worker=WorkerSettings(drain_grace_s=0.1))) as home:
        endless = await home.session({})
        await home.service.drain()
        end = await endless.to_end()
        assert end["reason"] == "shutdown"
        assert home.service.desk.draining


async def test_a_worker_that_leaves_ends_its_sessions() -> None:
    """Also without any signal: the block is left."""
    async with EmbeddedServer() as server:
        client = await nats.connect(server.url)
        async with house(live_settings(nats=NatsSettings(url=(server.url,), embedded="off"))) as home:
            session = Session(client)
            await session.open({"text": TEXT})
            await eventually(lambda: home.service.desk.sessions == 1)
        assert (await session.to_end())["reason"] == "shutdown"
        with pytest.raises(NoRespondersError):
            await client.request("tts.v1.default.info.std", b"", timeout=10)
        await client.close()
