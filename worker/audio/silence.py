"""The silence that a voice begins with."""

from __future__ import annotations

import numpy as np

from worker.audio.levels import Samples

# 5 ms windows below -50 dBFS. A consonant sets in softly, so 25 ms before the first louder window are kept; and a
# second of silence is no accident of the model but a pause that the text asked for.
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
