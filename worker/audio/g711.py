"""G.711: the codes of libsndfile, looked up, since its encoder works on files and a stream needs none of that."""

from __future__ import annotations

import io
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import soundfile

Law = Literal["mulaw", "alaw"]

IDLE_CODES: dict[Law, bytes] = {"mulaw": b"\xff", "alaw": b"\xd5"}
"""What a silent line carries."""
_SUBTYPES: dict[Law, str] = {"mulaw": "ULAW", "alaw": "ALAW"}


@cache
def codes(law: Law) -> npt.NDArray[np.uint8]:
    """[65536], the code of each int16 sample, indexed by its bits as an unsigned number."""
    out = io.BytesIO()
    every_sample = np.arange(65_536, dtype=np.uint16).view(np.int16)
    soundfile.write(out, every_sample, 8_000, format="RAW", subtype=_SUBTYPES[law])
    table = np.frombuffer(out.getvalue(), np.uint8)
    table.flags.writeable = False
    return table
