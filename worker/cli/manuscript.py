"""The text that a command is given: an argument, a file, or what comes through standard input as it is written."""

from __future__ import annotations

import asyncio
import codecs
import errno
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from worker.cli.command import CommandError

READ_BYTES = 16 * 1024
STDIN = 0


class Utf8:
    """Bytes in, text out, whatever the cuts. The first byte that is no UTF-8, and NUL, are errors that say where."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._bytes = 0
        self._begun = False

    def text(self, data: bytes, *, final: bool = False) -> str:
        """Raises CommandError; it does not quote the text."""
        held = len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            place = self._bytes - held + error.start
            raise CommandError(
                f"{self._name}: byte {place} is not UTF-8; convert the text first, e.g. iconv -f latin1 -t utf-8"
            ) from None
        if "\0" in text:
            place = self._bytes - held + len(text[: text.index("\0")].encode())
            raise CommandError(f"{self._name}: byte {place} is NUL, so this is no text")
        self._bytes += len(data)
        if text and not self._begun:
            self._begun = True
            return text.removeprefix("\ufeff")
        return text


class Manuscript(Protocol):
    """Iterate for the text, piece by piece as it comes. Raises CommandError or OSError."""

    @property
    def chars(self) -> int | None:
        """None: somebody may still be writing it."""
        ...

    async def check(self) -> None:
        """Find what is wrong with the text before any of it is spoken, if it is there already."""
        ...

    def __aiter__(self) -> AsyncIterator[str]: ...


async def manuscript(text: str | None, file: str | None) -> Manuscript:
    """Of the arguments: ``-``, or neither, means standard input."""
    if text is not None and text != "-":
        return Argument(text)
    if file is None or file == "-":
        return Stream(STDIN, "standard input") if not _is_regular(STDIN) else Document(STDIN, "standard input")
    descriptor = await asyncio.to_thread(_opened, Path(file))
    return Document(descriptor, file) if _is_regular(descriptor) else Stream(descriptor, file)


class Argument:
    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def chars(self) -> int | None:
        return len(self._text)

    async def check(self) -> None:
        return

    async def __aiter__(self) -> AsyncIterator[str]:
        yield self._text


class Document:
    """A regular file, from where its descriptor stands. It is read in pieces, so it may be long."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor, self._name = descriptor, name
        self._start = os.lseek(descriptor, 0, os.SEEK_CUR)
        self._chars = 0

    @property
    def chars(self) -> int | None:
        """Counted by ``check``."""
        return self._chars

    async def check(self) -> None:
        self._chars = sum([len(piece) async for piece in self])

    async def __aiter__(self) -> AsyncIterator[str]:
        utf8, place = Utf8(self._name), self._start
        while data := await asyncio.to_thread(os.pread, self._descriptor, READ_BYTES, place):
            place += len(data)
            yield utf8.text(data)
        yield utf8.text(b"", final=True)


class Stream:
    """A pipe, a terminal or a socket. It is read when there is something to read, and never left non-blocking, which
    its other owners would notice. Nothing holds the process up if it stops in the middle."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor, self._name = descriptor, name

    @property
    def chars(self) -> int | None:
        return None

    async def check(self) -> None:
        return

    async def __aiter__(self) -> AsyncIterator[str]:
        utf8 = Utf8(self._name)
        while data := await self._read():
            if text := utf8.text(data):
                yield text
        yield utf8.text(b"", final=True)

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()

        def ready() -> None:
            loop.remove_reader(self._descriptor)
            if not readable.done():
                readable.set_result(None)

        try:
            loop.add_reader(self._descriptor, ready)
        except PermissionError:  # what cannot be waited for (/dev/null) never makes anyone wait
            return os.read(self._descriptor, READ_BYTES)
        try:
            await readable
        finally:
            loop.remove_reader(self._descriptor)
        return os.read(self._descriptor, READ_BYTES)


def _opened(path: Path) -> int:
    """Blocks for as long as a named pipe has no writer."""
    descriptor = os.open(path.expanduser(), os.O_RDONLY | os.O_CLOEXEC)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return descriptor


def _is_regular(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)
