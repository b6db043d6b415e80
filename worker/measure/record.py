"""What one session of the load went through, and what many of them come to."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from worker.measure.player import Player, Underrun
from worker.measure.spread import Spread

WORST_UNDERRUNS = 20


class Outcome(enum.Enum):
    FINISHED = "finished"
    """``end`` came, with all of the text spoken."""
    CUT = "cut"
    """Still speaking when the time was over; counts with what it had shown by then."""
    REFUSED = "refused"
    """Not opened: nobody had room, or the open was answered with an error."""
    FAILED = "failed"
    """Opened, and ended with an error, early, or not at all."""


@dataclass(slots=True)
class SessionRecord:
    """Times in seconds of the event loop's clock."""

    first_wave: bool
    """One of the sessions that all opened in the same instant."""
    opened_at: float
    outcome: Outcome = Outcome.FAILED
    code: str = ""
    """Of a refusal or failure."""
    player: Player | None = None
    first_audio_s: float | None = None
    """From just before ``open`` was published to the first non-empty audio message."""
    audible_s: float | None = None
    """The same plus the silence before the first audible sample (Coval)."""
    mute_s: float | None = None
    """How long a session without any audio was listened to."""
    sent_share: float | None = None
    """Share of the text that had been sent when the first audio came."""
    waits: int = 0
    """Times that the model had no text."""
    lost_messages: int = 0
    """Audio messages that never came, by their numbers."""

    @property
    def rtf(self) -> float | None:
        """From ``open`` to the last audio, by the audio's length; None before there is any."""
        player = self.player
        if player is None or player.last is None or not player.audio_s:
            return None
        return (player.last - self.opened_at) / player.audio_s


@dataclass(frozen=True, slots=True)
class Summary:
    """Spreads in seconds; None: nothing was measured."""

    sessions: int
    """Slots of the load: sessions at once."""
    seconds: float
    opened: int
    outcomes: dict[str, int]
    codes: dict[str, int]
    first_audio: Spread | None
    first_wave: Spread | None
    """First audio of the sessions that all opened at once."""
    audible: Spread | None
    mute: Spread | None
    """Sessions that are in none of these, for they had no audio when the time was over."""
    lateness: Spread | None
    """Of every audio message after a session's first, against the ideal player; negative = early."""
    rtf: Spread | None
    sent_share: Spread | None
    audio_s: float
    messages: int
    underruns: int
    """Messages that came after their first sample's time."""
    underrun_sessions: int
    late_samples_s: float
    lost_samples_s: float
    lost_messages: int
    misplaced: int
    """Messages whose samples lie before the end of an earlier one."""
    waits: int
    worst: tuple[Underrun, ...]
    """The latest messages, latest first."""

    @property
    def refused(self) -> int:
        return self.outcomes[Outcome.REFUSED.value]

    @property
    def failed(self) -> int:
        return self.outcomes[Outcome.FAILED.value]

    @property
    def clean(self) -> bool:
        lost = self.lost_messages or self.lost_samples_s or self.misplaced
        return not (self.refused or self.failed or self.underruns or lost)


def summarise(records: Sequence[SessionRecord], sessions: int, seconds: float, rate: int) -> Summary:
    players = [record.player for record in records if record.player is not None]
    counts = Counter(record.outcome.value for record in records)
    missed = (underrun for player in players for underrun in player.underruns)
    return Summary(
        sessions=sessions,
        seconds=seconds,
        opened=sum(record.player is not None for record in records),
        outcomes={outcome.value: counts[outcome.value] for outcome in Outcome},
        codes=dict(Counter(record.code for record in records if record.code)),
        first_audio=_spread(record.first_audio_s for record in records),
        first_wave=_spread(record.first_audio_s for record in records if record.first_wave),
        audible=_spread(record.audible_s for record in records),
        mute=_spread(record.mute_s for record in records),
        lateness=_spread(late for player in players for late in player.lateness_s[1:]),
        rtf=_spread(record.rtf for record in records if record.outcome is Outcome.FINISHED),
        sent_share=_spread(record.sent_share for record in records),
        audio_s=sum(player.audio_s for player in players),
        messages=sum(len(player.lateness_s) for player in players),
        underruns=sum(player.underrun_count for player in players),
        underrun_sessions=sum(player.underrun_count > 0 for player in players),
        late_samples_s=sum(player.late_samples for player in players) / rate,
        lost_samples_s=sum(player.lost_samples for player in players) / rate,
        misplaced=sum(player.misplaced for player in players),
        lost_messages=sum(record.lost_messages for record in records),
        waits=sum(record.waits for record in records),
        worst=tuple(sorted(missed, key=lambda underrun: -underrun.late_s)[:WORST_UNDERRUNS]),
    )


def _spread(values: Iterable[float | None]) -> Spread | None:
    return Spread.of(value for value in values if value is not None)
