"""A whole book in one file: chapter marks and a cover.

MP3 and Ogg take their chapter marks in the header, before any audio, M4B at the end too: so the chapters' lengths are
given, for all three, and what comes must agree. Marks are exact to the sample in M4B, to the millisecond in MP3 (CHAP)
and Ogg (CHAPTER comments). FLAC and WAV take none.
"""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
from av.audio.stream import AudioStream
from av.container.output import OutputContainer
from av.stream import Disposition
from av.video.stream import VideoStream

from worker.audio.levels import Int16
from worker.jobs.files import (
    SAMPLE_RATE,
    AudioRefused,
    Encoding,
    File,
    Tags,
    described,
    encode,
    opened,
    whole_file,
)

BINDINGS = frozenset({Encoding.M4B, Encoding.MP3, Encoding.OPUS})
MAX_COVER_BYTES = 4 * 1024 * 1024
_KINDS = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png"}
_FRONT_COVER = 3


@dataclass(frozen=True, slots=True)
class Chapter:
    """``samples`` at 24 kHz, its silences included; at least one."""

    title: str
    samples: int


def bind(
    path: Path,
    blocks: Iterable[Int16],
    chapters: Sequence[Chapter],
    encoding: Encoding,
    tags: Tags | None = None,
    cover: bytes | None = None,
) -> File:
    """``blocks``: all chapters' samples one after the other; ``cover``: a JPEG or PNG file.

    Raises:
        AudioRefused: an encoding without chapter marks, no chapter or an empty one, a cover that is no picture or is
            too large, or samples that are not as many as the chapters say
        OSError: the file cannot be written
    """
    _check(chapters, encoding)
    kind = _kind(cover) if cover is not None else None
    expected = sum(chapter.samples for chapter in chapters)
    with whole_file(path) as out:
        with opened(out, encoding, tags or Tags()) as (container, stream):
            _mark(container, chapters)
            if cover is not None and kind is not None:
                _dress(container, stream, encoding, cover, kind)
            samples = encode(container, stream, blocks)
        if samples != expected:
            raise AudioRefused("unsupported", "chapters", f"{expected} samples announced, {samples} came")
    return described(path, encoding, samples)


def _check(chapters: Sequence[Chapter], encoding: Encoding) -> None:
    if encoding not in BINDINGS:
        raise AudioRefused("unsupported", "encoding", f"{encoding.value} takes no chapter marks")
    if not chapters or any(chapter.samples < 1 for chapter in chapters):
        raise AudioRefused("empty", "chapters", "at least one, and none of them empty")


def _mark(container: OutputContainer, chapters: Sequence[Chapter]) -> None:
    marks, start = [], 0
    for number, chapter in enumerate(chapters, 1):
        marks.append(
            {
                "id": number,
                "start": start,
                "end": start + chapter.samples,
                "time_base": Fraction(1, SAMPLE_RATE),
                "metadata": {"title": chapter.title},
            }
        )
        start += chapter.samples
    container.set_chapters(marks)  # type: ignore[arg-type]


def _kind(cover: bytes) -> str:
    if len(cover) > MAX_COVER_BYTES:
        raise AudioRefused("too_large", "cover", f"at most {MAX_COVER_BYTES} bytes")
    for magic, kind in _KINDS.items():
        if cover.startswith(magic):
            _picture_size(cover)
            return kind
    raise AudioRefused("unsupported", "cover", "neither a JPEG nor a PNG file")


def _dress(container: OutputContainer, stream: AudioStream, encoding: Encoding, cover: bytes, kind: str) -> None:
    if encoding is Encoding.OPUS:
        stream.metadata["METADATA_BLOCK_PICTURE"] = base64.b64encode(_picture_block(cover, kind)).decode()
        return
    with av.open(io.BytesIO(cover), "r") as picture:
        source = picture.streams.video[0]
        target = container.add_stream_from_template(source)
        assert isinstance(target, VideoStream)
        target.disposition = Disposition.attached_pic
        for packet in picture.demux(source):
            if packet.size:
                packet.stream = target
                packet.pts = packet.dts = 0
                container.mux(packet)


def _picture_block(cover: bytes, kind: str) -> bytes:
    """RFC 9639, section 8.8."""
    width, height = _picture_size(cover)
    mime = kind.encode()
    head = struct.pack(f">II{len(mime)}sI", _FRONT_COVER, len(mime), mime, 0)
    return head + struct.pack(">5I", width, height, 24, 0, len(cover)) + cover


def _picture_size(cover: bytes) -> tuple[int, int]:
    try:
        with av.open(io.BytesIO(cover)) as picture:
            context = picture.streams.video[0].codec_context
            size = context.width, context.height
    except (av.error.FFmpegError, IndexError):
        raise AudioRefused("unreadable", "cover", "a picture that cannot be read") from None
    if not all(size):
        raise AudioRefused("unreadable", "cover", "a picture that cannot be read")
    return size
