"""A nats-server and a real worker of the benchmark's own, each a process, as a user would run them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NoReturn, Self, TypeVar

from worker.bus import Bus
from worker.connection import BusOptions
from worker.embedded import EmbeddedServer
from worker.errors import NoResponders, RequestTimeout, WorkerError
from worker.layers import PREFIX
from worker.measure.control import child_environment
from worker.sections import Settings
from worker.wire.subjects import pool_subject

T = TypeVar("T")

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 15.0
POLL_S = 0.05
TENANT = "default"
PASSED_ON = ("worker", "model", "scheduler", "telemetry")

# Linux tells a process when its parent has died, if it asks: a benchmark that is killed leaves no worker behind.
LAUNCH = """\
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
from worker.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


class StackFailed(WorkerError):
    """The benchmark's worker did not come up, or did not last."""


class OwnStack:
    """Entered when the worker answers. The worker has this command's model, scheduler, worker and telemetry settings,
    and no other source of settings."""

    def __init__(self, settings: Settings, log: Path | None = None) -> None:
        """``log``: file for what the worker says; None: a temporary one, shown if it fails."""
        self._settings, self._log = settings, log
        self._server = EmbeddedServer()
        self._folder: Path | None = None
        self._worker: Process | None = None

    @property
    def bus(self) -> BusOptions:
        return BusOptions(servers=(self._server.url,), name="antiphon-bench")

    @property
    def worker_pid(self) -> int:
        assert self._worker is not None
        return self._worker.pid

    @property
    def server_pid(self) -> int:
        assert self._server.pid is not None
        return self._server.pid

    async def __aenter__(self) -> Self:
        try:
            await self._server.start()
            await self._start_worker()
            await self._await_worker()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def while_it_runs(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` gives. Raises StackFailed if the worker ends meanwhile, which it should not."""
        assert self._worker is not None
        return await while_alive(self._worker, self._last_words, work)

    async def _start_worker(self) -> None:
        config, log = await asyncio.to_thread(self._prepare)
        with log:
            self._worker = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-c", LAUNCH, str(os.getpid()), "serve", "--config", str(config)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={name: value for name, value in child_environment().items() if not name.startswith(PREFIX)},
                start_new_session=True,  # Ctrl-C is for the benchmark, which then stops its worker
            )

    def _prepare(self) -> tuple[Path, BinaryIO]:
        """The worker's configuration, and its open log."""
        self._folder = Path(tempfile.mkdtemp(prefix="antiphon-bench-"))
        config = self._folder / "worker.toml"
        config.write_text("\n".join(configuration(self._settings, self._server.url)), encoding="utf-8")
        self._log = self._log or self._folder / "worker.log"
        return config, self._log.open("wb")

    async def _await_worker(self) -> None:
        assert self._worker is not None
        bus = await Bus.connect(self.bus)
        subject = pool_subject("info", TENANT, self._settings.worker.pool)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while self._worker.returncode is None:
                    with contextlib.suppress(NoResponders, RequestTimeout):
                        await bus.request(subject)
                        return
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise StackFailed(f"the worker does not answer within {START_TIMEOUT_S:g} s") from None
        finally:
            await bus.close()
        await _death(self._worker, self._last_words)

    async def _stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None and worker.returncode is None:
            worker.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(worker.wait(), STOP_TIMEOUT_S)
        if worker is not None and worker.returncode is None:
            worker.kill()
            await worker.wait()
        await self._server.stop()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def _last_words(self) -> str:
        assert self._log is not None
        lines = self._log.read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "no word from it")


async def while_alive(process: Process, last_words: Callable[[], str], work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` gives. Raises StackFailed if the process ends before, and cancels the work."""
    working, ended = asyncio.ensure_future(work), asyncio.ensure_future(_death(process, last_words))
    try:
        await asyncio.wait({working, ended}, return_when=asyncio.FIRST_COMPLETED)
        return await (working if working.done() else ended)
    finally:
        for task in (working, ended):
            task.cancel()
        await asyncio.gather(working, ended, return_exceptions=True)


async def _death(process: Process, last_words: Callable[[], str]) -> NoReturn:
    code = await process.wait()
    raise StackFailed(f"the worker ended with status {code}: {await asyncio.to_thread(last_words)}")


def configuration(settings: Settings, url: str) -> Iterator[str]:
    """The worker's TOML file: what was set for this command, by whatever layer, on the given server."""
    yield from ("[nats]", f"url = {json.dumps(url)}", 'embedded = "off"', "[probes]", 'port = "off"')
    for name in PASSED_ON:
        section = getattr(settings, name)
        yield f"[{name}]"
        values = section.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        yield from (f"{field} = {json.dumps(value)}" for field, value in values.items())
        if name == "worker" and "drain_grace_s" not in values:
            yield "drain_grace_s = 1.0"
