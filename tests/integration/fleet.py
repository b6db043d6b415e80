"""Workers as processes on one server with JetStream, to be killed, frozen and drained."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nats.aio.client import Client

from tests.integration.live import PATIENCE_S, Heard, Session

SERVE = (sys.executable, "-m", "worker.cli.main")
FLAGS = ("--announce", "--nats.embedded", "off", "--probes.port", "off", "--scheduler.headroom", "1")
ABORTING = (sys.executable, "-m", "tests.integration.aborting_worker")
"""A worker whose process aborts at a certain word."""


@dataclass
class Fleet:
    url: str
    workers: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    async def start(
        self, *names: str, command: Sequence[str] = SERVE, slots: int = 4, flags: Sequence[str] = ()
    ) -> None:
        """Returns when all of them are ready."""
        for name in names:
            place = ("--nats.url", self.url, "--worker.id", name)
            self.workers[name] = await asyncio.create_subprocess_exec(
                *command,
                "serve",
                *place,
                *FLAGS,
                "--model.slots",
                str(slots),
                *flags,
                stdout=asyncio.subprocess.PIPE,
                cwd=Path(__file__).parents[2],
            )
        async with asyncio.timeout(4 * PATIENCE_S):
            for name in names:
                output = self.workers[name].stdout
                assert output is not None
                assert (await output.readline()).startswith(b"ready"), name

    async def kill(self, name: str) -> None:
        self.workers[name].kill()
        await self.gone(name)

    def signal(self, name: str, number: signal.Signals) -> None:
        self.workers[name].send_signal(number)

    async def gone(self, name: str) -> int:
        async with asyncio.timeout(PATIENCE_S):
            return await self.workers[name].wait()

    def living(self) -> list[str]:
        return [name for name, process in self.workers.items() if process.returncode is None]

    async def close(self) -> None:
        for process in self.workers.values():
            if process.returncode is None:
                os.kill(process.pid, signal.SIGCONT)
                process.kill()
        for process in self.workers.values():
            await process.wait()
            assert process.stdout is not None
            process._transport.close()  # type: ignore[attr-defined]  # or the loop finds it open when it closes


@asynccontextmanager
async def fleet(url: str) -> AsyncIterator[Fleet]:
    one = Fleet(url)
    try:
        yield one
    finally:
        await one.close()


async def ask_again(client: Client, session: Session, session_id: str) -> Heard:
    """What a stock client does when the worker is gone: the same open, without options, answered where the old one was;
    again until some worker has a slot and answers. Returns the new ``ready``, or the error that is for good."""
    body = b'{"session": "%s", "resume": true}' % session_id.encode()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await client.publish(f"tts.v1.{session.tenant}.open.{session.pool}", body, reply=session.inbox)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    answer = await session.until("ready", "status 503", "error")
                if answer.kind == "ready":
                    session.ready = answer.fields
                    return answer
                if answer.kind == "error" and answer.fields["code"] != "no_capacity":
                    return answer
            await asyncio.sleep(0.02)


def heard_once(session: Session) -> bytes:
    """All audio in the order of ``seq``; what came twice was the same twice, and nothing is missing."""
    by_seq: dict[int, Heard] = {}
    for event in session.audio:
        seq = event.number("Tts-Seq")
        first = by_seq.setdefault(seq, event)
        assert first.payload == event.payload, f"number {seq} came with different audio"
        assert first.number("Tts-Pts") == event.number("Tts-Pts")
    assert sorted(by_seq) == list(range(len(by_seq)))
    return b"".join(by_seq[seq].payload for seq in sorted(by_seq))
