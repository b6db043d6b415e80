"""Who steps now: earliest deadline first over plain data. The same sessions and time give the same plan.

A live session that plays has the deadline of its next frame and a lead, the audio it has in hand. It is

- *urgent* while it waits for its first audio (after a pause in which playback ran dry, too) or its lead is short;
- *calm* while its lead is comfortable and below its cap;
- else not due.

Rows that play move on the grid of the frame clock, so that they fall due together and share a step: at the cap on the
beat, while they build their lead on half beats, with a short lead on quarter beats. Only a first audio, and a row that
the next quarter beat would find too late, do not wait for it.

Urgent rows go in the order in which they should have begun: a first audio at once, the others two steps before their
deadline. So first audio comes before a short lead, a row that would be late comes before a younger first audio, and
nothing starves, however long overload lasts. Urgent rows never drag calm ones along, except those that ride almost for
nothing; fast rows step only where no live row becomes late by it.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from scheduler.clock import Beat
from scheduler.costs import StepCosts
from scheduler.messages import Pace
from scheduler.session import Outlook, Session, State

Ranked = tuple[float, int, Session]
"""A session behind what it is ordered by; its row makes the order total."""


@dataclass(frozen=True, slots=True)
class Plan:
    rows: list[Session]
    text_only: bool
    """All rows are inside their delay."""
    wake_at: float
    """Where ``rows`` is empty: when something falls due by the passing of time alone (``math.inf``: never)."""
    calm: bool = False
    """Nobody is in a hurry."""


@dataclass(slots=True)
class Due:
    """Whom one look at all sessions found."""

    urgent: list[Ranked] = field(default_factory=list)
    urgent_text: list[Ranked] = field(default_factory=list)
    """Those urgent ones whose next step is a cheap text-only one."""
    calm: list[Ranked] = field(default_factory=list)
    fast: list[Ranked] = field(default_factory=list)
    wake_at: float = math.inf


@dataclass(frozen=True, slots=True)
class Policy:
    beat: Beat
    """Its period is the length of a frame."""
    halves: Beat = field(init=False)
    quarters: Beat = field(init=False)
    reserve_s: float
    """A live session with less in hand has a short lead."""
    text_burst: int = 2
    """Text-only steps in a row while urgent rows want a whole frame."""
    calm_burst: int = 8
    """The same while only calm rows do."""
    fast_quantum_s: float = 0.020
    """Longest step of fast rows: what a live session that comes just then may have to wait."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "halves", self.beat.divided(2))
        object.__setattr__(self, "quarters", self.beat.divided(4))

    def plan(self, sessions: Collection[Session], now: float, costs: StepCosts, text_run: int) -> Plan:
        """``text_run``: text-only steps since the last whole frame. O(n log n) for n sessions."""
        due = self._look(sessions, now, 2 * costs.frame.cost(costs.frame.part(len(sessions))))
        if due.urgent_text and text_run < self._burst(due):
            due.urgent_text.sort()
            return Plan(_rows(due.urgent_text[: costs.text.part(len(due.urgent_text))]), True, now)
        spare_s = self.spare_s(sessions, now, costs) if due.fast else 0.0
        if due.urgent or due.calm:
            return Plan(self._frames(due, spare_s, costs), False, now, calm=not due.urgent)
        return self._fast(due, spare_s, costs)

    def outlook(self, session: Session, now: float, margin_s: float) -> Outlook:
        """When the session falls due if nothing more happens to it. ``margin_s``: the length of two steps."""
        s = session
        if s.state is not State.RUNNING or s.held or not s.may_send:
            return Outlook(due_at=math.inf)
        if s.pace is Pace.FAST:
            return Outlook(due_at=now)
        frame_s = self.beat.period_s
        ahead_s = s.audio_in_flight * frame_s
        cap_s = max(s.lead_s, frame_s)
        if s.resumed and s.deadline <= now:
            return Outlook(due_at=now, urgent_at=now, rank=s.since) if ahead_s < cap_s else Outlook(due_at=math.inf)
        deadline = s.deadline + ahead_s
        cap_at = deadline + frame_s - cap_s  # from here on one more frame keeps to the cap
        short_at = self.quarters.ceil(max(cap_at, deadline - self.reserve_s))
        too_late_at = deadline - margin_s - self.quarters.period_s
        urgent_at = max(cap_at, min(max(short_at, self.quarters.after(s.launched_at)), too_late_at))
        calm_at = max(self.beat.ceil(cap_at), self.halves.after(s.launched_at))
        return Outlook(min(urgent_at, calm_at), urgent_at, deadline - margin_s, deadline)

    def _burst(self, due: Due) -> float:
        if due.urgent:
            return self.text_burst
        return self.calm_burst if due.calm else math.inf

    def _look(self, sessions: Collection[Session], now: float, margin_s: float) -> Due:
        due = Due()
        for s in sessions:
            outlook = s.outlook
            if outlook is None:
                outlook = s.outlook = self.outlook(s, now, margin_s)
            if outlook.due_at > now:
                if outlook.due_at < due.wake_at:
                    due.wake_at = outlook.due_at
            elif s.pace is Pace.FAST:
                due.fast.append((s.launched_at, s.row, s))
            elif outlook.urgent_at > now:
                due.calm.append((outlook.rank, s.row, s))
            elif s.in_delay:
                due.urgent_text.append((outlook.rank, s.row, s))
            else:
                due.urgent.append((outlook.rank, s.row, s))
        return due

    def _frames(self, due: Due, spare_s: float, costs: StepCosts) -> list[Session]:
        """Whole frames for the urgent rows, or if there are none for the calm ones, and for those that ride along."""
        curve = costs.frame
        must = sorted(due.urgent or due.calm)
        size = curve.ride(curve.part(len(must)))
        riders: list[Ranked] = []
        if size > len(must):
            riders = [*sorted(due.urgent_text), *sorted(due.calm)] if due.urgent else []
            if curve.cost(size) <= spare_s:
                riders += sorted(due.fast)
        return _rows([*must, *riders][:size])

    def _fast(self, due: Due, spare_s: float, costs: StepCosts) -> Plan:
        """Round robin: whoever was launched longest ago."""
        if not due.fast:
            return Plan([], False, due.wake_at)
        due.fast.sort()
        text_only = due.fast[0][2].in_delay
        alike = [ranked for ranked in due.fast if ranked[2].in_delay is text_only]
        curve = costs.of(text_only)
        size = curve.fit(min(self.fast_quantum_s, spare_s)) or int(curve.cost(1) <= spare_s)
        return Plan(_rows(alike[:size]), text_only, due.wake_at, calm=True)

    def spare_s(self, sessions: Collection[Session], now: float, costs: StepCosts) -> float:
        """How long a step may last that serves no live row, so that all live ones can still follow in time."""
        deadlines = [s.outlook.deadline for s in sessions if s.outlook and s.outlook.deadline < math.inf]
        return min(deadlines) - now - costs.frame.cost(len(deadlines)) if deadlines else math.inf


def _rows(ranked: list[Ranked]) -> list[Session]:
    return [session for _, _, session in ranked]
