"""``antiphon listen``: hear a session that is being spoken, beside those who hear it already."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from pydantic import Field
from pydantic_settings import CliPositionalArg, CliToggleFlag

from worker import logs
from worker.cli.command import Command, CommandError
from worker.cli.sink import Sink, file_sink, stdout_sink
from worker.client import Client
from worker.client_listener import Listening
from worker.wire.events import Ready

STDOUT = "-"


class Listen(Command):
    """Hear SESSION, which was opened with `fanout`, from now to its end, beside its other listeners.

    What is heard goes to --out FILE, or to standard output: a session in pcm_s16le as WAV (with --raw as bare samples),
    one in another format as it is, an Ogg or WAV stream with its header even if we come late.
    """

    session: CliPositionalArg[str] = Field(description="its name")
    out: str | None = Field(default=None, description="where it goes; - is standard output (default)")
    raw: CliToggleFlag[bool] = Field(default=False, description="samples without a header, for programs")
    wait: float = Field(default=10.0, gt=0.0, description="seconds to wait for the session")
    tenant: str = Field(default="default", description="whose session it is")

    async def cli_cmd(self) -> None:
        from worker.service import bus_options

        logs.configure(self.telemetry)
        if self.out in (None, STDOUT) and sys.stdout.isatty():
            raise CommandError("standard output is a terminal: send it through a pipe, or name a file with --out")
        client = await Client.connect(bus_options(self.nats), tenant=self.tenant, pool=self.worker.pool)
        async with client, await client.listen(self.session) as listening:
            ready = await self._begun(listening)
            async with self._sink(ready) as sink:
                async for data in listening.stream():
                    await sink.write(data)

    async def _begun(self, listening: Listening) -> Ready:
        try:
            async with asyncio.timeout(self.wait):
                return await listening.begun()
        except TimeoutError:
            raise CommandError(
                f"nothing is heard of a session of this name after {self.wait:g} s; "
                "it may be over, or have been opened without fanout"
            ) from None

    def _sink(self, ready: Ready) -> AbstractAsyncContextManager[Sink]:
        raw = self.raw or ready.format.encoding != "pcm_s16le"
        rate = ready.format.sample_rate
        if self.out in (None, STDOUT):
            return stdout_sink(rate, raw=raw)
        return file_sink(Path(self.out or "").expanduser(), rate, raw=raw)
