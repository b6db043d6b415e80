"""Commands into the step loop and events out of it: the whole traffic between the event loop and the engine thread.

A session is known by its id (an opaque string). ``generation`` counts from 0 and grows by one at each ``Cancel`` that
keeps the session.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from engine.contract import Entry, SlotFrame, SlotOptions


class Pace(enum.Enum):
    """How far a session may run ahead of its playback."""

    LIVE = "live"
    """Bounded lead, on the beat."""
    FAST = "fast"
    """Unbounded, after all live sessions."""


@dataclass(frozen=True, slots=True)
class Open:
    """Take a row for a new session. ``Started`` or ``Refused`` follows."""

    session: str
    options: SlotOptions
    pace: Pace = Pace.LIVE
    lead_ms: float = 480.0
    credit_ms: float | None = None
    """Audio that may be sent before further ``Credit``; None = no credit scheme."""
    lasting: bool = False
    """``Ended`` frees the row only: a cancel that keeps the session may cross with it. The session is gone with a
    ``Cancel`` that keeps nothing, or with ``Failed``."""


@dataclass(frozen=True, slots=True)
class Push:
    session: str
    generation: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Flush:
    session: str
    generation: int


@dataclass(frozen=True, slots=True)
class Finish:
    session: str
    generation: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the current generation now. With ``successor`` the row is kept and starts that generation afresh, else the
    row is freed. ``Cancelled`` follows, and no ``Frame`` of an older generation after it."""

    session: str
    successor: SlotOptions | None = None


@dataclass(frozen=True, slots=True)
class Park:
    """Give the row up until there is something to say; ``Parked`` follows. Does nothing once text was pushed in the
    generation: what the model has in mind must not be lost. The first ``Push`` brings the session back, into the next
    row that is free, ahead of every ``Open``; ``Started`` follows."""

    session: str
    generation: int


@dataclass(frozen=True, slots=True)
class Credit:
    session: str
    ms: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Stop stepping the session (nobody listens, or egress is full) until ``Resume``."""

    session: str


@dataclass(frozen=True, slots=True)
class Resume:
    session: str


@dataclass(frozen=True, slots=True)
class Restore:
    """Take a row for a session that was begun elsewhere, and rebuild its slot. ``Started`` or ``Refused`` follows; then
    ``Retold`` for the steps that were recorded, ``Restored``, and what would have followed there."""

    open: Open
    script: tuple[Push | Flush | Finish, ...]
    """All text of the generation, or that from the word on with which the first record begins."""
    answered: int
    """Flushes of the script whose answer is out."""
    records: tuple[bytes, ...]
    first: int = 0
    """Steps of the generation before the first record."""
    sound_from: int | None = None
    """Step from which the retold frames need their samples, not only their length; None: none do."""
    speaker: int = 0
    """Who spoke last before the first record."""

    @property
    def session(self) -> str:
        return self.open.session


Command = Open | Restore | Push | Flush | Finish | Cancel | Park | Credit | Hold | Resume


@dataclass(frozen=True, slots=True)
class Started:
    """The session has a row, or has one again. ``queued_s``: from ``Open``, or from the ``Push`` that brought it back,
    being submitted to now."""

    session: str
    queued_s: float


@dataclass(frozen=True, slots=True)
class Parked:
    """The session's row is free."""

    session: str
    generation: int


@dataclass(frozen=True, slots=True)
class Refused:
    """No row was free."""

    session: str


@dataclass(frozen=True, slots=True)
class FirstStep:
    session: str
    queued_s: float
    """From ``Open`` being submitted to the end of its first step."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One committed step with or without audio (``frame.pcm`` may be empty while the model is in its delay)."""

    session: str
    generation: int
    frame: SlotFrame
    lateness_s: float
    """How long after its playback deadline the frame was ready; negative = early; 0.0 for first audio."""


@dataclass(frozen=True, slots=True)
class Retold:
    """Frames that a restored session has sent before, elsewhere."""

    session: str
    generation: int
    frames: tuple[SlotFrame, ...]


@dataclass(frozen=True, slots=True)
class Restored:
    """The session goes on from here."""

    session: str
    generation: int


@dataclass(frozen=True, slots=True)
class Stalled:
    """The model wants the next word and has none. Once per stall; nothing follows until text, flush or finish."""

    session: str
    generation: int
    heard: int
    """How many ``Push``, ``Flush`` and ``Finish`` of the generation had been taken before; a later one has crossed with
    this and ended the stall already."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """Comes after the ``Frame`` with the last audio."""

    session: str
    generation: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The text is spoken to its end and the row is free. Comes after the last ``Frame``. Nothing follows, unless the
    session is ``lasting``."""

    session: str
    generation: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """``generation`` is the one that was ended."""

    session: str
    generation: int
    kept: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """The row's arithmetic failed or the engine raised; the row is free."""

    session: str
    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class StepReport:
    """One fused step, for metrics."""

    batch: int
    duration_s: float
    active: int
    """Sessions that hold a row."""
    limit: int
    """Sessions that admission allows now."""
    words: int = field(default=0)


Event = (
    Started
    | Parked
    | Refused
    | FirstStep
    | Frame
    | Retold
    | Restored
    | Stalled
    | Flushed
    | Ended
    | Cancelled
    | Failed
    | StepReport
)
