"""From the model's frames to what a session asked for: trim, gain, resample, encode; and the times on both sides.

Everything runs on float32 from the first step that changes a sample on, and is rounded and clipped once, at the end:
no dither (silence stays zero), no wrap, and what comes out does not depend on how the input was cut.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import soxr

from worker.wav import wav_header

Encoding = Literal["pcm_s16le", "pcm_f32le", "wav"]
Samples = npt.NDArray[np.float32]
"""[T], full scale is 1.0."""

FULL_SCALE = 32_768.0
_WIDTHS: dict[Encoding, int] = {"pcm_s16le": 2, "pcm_f32le": 4, "wav": 2}

# Leading silence: 5 ms windows below -50 dBFS. A consonant sets in softly, so 25 ms before the first louder window are
# kept; and a second of silence is no accident of the model but a pause that the text asked for.
_WINDOW_S, _KEPT_WINDOWS, _LONGEST_S = 0.005, 5, 1.0
_SILENCE = 10 ** (-50 / 20)


class LeadingSilence:
    """Takes the silence off the beginning of a generation. Windows count from its first sample, however it is cut."""

    def __init__(self, sample_rate: int) -> None:
        self._window = round(sample_rate * _WINDOW_S)
        self._longest = round(sample_rate * _LONGEST_S)
        self._held: Samples = np.empty(0, np.float32)
        self._searching = True
        self.trimmed = 0
        """Samples taken off so far; a multiple of the window until settled."""

    def reset(self) -> None:
        self._held = np.empty(0, np.float32)
        self._searching = True
        self.trimmed = 0

    @property
    def settled(self) -> bool:
        """Whether the sound has begun, so that ``trimmed`` is final."""
        return not self._searching

    def push(self, samples: Samples) -> Samples:
        """What is to be heard of all that was pushed. May hold back 30 ms until the sound begins."""
        if not self._searching:
            return samples
        self._held = np.concatenate([self._held, samples])
        onset = self._onset()
        if onset is not None or self.trimmed + len(self._held) >= self._longest + self._kept:
            self._drop(self._longest - self.trimmed if onset is None else min(onset, self._longest - self.trimmed))
            return self._release()
        # What can no longer be needed goes at once, so that nothing here grows.
        self._drop(max(0, len(self._held) // self._window * self._window - self._kept))
        return np.empty(0, np.float32)

    @property
    def _kept(self) -> int:
        return self._window * _KEPT_WINDOWS

    def _onset(self) -> int | None:
        """Where, in what is held, the audio to keep begins."""
        windows = self._held[: len(self._held) // self._window * self._window].reshape(-1, self._window)
        loud = np.flatnonzero(np.square(windows).mean(axis=1) > _SILENCE**2)
        return None if not len(loud) else max(0, int(loud[0]) * self._window - self._kept)

    def _drop(self, samples: int) -> None:
        self._held = self._held[samples:]
        self.trimmed += samples

    def _release(self) -> Samples:
        self._searching = False
        held, self._held = self._held, np.empty(0, np.float32)
        return held


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Audio between two flushes of a generation: the resampler starts afresh and rounds its length to whole samples."""

    fed: int
    """Samples of the generation, without the trimmed ones, that came before it."""
    pts: int
    """Index of its first output sample."""


class OutputChain:
    """One session's audio. Not thread-safe; no call blocks; a call costs tens of microseconds a frame.

    Every payload holds whole samples. ``pts`` runs on through the whole session; model samples count from 0 in each
    generation, and ``reset`` begins the next one.
    """

    def __init__(
        self,
        encoding: Encoding,
        sample_rate: int,
        *,
        model_rate: int = 24_000,
        gain_db: float = 0.0,
        trim_silence: bool = False,
    ) -> None:
        self._encoding = encoding
        self._rate = sample_rate
        self._ratio = sample_rate / model_rate
        self._gain = np.float32(10 ** (gain_db / 20))
        self._silence = LeadingSilence(model_rate) if trim_silence else None
        # HQ: flat to 0.9 of the narrower band, images and aliases below -120 dB, lag between 5 and 71 ms of audio.
        self._stream = None if sample_rate == model_rate else soxr.ResampleStream(model_rate, sample_rate, 1, "float32")
        self._plain = self._stream is None and gain_db == 0.0 and not trim_silence and encoding != "pcm_f32le"
        self._pts = 0
        self._fed = 0
        self._stretches = [_Stretch(0, 0)]
        self._header_due = encoding == "wav"

    @property
    def header(self) -> bytes:
        """What the first payload begins with: the container's header, empty without a container."""
        return wav_header(self._rate) if self._encoding == "wav" else b""

    @property
    def pts(self) -> int:
        """Index, at the output rate, of the next sample to come out."""
        return self._pts

    def push(self, pcm: bytes) -> bytes:
        """Model audio (little-endian int16) in, payload out; it may be empty, while filters fill or silence lasts."""
        assert len(pcm) % 2 == 0, "whole samples only"
        if self._plain:
            self._fed += len(pcm) // 2
            return self._payload(pcm)
        samples = np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(FULL_SCALE)
        if self._silence is not None:
            samples = self._silence.push(samples)
        self._fed += len(samples)
        samples = samples * self._gain
        return self._payload(self._encoded(samples if self._stream is None else self._stream.resample_chunk(samples)))

    def flush(self) -> bytes:
        """The tail of what was pushed; the stretch's length is then round(samples * rate / model rate) exactly.

        The chain goes on with the next push; a second flush is empty.
        """
        if self._stream is None:
            return b""
        tail = self._stream.resample_chunk(np.empty(0, np.float32), last=True)
        self._stream.clear()
        payload = self._payload(self._encoded(tail))
        if self._fed > self._stretches[-1].fed:
            self._stretches.append(_Stretch(self._fed, self._pts))
        return payload

    def reset(self) -> None:
        """Cancelled: what the filters hold is dropped, and the next push begins a new generation."""
        if self._stream is not None:
            self._stream.clear()
        if self._silence is not None:
            self._silence.reset()
        self._fed = 0
        self._stretches = [_Stretch(0, self._pts)]

    def media_ms(self, model_sample: int) -> float | None:
        """When, in the session's media time, a sample of the current generation is heard; also for samples to come.

        A trimmed sample is heard when the sound begins. None: not known before the leading silence ends.
        """
        if self._silence is not None and not self._silence.settled and model_sample > self._silence.trimmed:
            return None
        fed = max(0, model_sample - self._trimmed)
        stretch = self._stretches[bisect_right(self._stretches, fed, key=lambda stretch: stretch.fed) - 1]
        return 1000.0 * (stretch.pts + (fed - stretch.fed) * self._ratio) / self._rate

    def model_sample(self, media_ms: float) -> int:
        """How many samples of the current generation have been heard at a media time; at most what came out."""
        heard = min(media_ms * self._rate / 1000.0, self._pts)
        index = bisect_right(self._stretches, heard, key=lambda stretch: stretch.pts) - 1
        if index < 0 or heard <= self._stretches[0].pts:
            return 0
        stretch = self._stretches[index]
        end = self._stretches[index + 1].fed if index + 1 < len(self._stretches) else self._fed
        return self._trimmed + min(end, stretch.fed + round((heard - stretch.pts) / self._ratio))

    @property
    def _trimmed(self) -> int:
        return 0 if self._silence is None else self._silence.trimmed

    def _encoded(self, samples: Samples) -> bytes:
        if self._encoding == "pcm_f32le":
            return np.clip(samples, -1.0, 1.0).astype("<f4").tobytes()
        rounded: Samples = np.rint(samples * FULL_SCALE)
        return np.clip(rounded, -FULL_SCALE, FULL_SCALE - 1).astype("<i2").tobytes()

    def _payload(self, data: bytes) -> bytes:
        self._pts += len(data) // _WIDTHS[self._encoding]
        if self._header_due and data:
            self._header_due = False
            return self.header + data
        return data
