"""How much sound a payload brings, as its listener can tell."""

from __future__ import annotations

from worker.audio import ogg
from worker.audio.opus import GRANULE_RATE, PRE_SKIP
from worker.wav import HEADER_BYTES

SAMPLE_BYTES = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1, "wav": 2}
"""By encoding, of those whose samples can be counted."""


def samples_in(payload: bytes, *, encoding: str, sample_rate: int, pts: int) -> int:
    """``pts``: of its first sample. Raises ValueError for an encoding or a page that is not known."""
    if encoding == "opus":
        end = (ogg.last_granule(payload) - PRE_SKIP) * sample_rate // GRANULE_RATE
        return max(0, end - pts)
    if encoding not in SAMPLE_BYTES:
        raise ValueError("an unknown encoding")
    header = HEADER_BYTES if encoding == "wav" and pts == 0 and payload.startswith(b"RIFF") else 0
    return (len(payload) - header) // SAMPLE_BYTES[encoding]
