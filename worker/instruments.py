"""The worker's metrics: what there is, under which OpenTelemetry name and unit, with which buckets.

Recording into the SDK costs 8-10 us a call, so it happens per step and per session only. What is counted per frame is
counted in plain numbers (``Tally``), which the reader's callbacks look at when somebody scrapes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from opentelemetry.metrics import CallbackOptions, Meter, Observation

Labels = Mapping[str, str]

_TTFA_S = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0, 5.0)
_QUEUE_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 1.0, 5.0)
_STEP_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.2, 0.5, 2.0)
_LATENESS_S = (0.0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 1.0)
_BATCH = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


@dataclass(slots=True)
class Tally:
    """Written by the event loop alone, read by the scraping thread; single numbers, so neither waits."""

    active: int = 0
    limit: int = 0
    slots: int = 0
    pending_bytes: int = 0
    frames: int = 0
    shed: int = 0
    underruns: int = 0
    stalls: int = 0
    words: int = 0
    reconnects: int = 0
    dropped_replies: int = 0
    refused_texts: int = 0
    audio_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By tenant; one entry "" where the tenant is no label."""


class Instruments:
    """``labels`` are on every series."""

    def __init__(self, meter: Meter, tally: Tally, labels: Labels) -> None:
        self._meter, self._labels = meter, labels
        self.ttfa = meter.create_histogram(
            "tts.ttfa", "s", "From an open to its first audio", explicit_bucket_boundaries_advisory=_TTFA_S
        )
        self.queue = meter.create_histogram(
            "tts.queue", "s", "From an open to the end of its first step", explicit_bucket_boundaries_advisory=_QUEUE_S
        )
        self.step = meter.create_histogram(
            "tts.step", "s", "Duration of a fused step", explicit_bucket_boundaries_advisory=_STEP_S
        )
        self.batch = meter.create_histogram(
            "tts.step.batch", "", "Sessions in a fused step", explicit_bucket_boundaries_advisory=_BATCH
        )
        self.lateness = meter.create_histogram(
            "tts.frame.lateness",
            "s",
            "How long after its playback deadline the latest frame of a step was ready; 0 if all were on time",
            explicit_bucket_boundaries_advisory=_LATENESS_S,
        )
        self.opened = meter.create_counter("tts.sessions.opened", "", "Sessions accepted")
        self.ended = meter.create_counter("tts.sessions.ended", "", "Sessions ended, by reason")
        self.refused = meter.create_counter("tts.opens.refused", "", "Opens refused, by error code")
        self.characters = meter.create_counter("tts.characters", "", "Characters of text of ended sessions")
        self._observe(tally)

    def _observe(self, tally: Tally) -> None:
        gauge, counter = self._meter.create_observable_gauge, self._meter.create_observable_counter
        for name, unit, text, read in (
            ("tts.sessions.active", "", "Sessions that hold a row", lambda: tally.active),
            ("tts.sessions.limit", "", "Sessions that admission allows now", lambda: tally.limit),
            ("tts.slots", "", "Rows of the engine", lambda: tally.slots),
            ("tts.nats.pending", "By", "Bytes that wait to be sent", lambda: tally.pending_bytes),
        ):
            gauge(name, [self._reading(read)], unit, text)
        for name, text, read in (
            ("tts.frames", "Frames with audio", lambda: tally.frames),
            ("tts.frames.shed", "Frames dropped because too much waited to be sent", lambda: tally.shed),
            ("tts.underruns", "Frames that were ready after their playback deadline", lambda: tally.underruns),
            ("tts.stalls", "Times that a session waited for text in the middle of its speech", lambda: tally.stalls),
            ("tts.words", "Words that entered the text stream", lambda: tally.words),
            ("tts.nats.reconnects", "Reconnects to NATS", lambda: tally.reconnects),
            (
                "tts.replies.dropped",
                "Requests unanswered for their foreign reply subject",
                lambda: tally.dropped_replies,
            ),
            ("tts.texts.refused", "Texts beyond their tenant's character rate", lambda: tally.refused_texts),
        ):
            counter(name, [self._reading(read)], "", text)
        counter("tts.audio", [lambda _: self._audio(tally)], "s", "Audio made")

    def _reading(self, read: Callable[[], float]) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _: [Observation(read(), self._labels)]

    def _audio(self, tally: Tally) -> Iterable[Observation]:
        return [
            Observation(seconds, {**self._labels, "tenant": tenant} if tenant else self._labels)
            for tenant, seconds in list(tally.audio_s.items())
        ]
