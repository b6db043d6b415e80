"""Where a command's audio goes: a WAV or raw file that appears whole or not at all, or a stream.

Every sink is an async context manager; left without an error, what it wrote is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import select
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from worker.wav import WavFile, WavStream, wav_header

STDOUT = 1

T = TypeVar("T")


class Sink(Protocol):
    async def write(self, pcm: bytes) -> None:
        """Whole samples. Waits until they are taken; blocks nothing."""
        ...


@contextlib.asynccontextmanager
async def file_sink(path: Path, rate: int, *, raw: bool) -> AsyncIterator[Sink]:
    """A file; to a pipe or device at ``path`` it streams. ``rate`` in Hz. Raises OSError."""
    if await asyncio.to_thread(_is_special, path):
        opened = _special(path, b"" if raw else wav_header(rate))
    else:
        opened = _off_loop(lambda: _raw_file(path) if raw else WavFile(path, rate))
    async with opened as sink:
        yield sink


@contextlib.asynccontextmanager
async def stdout_sink(rate: int, *, raw: bool) -> AsyncIterator[Sink]:
    """Standard output. A WAV header is entered afterwards where it can be (``> a.wav``), else it leaves sizes open."""
    if raw or not stat.S_ISREG(os.fstat(STDOUT).st_mode):
        yield Stream(STDOUT, b"" if raw else wav_header(rate))
        return
    stream = WavStream(sys.stdout.buffer, rate)
    yield _Threaded(stream.write)
    await asyncio.to_thread(stream.finish)


class _Threaded:
    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    async def write(self, pcm: bytes) -> None:
        await asyncio.to_thread(self._write, pcm)


class _Writer(Protocol):
    def write(self, pcm: bytes, /) -> object: ...


@contextlib.asynccontextmanager
async def _off_loop(make: Callable[[], AbstractContextManager[_Writer]]) -> AsyncIterator[Sink]:
    """A context manager whose every step may block."""
    manager = await asyncio.to_thread(make)
    try:
        writer = await _to_the_end(manager.__enter__)
    except asyncio.CancelledError:
        await _to_the_end(manager.__exit__, *sys.exc_info())
        raise
    try:
        yield _Threaded(writer.write)
    except BaseException:
        await _to_the_end(manager.__exit__, *sys.exc_info())
        raise
    await _to_the_end(manager.__exit__, None, None, None)


async def _to_the_end(call: Callable[..., T], *args: object) -> T:
    """In a thread, and not left before it is done: CancelledError comes after a call that returned."""
    task = asyncio.ensure_future(asyncio.to_thread(call, *args))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


@contextlib.contextmanager
def _raw_file(path: Path) -> Iterator[BinaryIO]:
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.part")
    try:
        out = part.open("xb")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None
    try:
        with out:
            yield out
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


@contextlib.asynccontextmanager
async def _special(path: Path, header: bytes) -> AsyncIterator[Sink]:
    descriptor = await asyncio.to_thread(os.open, path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        yield Stream(descriptor, header)
    finally:
        os.close(descriptor)


class Stream:
    """Bytes to a pipe, terminal or socket, as fast as they are taken; the event loop goes on meanwhile, and nothing
    holds the process up if nobody takes them. The descriptor stays blocking, since it is not ours alone.

    ``header`` goes out with the first samples, so that a failure before any audio leaves nothing.
    """

    def __init__(self, descriptor: int, header: bytes = b"") -> None:
        self._descriptor, self._header = descriptor, header

    async def write(self, pcm: bytes) -> None:
        """Raises BrokenPipeError when nobody reads any more."""
        rest = memoryview(self._header + pcm)
        self._header = b""
        while rest:
            if await self._writable():
                # A pipe that can be written to takes PIPE_BUF bytes without blocking (POSIX).
                written = os.write(self._descriptor, rest[: select.PIPE_BUF])
            else:
                written = await asyncio.to_thread(os.write, self._descriptor, rest)
            rest = rest[written:]

    async def _writable(self) -> bool:
        """False: this cannot be waited for (a file, /dev/null), nor does it ever make anyone wait."""
        loop = asyncio.get_running_loop()
        writable: asyncio.Future[None] = loop.create_future()

        def ready() -> None:
            loop.remove_writer(self._descriptor)
            if not writable.done():
                writable.set_result(None)

        try:
            loop.add_writer(self._descriptor, ready)
        except PermissionError:
            return False
        try:
            await writable
        finally:
            loop.remove_writer(self._descriptor)
        return True
