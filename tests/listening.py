"""What a listener makes of the worker's bytes, with decoders that are not ours: libsndfile and FFmpeg."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import soundfile

Wave = npt.NDArray[Any]

WIDTHS = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1, "wav": 2}
RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)
OPUS_RATES = (8_000, 16_000, 24_000, 48_000)
FORMATS = [
    *((encoding, rate) for encoding in ("pcm_s16le", "pcm_f32le") for rate in RATES),
    ("mulaw", 8_000),
    ("alaw", 8_000),
    *(("opus", rate) for rate in OPUS_RATES),
    *(("wav", rate) for rate in RATES),
]
"""Every encoding and sample rate of the contract."""
_RAW = {"pcm_s16le": "PCM_16", "pcm_f32le": "FLOAT", "mulaw": "ULAW", "alaw": "ALAW"}


def heard(encoding: str, rate: int, stream: bytes) -> Wave:
    """Samples at ``rate``, full scale 1.0, by libsndfile; for Opus it decodes to the rate that the header names."""
    if not stream:
        return np.empty(0)
    raw = {"format": "RAW", "subtype": _RAW[encoding], "samplerate": rate, "channels": 1} if encoding in _RAW else {}
    if encoding == "wav":
        return heard("pcm_s16le", rate, stream[44:])
    samples, found = soundfile.read(io.BytesIO(stream), dtype="float64", **raw)
    assert found == rate
    whole: Wave = samples
    return whole


def heard_by_ffmpeg(stream: bytes) -> Wave:
    """An Ogg Opus stream at 48 kHz."""
    with av.open(io.BytesIO(stream), "r") as container:
        frames = [frame.to_ndarray()[0] for frame in container.decode(audio=0)]
    return np.concatenate(frames).astype(np.float64) if frames else np.empty(0)


@dataclass(frozen=True, slots=True)
class Page:
    """Of an Ogg stream."""

    first: bool
    last: bool
    granule: int
    stream: int
    number: int
    packets: tuple[bytes, ...]


def pages(stream: bytes) -> list[Page]:
    """Raises AssertionError unless the bytes are whole pages of whole packets with right checksums."""
    found, at = [], 0
    while at < len(stream):
        magic, version, flags, granule, serial, number, checksum, segments = struct.unpack_from(
            "<4sBBqIIIB", stream, at
        )
        assert (magic, version) == (b"OggS", 0)
        lacing = stream[at + 27 : at + 27 + segments]
        end = at + 27 + segments + sum(lacing)
        assert end <= len(stream), "a page in two payloads"
        page = stream[at:end]
        assert checksum == _crc(page[:22] + bytes(4) + page[26:])
        packets = _packets(lacing, page[27 + segments :])
        found.append(Page(bool(flags & 2), bool(flags & 4), granule, serial, number, packets))
        at = end
    return found


def _packets(lacing: bytes, body: bytes) -> tuple[bytes, ...]:
    packets, at, size = [], 0, 0
    for length in lacing:
        size += length
        if length < 255:
            packets.append(body[at : at + size])
            at, size = at + size, 0
    assert size == 0, "a packet in two pages"
    return tuple(packets)


def _crc(data: bytes) -> int:
    """Bit by bit, as RFC 3533 has it: 0x04c11db7, from 0, neither mirrored nor inverted."""
    crc = 0
    for byte in data:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc & 0x80000000 else 0)) & 0xFFFFFFFF
    return crc
