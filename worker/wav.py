"""RIFF/WAVE with one mono int16 track: a header, and a writer that leaves a right file or none.

Source of the streaming form: sizes that are not known yet are 0xFFFFFFFF (what ffmpeg and SoX write to a pipe); a
reader takes everything after the header for samples, so nothing may follow them.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import struct
import sys
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

HEADER_BYTES = 44
SAMPLE_BYTES = 2
UNKNOWN = 0xFFFFFFFF
_RIFF = struct.Struct("<4sI4s4sIHHIIHH4sI")


def wav_header(sample_rate: int, data_bytes: int | None = None) -> bytes:
    """44 bytes; ``data_bytes`` None, or too many for the format: the streaming form."""
    known = data_bytes is not None and data_bytes <= UNKNOWN - HEADER_BYTES
    riff, data = (data_bytes + HEADER_BYTES - 8, data_bytes) if known and data_bytes is not None else (UNKNOWN, UNKNOWN)
    form = (16, 1, 1, sample_rate, sample_rate * SAMPLE_BYTES, SAMPLE_BYTES, 8 * SAMPLE_BYTES)
    return _RIFF.pack(b"RIFF", riff, b"WAVE", b"fmt ", *form, b"data", data)


class WavStream:
    """Writes WAV to a stream that is already open, standard output for instance; never closes it.

    The header goes out with the first samples, so that a failure before any audio leaves nothing. If the stream can be
    changed in place (``> a.wav``), ``finish`` enters the sizes; otherwise (a pipe, ``>> a.wav``) they stay unknown.
    """

    def __init__(self, out: BinaryIO, sample_rate: int) -> None:
        self._out = out
        self._rate = sample_rate
        self._start = out.tell() if _is_patchable(out) else None
        self._data_bytes = 0
        self._begun = False

    @property
    def samples(self) -> int:
        return self._data_bytes // SAMPLE_BYTES

    def write(self, pcm: bytes) -> None:
        """Little-endian int16; blocks."""
        if not pcm:
            return
        assert len(pcm) % SAMPLE_BYTES == 0, "whole samples only"
        if not self._begun:
            self._begun = True
            self._out.write(wav_header(self._rate))
        self._out.write(pcm)
        self._data_bytes += len(pcm)

    def finish(self) -> None:
        """No more samples. A stream that got none becomes an empty, valid WAV."""
        if not self._begun:
            self._out.write(wav_header(self._rate, 0))
        elif self._start is not None:
            end = self._out.tell()
            self._out.seek(self._start)
            self._out.write(wav_header(self._rate, self._data_bytes))
            self._out.seek(end)
        self._out.flush()


class WavFile:
    """A context manager: the file at ``path`` appears whole when the block ends, and not at all when it raises.

    An existing file keeps its contents until then. A device or pipe at ``path`` (/dev/stdout) is streamed to.
    """

    def __init__(self, path: Path, sample_rate: int) -> None:
        self._special = _is_special(path)
        # A link keeps pointing where it did; /dev/stdout must not be resolved, it may lead to a pipe without a name.
        self._path = path if self._special else Path(os.path.realpath(path))
        self._rate = sample_rate

    def __enter__(self) -> WavStream:
        part = f".{self._path.name[:200]}.{secrets.token_hex(4)}.part"
        self._part = None if self._special else self._path.with_name(part)
        try:
            # "x" and no mkstemp: the file gets the permissions that the user's umask gives.
            self._out: BinaryIO = open(self._part, "xb") if self._part else open(self._path, "wb")
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None
        self._stream = WavStream(self._out, self._rate)
        return self._stream

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._stream.finish()
                self._publish()
        finally:
            try:
                self._out.close()
            finally:
                if self._part is not None:
                    self._part.unlink(missing_ok=True)

    def _publish(self) -> None:
        if self._part is None:
            return
        os.fsync(self._out.fileno())
        if self._path.exists():
            shutil.copymode(self._path, self._part)
        os.replace(self._part, self._path)


def _is_special(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _is_patchable(out: BinaryIO) -> bool:
    """Appending files seek but write at their end whatever the position: entering sizes there would add a trailer."""
    if not out.seekable():
        return False
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        return not fcntl.fcntl(out.fileno(), fcntl.F_GETFL) & os.O_APPEND
    except (OSError, ValueError):
        return True
