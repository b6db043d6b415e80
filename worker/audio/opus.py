"""Ogg Opus as a live stream: every payload is one or more whole pages, and nothing waits for a page to fill.

Sources: RFC 6716 (Opus), RFC 7845 (in Ogg), RFC 7587, section 3.1.1 (bit rates).
"""

from __future__ import annotations

import av
import numpy as np
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame

from worker.audio import ogg
from worker.audio.levels import Samples, clipped

PACKET_S = 0.020
GRANULE_RATE = 48_000
PRE_SKIP = 312
"""Samples at 48 kHz that a decoder gives before the first real one: 6.5 ms, whatever the rate (application audio)."""
BIT_RATES = {8_000: 24_000, 16_000: 32_000, 24_000: 48_000, 48_000: 48_000}
"""Low effort and some more bits: at complexity 0 a frame of 80 ms costs a seventh of what it does at libopus's default,
and at 48 kb/s it is nearer to the original than complexity 3 at 32."""
_OPTIONS = {"application": "audio", "frame_duration": "20", "compression_level": "0"}
_VENDOR = "libopus (FFmpeg)"


class OggOpus:
    """One logical stream for the whole session. Samples are counted at the session's rate, as everywhere; the granules
    count at 48 kHz, as they must. ``pts`` is what a decoder has given after the pages so far: ``position`` less the
    pre-skip, for packets that are complete.

    A flush fills up the packet with silence and goes on with the same encoder and stream, after a cancel too: encoder
    and decoder never disagree, and a chained second stream would be the end for many players.
    """

    unit_bytes: int | None = None

    def __init__(self, sample_rate: int, stream: int, pts: int = 0) -> None:
        """``pts`` above 0: go on where another encoder stopped, with a packet of silence. It makes both sides forget
        what they predict from (RFC 6716, section 4.3.2.1), else the first sounds would be of any loudness."""
        self._rate, self._stream = sample_rate, stream
        self._packet = round(PACKET_S * sample_rate)
        self._skip = PRE_SKIP * sample_rate // GRANULE_RATE
        self._codec = _codec(sample_rate)
        self._packets = -(-(pts + self._skip) // self._packet) if pts else 0
        self._pages = 2 + self._packets
        self._waiting: Samples = np.zeros(self._packet if pts else 0, np.float32)
        self._header_due = not pts
        self._content = pts
        self._finished = False
        self.header = ogg.opus_header(stream=stream, pre_skip=PRE_SKIP, sample_rate=sample_rate, encoder=_VENDOR)

    @property
    def position(self) -> int:
        return self._packets * self._packet + len(self._waiting)

    @property
    def pts(self) -> int:
        return self._content if self._finished else max(0, self._packets * self._packet - self._skip)

    def push(self, samples: Samples) -> bytes:
        if not len(samples):
            return b""
        self._waiting = np.concatenate([self._waiting, samples])
        self._content = self.position
        ready = len(self._waiting) // self._packet * self._packet
        return self._pages_of(self._encoded(ready)) if ready else b""

    def flush(self) -> bytes:
        return self._pages_of(self._drained()) if self._content > self.pts else b""

    def finish(self) -> bytes:
        """The last page's granule cuts the silence off again: the stream has exactly the samples that it was given."""
        if self._finished or (self._header_due and not len(self._waiting)):
            return b""
        # After a flush there is nothing left to say, but the last page has to come: a packet of which nothing is heard.
        if self._content <= self.pts:
            self._content = self.pts
        packets = self._drained()
        self._finished = True
        return self._pages_of(packets, last_granule=self._content * GRANULE_RATE // self._rate + PRE_SKIP)

    def skip(self, samples: int) -> None:
        """A page has its place in the stream: what is counted is what its packets hold."""

    def _drained(self) -> list[bytes]:
        """Packets that bring out all that was pushed; at least one."""
        needed = self._content + self._skip - self._packets * self._packet
        packets = max(1, -(-needed // self._packet))
        self._waiting = np.pad(self._waiting, (0, packets * self._packet - len(self._waiting)))
        return self._encoded(len(self._waiting))

    def _encoded(self, samples: int) -> list[bytes]:
        """The first of what waits; whole packets."""
        frame = AudioFrame.from_ndarray(clipped(self._waiting[:samples])[None], format="flt", layout="mono")
        self._waiting = self._waiting[samples:]
        frame.sample_rate = self._rate
        frame.pts = self._packets * self._packet
        packets = [bytes(packet) for packet in self._codec.encode(frame)]
        assert len(packets) == samples // self._packet
        self._packets += len(packets)
        return packets

    def _pages_of(self, packets: list[bytes], last_granule: int | None = None) -> bytes:
        """``last_granule``: these are the last pages."""
        granule = (self._packets - len(packets)) * self._packet * GRANULE_RATE // self._rate
        pages = [self.header] if self._header_due else []
        self._header_due = False
        for at in range(0, len(packets), ogg.MAX_PACKETS):
            some = packets[at : at + ogg.MAX_PACKETS]
            granule += len(some) * round(PACKET_S * GRANULE_RATE)
            last = last_granule is not None and at + len(some) == len(packets)
            end = last_granule if last and last_granule is not None else granule
            pages.append(ogg.page(some, stream=self._stream, number=self._pages, granule=end, last=last))
            self._pages += 1
        return b"".join(pages)


def _codec(sample_rate: int) -> AudioCodecContext:
    codec = av.CodecContext.create("libopus", "w")
    assert isinstance(codec, AudioCodecContext)
    codec.sample_rate = sample_rate
    codec.layout = "mono"
    codec.format = "flt"
    codec.bit_rate = BIT_RATES[sample_rate]
    codec.options = _OPTIONS
    codec.open()
    return codec
