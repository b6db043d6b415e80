"""What a session needs of its worker, and what the generations of one session share."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from scheduler import messages as sched
from worker.egress import Egress
from worker.errors import WireError, too_large, unsupported_option
from worker.intake import Intake
from worker.narration import Opening
from worker.tally import Tally
from worker.telemetry import SessionSpan, Telemetry
from worker.wire.requests import Open, Text


def _unlimited(text: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Plumbing:
    """One a worker, but for ``take_text``, which is the tenant's."""

    submit: Callable[[sched.Command], None]
    """To the step loop. Raises InboxFull, but not for a ``Cancel`` that frees the row."""
    reader: Executor
    """Where long texts are read."""
    telemetry: Telemetry
    now: Callable[[], float]
    frame_samples: int
    sample_rate: int
    text_chars: int
    buffer_chars: int
    may_park: Callable[[], bool]
    """Whether one more session may be without a row."""
    rows_changed: Callable[[], None]
    """More sessions hold a row or want one than did a moment ago."""
    egress_full: Callable[[], bool]
    """Whether so much waits to be sent that sessions without a beat should pause."""
    take_text: Callable[[str], None] = _unlimited
    """Count a text that is taken. Raises WireError (over_limit): it must not be."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One a session."""

    session: str
    settled: Open
    opening: Opening
    egress: Egress
    intake: Intake
    span: SessionSpan
    tally: Tally
    plumbing: Plumbing
    submit: Callable[[sched.Command], None]
    """The session's own way to the step loop: it ends the session where a command is not taken."""
    set_to_work: Callable[[sched.Push | sched.Flush | sched.Finish], None]
    """The same for what needs a row."""
    fail: Callable[[WireError], None]
    """Ends the session for a fault on this side."""

    def check(self, message: Text, unspoken: int) -> None:
        """``unspoken``: characters that wait. Counts a text that is taken. Raises WireError for one that is not."""
        p, characters = self.plumbing, len(message.text)
        if characters > p.text_chars:
            raise too_large("text", p.text_chars, "characters")
        if unspoken + characters > p.buffer_chars:
            raise too_large("text", p.buffer_chars, "characters unspoken", retryable=True)
        if message.speaker is not None and message.speaker >= len(self.settled.voices or ("",)):
            raise unsupported_option("speaker", "the session has no such voice")
        p.take_text(message.text)
