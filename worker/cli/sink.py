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
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import BinaryIO, Protocol

from worker.wav import WavFile, WavStream, wav_header

STDOUT = 1


class Sink(Protocol):
    async def write(self, pcm: bytes) -> None:
        """Whole samples. Waits until they are taken; blocks nothing."""
        ...


def file_sink(path: Path, rate: int, *, raw: bool) -> AbstractAsyncContextManager[Sink]:
    """A file; to a pipe or device at ``path`` it streams. ``rate`` in Hz. Raises OSError."""
    if path.exists() and not path.is_file() and not path.is_dir():
        return _special(path, None if raw else rate)
    return _raw_file(path) if raw else _wav_file(path, rate)


def stdout_sink(rate: int, *, raw: bool) -> AbstractAsyncContextManager[Sink]:
    """Standard output. A WAV header is entered afterwards where it can be (``> a.wav``), else it leaves sizes open."""
    if not raw and stat.S_ISREG(os.fstat(STDOUT).st_mode):
        return _wav_stream(sys.stdout.buffer, rate)
    return _stream(STDOUT, None if raw else rate)


class _Wav:
    def __init__(self, stream: WavStream) -> None:
        self._stream = stream

    async def write(self, pcm: bytes) -> None:
        await asyncio.to_thread(self._stream.write, pcm)


class _File:
    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    async def write(self, pcm: bytes) -> None:
        await asyncio.to_thread(self._out.write, pcm)


@contextlib.asynccontextmanager
async def _wav_file(path: Path, rate: int) -> AsyncIterator[Sink]:
    with WavFile(path, rate) as stream:
        yield _Wav(stream)


@contextlib.asynccontextmanager
async def _wav_stream(out: BinaryIO, rate: int) -> AsyncIterator[Sink]:
    stream = WavStream(out, rate)
    yield _Wav(stream)
    await asyncio.to_thread(stream.finish)


@contextlib.asynccontextmanager
async def _raw_file(path: Path) -> AsyncIterator[Sink]:
    target, part, out = await asyncio.to_thread(_begin, path)
    try:
        with out:
            yield _File(out)
        await asyncio.to_thread(os.replace, part, target)
    finally:
        part.unlink(missing_ok=True)


def _begin(path: Path) -> tuple[Path, Path, BinaryIO]:
    """The file that is meant, and one beside it to write to."""
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.part")
    try:
        return target, part, part.open("xb")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None


@contextlib.asynccontextmanager
async def _special(path: Path, rate: int | None) -> AsyncIterator[Sink]:
    descriptor = await asyncio.to_thread(os.open, path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        async with _stream(descriptor, rate) as sink:
            yield sink
    finally:
        os.close(descriptor)


@contextlib.asynccontextmanager
async def _stream(descriptor: int, rate: int | None) -> AsyncIterator[Sink]:
    """``rate`` None: no header."""
    yield Stream(descriptor, b"" if rate is None else wav_header(rate))


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
