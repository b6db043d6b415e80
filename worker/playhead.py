"""Which of the model's samples a listener has heard."""

from __future__ import annotations

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

    def heard(self, samples: int | None) -> int:
        """Up to which sample of the model, if so many that were sent have been heard; None: all."""
        heard = self._sent if samples is None else min(self._sent, samples)
        model = 0
        for start, before in self._segments:
            if heard > before:
                model = start + heard - before
        return model
