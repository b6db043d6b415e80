"""Samples at the session's rate to bytes of its format."""

from __future__ import annotations

from typing import Literal, Protocol

from worker.audio.g711 import IDLE_CODES, Law, codes
from worker.audio.levels import Samples, clipped, to_int16
from worker.audio.opus import OggOpus
from worker.wav import wav_header

Encoding = Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw", "opus", "wav"]

G711_FRAME_S = 0.020
"""What one packet of a telephone line holds (RFC 3551, section 4.5.14)."""


class Encoder(Protocol):
    """Every payload can be given on as it is: whole samples, or whole pages of a container."""

    unit_bytes: int | None
    """A payload may be cut into multiples of this; None: nowhere."""

    @property
    def header(self) -> bytes:
        """What a container's first payload begins with, and what makes later ones readable; else empty."""
        ...

    @property
    def pts(self) -> int:
        """Index of the next sample that a payload will bring."""
        ...

    @property
    def position(self) -> int:
        """Index at which the next sample pushed will stand; at least ``pts``."""
        ...

    def push(self, samples: Samples) -> bytes: ...

    def flush(self) -> bytes:
        """What brings out all that was pushed, if need be with silence up to a whole frame."""
        ...

    def finish(self) -> bytes:
        """The same, and the end of the container. Nothing may follow."""
        ...

    def skip(self, samples: int) -> None:
        """So many have been sent that did not come from here; where samples are not counted by pages."""
        ...


class Pcm:
    """int16 or float32 samples; ``header`` goes before the first of them."""

    def __init__(self, *, floats: bool = False, header: bytes = b"", pts: int = 0) -> None:
        self.unit_bytes: int | None = 4 if floats else 2
        self.header = header
        self.pts = self.position = pts
        self._floats = floats
        self._header_due = header if pts == 0 else b""

    def push(self, samples: Samples) -> bytes:
        pcm = clipped(samples).astype("<f4") if self._floats else to_int16(samples).astype("<i2")
        return self.push_encoded(pcm.tobytes(), len(samples))

    def push_encoded(self, pcm: bytes, samples: int) -> bytes:
        if not samples:
            return b""
        self.pts += samples
        self.position = self.pts
        header, self._header_due = self._header_due, b""
        return header + pcm if header else pcm

    def flush(self) -> bytes:
        return b""

    def finish(self) -> bytes:
        return b""

    def skip(self, samples: int) -> None:
        self.pts = self.position = self.pts + samples


class G711:
    """One byte a sample. The end of each utterance is filled up to a whole 20 ms frame, so that a gateway that packs
    frames has none to invent: zero bytes would be a loud pop."""

    unit_bytes: int | None = 1
    header = b""

    def __init__(self, law: Law, sample_rate: int, pts: int = 0) -> None:
        self._codes, self._idle = codes(law), IDLE_CODES[law]
        self._frame = round(G711_FRAME_S * sample_rate)
        self.pts = self.position = pts

    def push(self, samples: Samples) -> bytes:
        return self._counted(self._codes[to_int16(samples).view("u2")].tobytes())

    def flush(self) -> bytes:
        return self._counted(self._idle * (-self.pts % self._frame))

    def finish(self) -> bytes:
        return self.flush()

    def skip(self, samples: int) -> None:
        self.pts = self.position = self.pts + samples

    def _counted(self, payload: bytes) -> bytes:
        self.pts += len(payload)
        self.position = self.pts
        return payload


def encoder_for(encoding: Encoding, sample_rate: int, *, stream: int, pts: int) -> Encoder:
    """``stream``: the number of an Ogg stream. ``pts`` above 0: a stream that another encoder began goes on."""
    match encoding:
        case "pcm_s16le":
            return Pcm(pts=pts)
        case "pcm_f32le":
            return Pcm(floats=True, pts=pts)
        case "wav":
            return Pcm(header=wav_header(sample_rate), pts=pts)
        case "mulaw" | "alaw":
            return G711(encoding, sample_rate, pts)
        case "opus":
            return OggOpus(sample_rate, stream, pts)
