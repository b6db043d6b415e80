"""Pages of an Ogg stream (RFC 3533), and the two header pages of Opus (RFC 7845).

FFmpeg's muxer holds every page back until the next one, so that it can mark the last: 20 ms for the listener of a
stream, and a flush would not bring out all that was said. It also cannot go on with a stream that another worker began.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

MAX_PACKETS = 50
"""In a page: RFC 7845, section 6, asks for at most a second."""
_PAGE = struct.Struct("<4sBBqIIIB")
_CHECKSUM = struct.Struct("<I")
_CHECKSUM_AT = 22
_FIRST, _LAST = 2, 4
_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def page(
    packets: Sequence[bytes], *, stream: int, number: int, granule: int, first: bool = False, last: bool = False
) -> bytes:
    """One page of whole packets. ``granule``: samples at 48 kHz up to its end, the pre-skip among them."""
    lacing = b"".join(b"\xff" * (len(packet) // 255) + bytes([len(packet) % 255]) for packet in packets)
    assert len(lacing) <= 255, "a page has 255 segments"
    flags = (_FIRST if first else 0) | (_LAST if last else 0)
    head = _PAGE.pack(b"OggS", 0, flags, granule, stream, number, 0, len(lacing))
    whole = b"".join([head, lacing, *packets])
    return whole[:_CHECKSUM_AT] + _CHECKSUM.pack(_checksum(whole)) + whole[_CHECKSUM_AT + _CHECKSUM.size :]


def opus_header(*, stream: int, pre_skip: int, sample_rate: int, encoder: str) -> bytes:
    """Two pages: what decodes the stream, and who made it. Mono; ``pre_skip`` in samples at 48 kHz."""
    head = struct.pack("<8sBBHIhB", b"OpusHead", 1, 1, pre_skip, sample_rate, 0, 0)
    vendor, comment = encoder.encode(), b"ENCODER=antiphon"
    tags = struct.pack(
        f"<8sI{len(vendor)}sII{len(comment)}s", b"OpusTags", len(vendor), vendor, 1, len(comment), comment
    )
    return page([head], stream=stream, number=0, granule=0, first=True) + page(
        [tags], stream=stream, number=1, granule=0
    )


def last_granule(pages: bytes) -> int:
    """Of the last page. Raises ValueError for what is not whole pages."""
    granule, at = 0, 0
    while at < len(pages):
        try:
            magic, _, _, granule, _, _, _, segments = _PAGE.unpack_from(pages, at)
        except struct.error:
            raise ValueError("not a whole Ogg page") from None
        if magic != b"OggS":
            raise ValueError("not an Ogg page")
        lacing = at + _PAGE.size
        at = lacing + segments + sum(pages[lacing : lacing + segments])
    if at != len(pages):
        raise ValueError("not a whole Ogg page")
    return granule


def _checksum(data: bytes) -> int:
    """CRC-32 as Ogg has it: zlib's polynomial, but from the highest bit down, from 0 and without the final inversion.
    zlib takes the lowest bit first, so it gets every byte mirrored and its result is mirrored back."""
    mirrored = zlib.crc32(data.translate(_MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(mirrored.to_bytes(4, "little").translate(_MIRRORED), "big")
