"""Finished audio files: one mono file of 24 kHz int16 samples, streamed, whole or not there at all.

What a decoder gives back, measured on FFmpeg 8 (the samples that went in, and no more unless it says so):
    FLAC, WAV     the same samples
    Ogg Opus      as many, at its own 48 kHz exactly twice as many
    MP3           as many, unless 1 to 46 samples (2 ms) stand in the last frame of 576: then they come back as 47
    M4B           the header (edit list) states the exact length, and players keep to it; FFmpeg's decoder itself gives
                  the last AAC frame whole, up to 1,023 samples of silence more
The same samples and tags give the same bytes.

Sources: RFC 7845 (granules), ISO/IEC 14496-12, section 8.6.6 (edit list), EBU Tech 3306 (RF64).
"""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import BinaryIO

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container.output import OutputContainer

from worker.audio.levels import Int16
from worker.jobs.errors import InputFault, JobInputError

SAMPLE_RATE = 24_000
_PIECE = SAMPLE_RATE
"""Samples handed to the encoder at once: a block may be an hour, the memory stays flat."""


class Encoding(Enum):
    FLAC = "flac"
    OPUS = "opus"
    WAV = "wav"
    MP3 = "mp3"
    M4B = "m4b"


class AudioRefused(JobInputError):
    """Audio, or an option, of which no file can be made (code, field, reason)."""

    def __init__(self, code: InputFault, field: str, reason: str) -> None:
        super().__init__(code, f"{field}: {reason}")
        self.field, self.reason = field, reason


@dataclass(frozen=True, slots=True)
class Tags:
    """``language`` as BCP 47 ("en"); ``track`` from 1. What is None or empty is left out."""

    title: str | None = None
    album: str | None = None
    artist: str | None = None
    track: int | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True)
class File:
    """``samples`` at 24 kHz, as given; ``sha256`` of the file's bytes, hexadecimal."""

    name: str
    encoding: Encoding
    samples: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class _Form:
    container: str
    codec: str
    sample_format: str
    bit_rate: int | None = None
    codec_options: dict[str, str] = field(default_factory=dict)
    container_options: dict[str, str] = field(default_factory=dict)
    holds_nothing: bool = False
    """A file of no samples is valid."""


# Bit rates for mono speech at 24 kHz. WAV: above 4 GiB the header becomes RF64. M4B: the edit list counts in
# milliseconds unless told otherwise, and a length would be cut down to one.
_FORMS = {
    Encoding.FLAC: _Form("flac", "flac", "s16", holds_nothing=True),
    Encoding.OPUS: _Form("ogg", "libopus", "s16", 48_000, {"application": "audio", "frame_duration": "20"}),
    Encoding.WAV: _Form("wav", "pcm_s16le", "s16", container_options={"rf64": "auto"}, holds_nothing=True),
    Encoding.MP3: _Form("mp3", "libmp3lame", "s16p", 64_000),
    Encoding.M4B: _Form("mp4", "aac", "fltp", 64_000, container_options={"movie_timescale": str(SAMPLE_RATE)}),
}
_MP4_LANGUAGES = {"en": "eng", "fr": "fra", "de": "deu", "es": "spa", "it": "ita", "pt": "por", "nl": "nld"}


def write_file(path: Path, blocks: Iterable[Int16], encoding: Encoding, tags: Tags | None = None) -> File:
    """Blocks for as long as ``blocks`` takes and encoding lasts. A file that is already at ``path`` stays until then.

    Raises:
        AudioRefused: no samples at all, in an encoding that cannot say so (all but FLAC and WAV)
        OSError: the file cannot be written
    """
    form = _FORMS[encoding]
    waiting = pieces(blocks)
    first = next(waiting, None)
    if first is None and not form.holds_nothing:
        raise AudioRefused("empty", "audio", f"no samples, and {encoding.value} cannot hold none")
    with whole_file(path) as out, opened(out, encoding, tags or Tags()) as (container, stream):
        container.start_encoding()
        samples = encode(container, stream, waiting if first is None else itertools.chain([first], waiting))
    return described(path, encoding, samples)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """The file at ``path`` appears, synced to the disk, when the block ends, and not at all when it raises."""
    part = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.part")
    try:
        # "x" and no mkstemp: the file gets the permissions that the user's umask gives.
        with open(part, "x+b") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    _sync_folder(path.parent)


@contextmanager
def opened(out: BinaryIO, encoding: Encoding, tags: Tags) -> Iterator[tuple[OutputContainer, AudioStream]]:
    """A container with its audio stream, before the header is written; closed (the trailer written) afterwards."""
    form = _FORMS[encoding]
    # Bit-exact: no random stream number, no version of the library.
    options = {"fflags": "bitexact", **form.container_options}
    with av.open(out, "w", format=form.container, container_options=options) as container:
        container.metadata.update(_metadata(tags))
        stream = container.add_stream(form.codec, rate=SAMPLE_RATE, options=dict(form.codec_options))
        assert isinstance(stream, AudioStream)
        stream.codec_context.layout = "mono"
        stream.codec_context.format = form.sample_format
        if form.bit_rate is not None:
            stream.codec_context.bit_rate = form.bit_rate
        if encoding is Encoding.M4B and tags.language:
            # MP4 knows three letters only, and a stream's language, no file's.
            stream.metadata["language"] = _MP4_LANGUAGES.get(tags.language.partition("-")[0].lower(), "und")
        yield container, stream


def encode(container: OutputContainer, stream: AudioStream, blocks: Iterable[Int16]) -> int:
    """Everything, the encoder's tail included. Gives the samples taken."""
    samples = 0
    for piece in pieces(blocks):
        frame = AudioFrame.from_ndarray(piece[None], format="s16", layout="mono")
        frame.sample_rate = SAMPLE_RATE
        frame.pts = samples
        samples += len(piece)
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))
    return samples


def pieces(blocks: Iterable[Int16]) -> Iterator[Int16]:
    """The same samples in pieces of at most a second, none of them empty."""
    for block in blocks:
        assert block.ndim == 1
        assert np.issubdtype(block.dtype, np.int16)
        for at in range(0, len(block), _PIECE):
            yield block[at : at + _PIECE]


def described(path: Path, encoding: Encoding, samples: int) -> File:
    """Reads the whole file once: headers are entered last, so that nothing could be summed up while writing."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return File(path.name, encoding, samples, file.seek(0, os.SEEK_END), digest)


def _metadata(tags: Tags) -> dict[str, str]:
    named = {"title": tags.title, "album": tags.album, "artist": tags.artist, "language": tags.language}
    if tags.track is not None:
        named["track"] = str(tags.track)
    return {name: value for name, value in named.items() if value}


def _sync_folder(folder: Path) -> None:
    """The renaming itself outlives a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
