"""A session's bytes back to samples, for listeners that want to look at them."""

from __future__ import annotations

import io

import numpy as np
import soundfile

from worker.audio.levels import Samples
from worker.wav import HEADER_BYTES

_SUBTYPES = {"pcm_s16le": "PCM_16", "pcm_f32le": "FLOAT", "mulaw": "ULAW", "alaw": "ALAW", "wav": "PCM_16"}


def decoded(stream: bytes, *, encoding: str, sample_rate: int) -> Samples:
    """``stream``: whole payloads from the first on, or after a container's header. Blocks for some thousandths of the
    audio's length. Raises ValueError for what is not of this format."""
    if encoding == "wav":
        stream = stream[HEADER_BYTES:]
    if not stream:
        return np.empty(0, np.float32)
    try:
        if encoding == "opus":
            samples, rate = soundfile.read(io.BytesIO(stream), dtype="float32")
        else:
            raw = {"format": "RAW", "subtype": _SUBTYPES[encoding], "endian": "LITTLE"}
            samples, rate = soundfile.read(
                io.BytesIO(stream), dtype="float32", samplerate=sample_rate, channels=1, **raw
            )
    except (KeyError, soundfile.LibsndfileError):
        raise ValueError(f"not audio in {encoding}") from None
    if rate != sample_rate or samples.ndim != 1:
        raise ValueError("not the rate or the channels that were asked for")
    found: Samples = samples
    return found
