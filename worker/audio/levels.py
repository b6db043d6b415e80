"""Samples as numbers: full scale, and the roundings to int16 and float32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]
"""[T], full scale is 1.0."""
Int16 = npt.NDArray[np.int16]
"""[T], native order."""

FULL_SCALE = 32_768.0


def from_int16(pcm: bytes) -> Samples:
    """Little-endian."""
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(FULL_SCALE)


def to_int16(samples: Samples) -> Int16:
    """Rounded once, without dither (silence stays zero); what is too loud is clipped and never wraps."""
    rounded: Samples = np.rint(samples * np.float32(FULL_SCALE))
    return np.clip(rounded, -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)


def clipped(samples: Samples) -> Samples:
    return np.clip(samples, np.float32(-1.0), np.float32(1.0))
