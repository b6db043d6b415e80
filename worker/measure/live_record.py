"""What one call of a live measurement went through, and what many come to. Times in seconds."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from worker.measure.live_ear import Ear
from worker.measure.load import RATE
from worker.measure.player import Player
from worker.measure.record import Outcome
from worker.measure.spread import Spread


class Scene(enum.Enum):
    TYPED = "typed"
    """Words at the pace of a language model."""
    STALLED = "stalled"
    """The same, but in mid-sentence no word comes until the model has waited for one."""
    INTERRUPTED = "interrupted"
    """Barge-in: cancelled at a random moment, with the next utterance at once."""
    SLOW_LISTENER = "slow_listener"
    """One subscriber more, which hardly reads."""
    HUNG_UP = "hung_up"
    """The caller's connection closes in mid-sentence, without a word."""
    JOINED = "joined"
    """All open in the same instant."""


@dataclass(frozen=True, slots=True)
class BargeIn:
    """From just before ``cancel`` was published."""

    last_frame_s: float
    """To the last audio of what was cancelled; 0: none came any more."""
    cancelled_s: float
    next_audio_s: float
    """To the first audio of the utterance that was given at once."""


@dataclass(slots=True)
class CallRecord:
    scene: Scene
    outcome: Outcome = Outcome.FAILED
    code: str = ""
    """Of a refusal or failure."""
    first_audio_s: float | None = None
    """From just before the first text (with ``open``, if it was opened with text) was published."""
    barge_ins: list[BargeIn] = field(default_factory=list)
    resumed_s: list[float] = field(default_factory=list)
    """From the text that ended a stall to audio."""
    freed_s: float | None = None
    """From hanging up until the worker has ended the session."""
    ear: Ear = field(default_factory=Ear)

    @property
    def players(self) -> Iterator[Player]:
        return (utterance.player for utterance in self.ear.utterances.values())


@dataclass(frozen=True, slots=True)
class LiveSummary:
    sessions: int
    seconds: float
    calls: dict[str, int]
    """By scene."""
    codes: dict[str, int]
    refused: int
    lost_sessions: int
    """Opened, and ended otherwise than their caller asked for."""
    first_audio: Spread | None
    joined: Spread | None
    """First audio of those that opened in the same instant; no part of ``first_audio``."""
    last_frame: Spread | None
    cancelled: Spread | None
    next_audio: Spread | None
    resumed: Spread | None
    freed: Spread | None
    lateness: Spread | None
    """Of every audio message after an utterance's first, against the ideal player; negative = early."""
    lateness_beside_slow: Spread | None
    """The same of the good listeners beside a slow one."""
    messages: int
    underruns: int
    audio_s: float
    lost_frames: int
    doubled_frames: int
    stale_frames: int
    lost_samples: int

    @property
    def faults(self) -> int:
        """What must be zero on any machine: sessions lost, frames lost, doubled or stale."""
        frames = self.lost_frames + self.doubled_frames + self.stale_frames
        return self.lost_sessions + frames + (self.lost_samples > 0)


def summarise_live(records: Sequence[CallRecord], sessions: int, seconds: float) -> LiveSummary:
    players = [player for record in records for player in record.players]
    calls = Counter(record.scene.value for record in records)
    barge_ins = [barge_in for record in records for barge_in in record.barge_ins]
    return LiveSummary(
        sessions=sessions,
        seconds=seconds,
        calls={scene.value: calls[scene.value] for scene in Scene},
        codes=dict(Counter(record.code for record in records if record.code)),
        refused=sum(record.outcome is Outcome.REFUSED for record in records),
        lost_sessions=sum(record.outcome is Outcome.FAILED for record in records),
        first_audio=_spread(r.first_audio_s for r in records if r.scene is not Scene.JOINED),
        joined=_spread(r.first_audio_s for r in records if r.scene is Scene.JOINED),
        last_frame=Spread.of(barge_in.last_frame_s for barge_in in barge_ins),
        cancelled=Spread.of(barge_in.cancelled_s for barge_in in barge_ins),
        next_audio=Spread.of(barge_in.next_audio_s for barge_in in barge_ins),
        resumed=Spread.of(value for record in records for value in record.resumed_s),
        freed=_spread(record.freed_s for record in records),
        lateness=_lateness(records),
        lateness_beside_slow=_lateness(r for r in records if r.scene is Scene.SLOW_LISTENER),
        messages=sum(len(player.lateness_s) for player in players),
        underruns=sum(player.underrun_count for player in players),
        audio_s=sum(player.samples for player in players) / RATE,
        lost_frames=sum(record.ear.lost for record in records),
        doubled_frames=sum(record.ear.doubled + record.ear.misplaced for record in records),
        stale_frames=sum(record.ear.stale for record in records),
        lost_samples=sum(record.ear.lost_samples for record in records),
    )


def _spread(values: Iterable[float | None]) -> Spread | None:
    return Spread.of(value for value in values if value is not None)


def _lateness(records: Iterable[CallRecord]) -> Spread | None:
    return Spread.of(late for record in records for player in record.players for late in player.lateness_s[1:])
