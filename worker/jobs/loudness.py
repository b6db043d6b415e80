"""Loudness of a whole book, and the one gain that brings it to an audiobook's level.

One gain a book: chapters keep their relation to each other. Where a peak would pass the limit the gain is lower, and
``Gain.peak_limited`` says so: nothing is compressed, the voice stays as it was rendered.

Sources: ITU-R BS.1770-4 (loudness, true peak by oversampling), EBU R 128; FFmpeg's ebur128 filter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.filter import Graph

from worker.audio.levels import FULL_SCALE, Int16, to_int16
from worker.jobs.files import SAMPLE_RATE, pieces

TARGET_LUFS = -19.0
PEAK_DBTP = -3.0
_GATE_LUFS = -70.0
_STEP = 0.001
"""What the filter's true peaks are printed to: they count as half a step higher."""
_FLUSH = SAMPLE_RATE // 5
"""Two of the filter's blocks of 100 ms bring out the last samples' peak."""


@dataclass(frozen=True, slots=True)
class Loudness:
    """``integrated_lufs`` None: nothing above the gate of -70 LUFS, or under 0.4 s of audio, which the standard leaves
    undefined. ``true_peak_dbtp`` None: digital silence."""

    integrated_lufs: float | None
    true_peak_dbtp: float | None
    samples: int


@dataclass(frozen=True, slots=True)
class Gain:
    """``peak_limited``: the target is not reached, for the true peak's sake."""

    db: float
    peak_limited: bool

    @property
    def factor(self) -> float:
        return float(10.0 ** (self.db / 20.0))


class Meter:
    """Takes a book's samples as they come, in constant memory; blocks (no I/O)."""

    def __init__(self) -> None:
        graph = Graph()
        self._source = graph.add_abuffer(sample_rate=SAMPLE_RATE, format="s16", layout="mono")
        meter = graph.add("ebur128", "metadata=1:peak=true")
        self._sink = graph.add("abuffersink")
        self._source.link_to(meter)
        meter.link_to(self._sink)
        graph.configure()
        self._graph = graph
        self._samples = 0
        self._integrated = _GATE_LUFS
        self._true_peak = 0.0
        self._peak = 0

    def push(self, block: Int16) -> None:
        for piece in pieces([block]):
            self._filter(piece)
            self._peak = max(self._peak, int(piece.max()), -int(piece.min()))

    def result(self) -> Loudness:
        """Ends the measurement: nothing may be pushed afterwards."""
        integrated, samples = self._integrated, self._samples
        self._filter(np.zeros(_FLUSH, np.int16))
        lufs = integrated if integrated > _GATE_LUFS and math.isfinite(integrated) else None
        return Loudness(lufs, self._peak_db(), samples)

    def _peak_db(self) -> float | None:
        if not self._peak:
            return None
        # The oversampled peak is never lower than a sample's own; of the two, the safe one.
        return 20.0 * math.log10(max(self._true_peak + _STEP / 2, self._peak / FULL_SCALE))

    def _filter(self, samples: Int16) -> None:
        frame = AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = SAMPLE_RATE
        frame.pts = self._samples
        self._samples += len(samples)
        self._source.push(frame)
        while True:
            try:
                measured = self._sink.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            assert isinstance(measured, AudioFrame)
            self._integrated = float(measured.metadata["lavfi.r128.I"])
            self._true_peak = max(self._true_peak, float(measured.metadata["lavfi.r128.true_peak"]))


def measure(blocks: Iterable[Int16]) -> Loudness:
    meter = Meter()
    for block in blocks:
        meter.push(block)
    return meter.result()


def gain_for(measured: Loudness, target_lufs: float = TARGET_LUFS, peak_dbtp: float = PEAK_DBTP) -> Gain:
    """What has no loudness is left as it is, unless its peak is too high."""
    wanted = 0.0 if measured.integrated_lufs is None else target_lufs - measured.integrated_lufs
    if measured.true_peak_dbtp is None:
        return Gain(0.0, False)
    room = peak_dbtp - measured.true_peak_dbtp
    return Gain(min(wanted, room), room < wanted)


def amplified(blocks: Iterable[Int16], gain: Gain) -> Iterator[Int16]:
    """As many samples; a gain of 0 dB changes none."""
    factor = np.float32(gain.factor / FULL_SCALE)
    for piece in pieces(blocks):
        yield piece if gain.db == 0.0 else to_int16(piece.astype(np.float32) * factor)
