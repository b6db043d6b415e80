"""Where the model's samples stand among those that are sent."""

from __future__ import annotations

from bisect import bisect_right

from engine.contract import SlotFrame

SAMPLE_BYTES = 2


class Playhead:
    """Of one generation. The model's time and what is sent differ: a flush leaves out what lies inside the delay."""

    def __init__(self) -> None:
        self._segments: list[tuple[int, int]] = []  # (model sample, samples sent before it)
        self._sent = 0

    def send(self, frame: SlotFrame) -> None:
        """A frame with audio goes out."""
        if not self._segments or frame.model_start - self._sent != self._segments[-1][0] - self._segments[-1][1]:
            self._segments.append((frame.model_start, self._sent))
        self._sent += len(frame.pcm) // SAMPLE_BYTES

    def place(self, model_sample: int) -> int:
        """How many samples are sent before a sample of the model; one that is left out stands where the next ones do,
        and one to come where it will be if nothing is left out before it."""
        index = bisect_right(self._segments, model_sample, key=lambda segment: segment[0]) - 1
        if index < 0:
            return 0
        start, before = self._segments[index]
        place = before + model_sample - start
        following = self._segments[index + 1 : index + 2]
        return min(place, following[0][1]) if following else place
