"""One session as the step loop sees it: plain data and its playback arithmetic."""

from __future__ import annotations

import enum
import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from engine.contract import SlotOptions
from scheduler.messages import Finish, Flush, Pace, Push

if TYPE_CHECKING:
    from scheduler.restoring import Restoration


class State(enum.Enum):
    OPENING = enum.auto()
    """Its row still has steps of an earlier generation in flight; text is kept back until they are in."""
    IDLE = enum.auto()
    """Nothing to say: no text yet in this generation, or all of it flushed."""
    RUNNING = enum.auto()
    """A step would advance it."""
    STALLED = enum.auto()
    """It wants a word that is not there."""
    PARKED = enum.auto()
    """It has no row and wants none: nothing is said in this generation, or all of it."""
    WAITING = enum.auto()
    """It has no row and stands in line for one; text is kept back until it has."""
    RESTORING = enum.auto()
    """Its slot is being rebuilt from records; text is kept back until it is."""
    GONE = enum.auto()
    """Its terminal event is out and its row is given back."""


SEATED = frozenset({State.OPENING, State.RESTORING, State.IDLE, State.RUNNING, State.STALLED})
"""States of a session that holds a row."""


class Outlook(NamedTuple):
    """When a session falls due if nothing more happens to it (``policy.Policy.outlook``)."""

    due_at: float
    urgent_at: float = math.inf
    """From here on it goes before the calm ones; never, for a fast session."""
    rank: float = 0.0
    """What live rows are ordered by: the time at which its step should begin."""
    deadline: float = math.inf
    """When its playback needs the next frame; for a session that plays and could step."""


@dataclass(slots=True)
class Session:
    """Owned by the engine thread. Times are seconds of the loop's clock."""

    id: str
    row: int
    """The one it holds; without one, the one it held last."""
    pace: Pace
    lead_s: float
    rate: int
    """Model samples a second."""
    frame_samples: int
    opened_at: float
    """When its ``Open`` was submitted."""
    credit: int | None
    """Samples that may still be sent; None = no credit scheme."""
    options: SlotOptions
    """Of the current generation."""
    since: float
    """When it last became able to step: what a session without audio in hand has been waiting from."""
    lasting: bool = False
    """It outlives the end of a generation."""
    asked_at: float = 0.0
    """While it waits for a row: since when."""
    state: State = State.OPENING
    heard: int = 0
    """Commands about text taken in this generation."""
    fresh: bool = True
    """No text was pushed in this generation."""
    held: bool = False
    flushing: bool = False
    """The engine owes a ``flushed``; later text waits in ``backlog``, so that its words do not depend on timing."""
    finishing: bool = False
    in_delay: bool = True
    stepped: bool = False
    """It has had a first step, in any generation."""
    text_epoch: int = 0
    """Grows with everything that can end a stall; an older step's stall is stale."""
    audio_in_flight: int = 0
    """Frames that launched steps of this generation will probably bring."""
    launched_at: float = 0.0
    playback_start: float = 0.0
    sent: int = 0
    """Samples sent since ``playback_start``."""
    overlap: int = 0
    """Samples that the codec keeps back: a generation's first frame is short by them, a flush's or the end's long."""
    deadline: float = -math.inf
    """When the next sample is due: ``playback_start + sent / rate``."""
    resumed: bool = True
    """The next audio is the first after a pause: if playback ran dry meanwhile, it starts anew with it."""
    restoration: Restoration | None = None
    """What its slot is to be rebuilt from."""
    backlog: deque[Push | Flush | Finish] = field(default_factory=deque)
    outlook: Outlook | None = None
    """Set to None by whoever changes anything above."""

    def resume(self, now: float) -> None:
        """A pause (no text, held, out of credit) is over."""
        self.resumed = True
        self.since = now

    @property
    def generation(self) -> int:
        return self.options.generation

    @property
    def seated(self) -> bool:
        return self.state in SEATED

    def restart(self, options: SlotOptions, now: float) -> None:
        """Begin another generation; what was played of the last one no longer counts."""
        self.options = options
        self.state = State.OPENING if self.seated else State.PARKED
        self.fresh = True
        self.heard = 0
        self.restoration = None
        self.flushing = self.finishing = False
        self.in_delay = True
        self.audio_in_flight = 0
        self.deadline = -math.inf
        self.backlog.clear()
        self.resume(now)

    def play(self, samples: int, now: float) -> float:
        """Account for audio that is ready now. Returns its lateness in seconds (negative = early).

        Playback starts anew with the first audio after a pause, but only where the listener ran dry: a pause shorter
        than the lead is not heard, and a session with credit, which pauses after each frame, would else look starved
        for ever. It starts anew, too, after audio that came more than a frame late: the listener has heard the gap and
        plays on from there; making good what is over would cost the others, and end in a burst beyond the lead.
        """
        lateness_s = now - self.deadline
        if lateness_s > (0.0 if self.resumed else self.frame_samples / self.rate):
            self.playback_start = self.deadline = now
            self.sent = 0
            lateness_s = 0.0 if self.resumed else lateness_s
        self.resumed = False
        self.sent += samples
        self.overlap = max(self.overlap, self.frame_samples - samples)
        self.deadline = self.playback_start + self.sent / self.rate
        if self.credit is not None:
            self.credit -= samples
        return lateness_s

    @property
    def may_send(self) -> bool:
        """Whether credit covers one more frame beside those in flight, though it were the last, which is longer. A step
        inside the delay sends none."""
        if self.credit is None or self.in_delay:
            return True
        tail = self.overlap if self.flushing or self.finishing else 0
        return self.credit >= self.frame_samples * (self.audio_in_flight + 1) + tail
