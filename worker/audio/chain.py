"""One session's audio: frames of the model in, payloads out.

Everything runs on float32 from the first step that changes a sample on, and is rounded and clipped once, at the end,
and what comes out does not depend on how the input was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import soxr

from worker.audio.edges import Ending, Onset
from worker.audio.encoders import Encoding, Pcm, encoder_for
from worker.audio.levels import Samples, from_int16
from worker.audio.silence import LeadingSilence
from worker.audio.timeline import Timeline


class OutputChain:
    """Not thread-safe; no call blocks. A frame of 80 ms costs tens of microseconds, as Opus some 0.15 ms.

    Every payload holds whole samples, or whole pages. ``pts`` counts at the output rate, for Opus at the rate that was
    asked for, and runs on through the whole session; model samples count from 0 in each generation, and ``cut`` begins
    the next one.
    """

    def __init__(
        self,
        encoding: Encoding,
        sample_rate: int,
        *,
        model_rate: int = 24_000,
        gain_db: float = 0.0,
        trim_silence: bool = False,
        stream: int = 0,
        pts: int = 0,
    ) -> None:
        """``stream``: the number of an Ogg stream, 32 bits, the same wherever the session goes on. ``pts`` above 0: it
        goes on here, and its listeners have the header."""
        self._rate, self._model_rate = sample_rate, model_rate
        self._gain = np.float32(10 ** (gain_db / 20))
        self._silence = LeadingSilence(model_rate) if trim_silence else None
        self._onset = Onset(model_rate)
        # HQ: flat to 0.9 of the narrower band, images and aliases below -120 dB, lag between 5 and 71 ms of audio.
        self._stream = None if sample_rate == model_rate else soxr.ResampleStream(model_rate, sample_rate, 1, "float32")
        self._encoder = encoder_for(encoding, sample_rate, stream=stream, pts=pts)
        plain = self._stream is None and gain_db == 0.0 and not trim_silence
        self._plain = self._encoder if plain and encoding in ("pcm_s16le", "wav") else None
        self._given, self._sent = Ending(model_rate), Ending(sample_rate)  # before the resampler, and after it
        self._timeline = self._new_timeline()

    @property
    def header_bytes(self) -> bytes:
        """What the first payload begins with: the container's header, empty without a container. A listener who missed
        it puts it before what he hears."""
        return self._encoder.header

    @property
    def pts(self) -> int:
        """Index, at the output rate, of the next sample to come out."""
        return self._encoder.pts

    @property
    def remembers(self) -> bool:
        """Whether what comes out depends on more of what was pushed than how much it was."""
        return self._plain is None

    def resume_at(self, pts: int) -> None:
        """What another chain has sent ends here. An Ogg stream goes on with the packet that it has."""
        self._encoder.skip(pts - self._encoder.pts)

    def push(self, pcm: bytes) -> bytes:
        """Model audio (little-endian int16) in, payload out; it may be empty, while filters fill or silence lasts."""
        assert len(pcm) % 2 == 0, "whole samples only"
        if isinstance(self._plain, Pcm) and self._onset.over and pcm:
            self._timeline.fed += len(pcm) // 2
            self._sent.heard(from_int16(pcm[-4:]))
            return self._plain.push_encoded(pcm, len(pcm) // 2)
        samples = from_int16(pcm)
        if self._silence is not None:
            samples = self._silence.push(samples)
        self._timeline.fed += len(samples)
        return self._resampled(self._onset.push(samples * self._gain))

    def flush(self) -> bytes:
        """The tail of what was pushed, all of it. The stretch then has round(samples * rate / model rate) samples, and
        more where it ended in a sound or where the format has whole frames only (G.711, Opus).

        The chain goes on with the next push; a second flush is empty.
        """
        return self._drained() + self._ended(self._encoder.flush)

    def finish(self) -> bytes:
        """The same at the session's end, with the container's own end. Nothing may follow; a second call is empty."""
        return self._drained() + self._ended(self._encoder.finish)

    def cut(self, *, last: bool = False) -> bytes:
        """Cancelled: what the resampler holds is dropped, what has come out is led to 0, and the next push begins a new
        generation. ``last``: there will be none."""
        if self._stream is not None:
            self._stream.clear()
        payload = self._encoded(self._sent.decay())
        payload += self._ended(self._encoder.finish if last else self._encoder.flush)
        if self._silence is not None:
            self._silence.reset()
        self._timeline = self._new_timeline()
        return payload

    def pieces(self, payload: bytes, pts: int, limit: int) -> Iterator[tuple[bytes, int]]:
        """A payload that began at ``pts`` in parts of at most ``limit`` bytes, each with its own pts."""
        unit = self._encoder.unit_bytes
        if unit is None or len(payload) <= limit:
            yield payload, pts
            return
        header = len(self.header_bytes) if pts == 0 else 0
        for at in range(0, len(payload), limit // unit * unit):
            yield payload[at : at + limit // unit * unit], pts + max(0, at - header) // unit

    def media_ms(self, model_sample: int) -> float | None:
        """When, in the session's media time, a sample of the current generation is heard; also for samples to come.

        A trimmed sample is heard when the sound begins. None: not known before the leading silence ends.
        """
        if self._silence is not None and not self._silence.settled and model_sample > self._silence.trimmed:
            return None
        return 1000.0 * self._timeline.position(max(0, model_sample - self.trimmed)) / self._rate

    def model_sample(self, media_ms: float) -> int:
        """How many samples of the current generation have been heard at a media time; at most what came out."""
        heard = self._timeline.fed_at(min(media_ms * self._rate / 1000.0, self.pts))
        return self.trimmed + heard if heard else 0

    @property
    def trimmed(self) -> int:
        """Model samples taken off the beginning of the current generation so far."""
        return 0 if self._silence is None else self._silence.trimmed

    def _new_timeline(self) -> Timeline:
        self._onset.reset()
        return Timeline(self._encoder.position, model_rate=self._model_rate, output_rate=self._rate)

    def _drained(self) -> bytes:
        """What the resampler holds."""
        if self._stream is None:
            return self._encoded(self._sent.decay())
        payload = self._resampled(self._given.decay())
        tail = self._stream.resample_chunk(np.empty(0, np.float32), last=True)
        self._stream.clear()
        return payload + self._encoded(tail)

    def _ended(self, end: Callable[[], bytes]) -> bytes:
        payload = end()
        self._given.reset()
        self._sent.reset()
        if self._timeline.stretch_begun:
            self._timeline.begin_stretch(self._encoder.position)
            self._onset.reset()
        return payload

    def _resampled(self, samples: Samples) -> bytes:
        if self._stream is None:
            return self._encoded(samples)
        self._given.heard(samples)
        return self._encoded(self._stream.resample_chunk(samples))

    def _encoded(self, samples: Samples) -> bytes:
        self._sent.heard(samples)
        return self._encoder.push(samples)
