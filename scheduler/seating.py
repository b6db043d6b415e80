"""Which session holds which row of the engine, and who stands in line for one."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from scheduler.messages import Pace
from scheduler.session import Session, State


@dataclass(slots=True)
class Row:
    """One engine slot. It changes hands only when no step of it is in flight."""

    index: int
    in_flight: int = 0
    is_open: bool = False
    tenant: Session | None = None


class Seating:
    """Plain bookkeeping: it calls nobody. Rows are given first to those in line, who had one before."""

    def __init__(self, capacity: int) -> None:
        self._rows = [Row(index) for index in range(capacity)]
        self._free = list(range(capacity))  # a heap: low rows first keeps the busy ones together
        self._seated: dict[str, Session] = {}
        self._line: deque[Session] = deque()
        self.fast = 0
        """Seated sessions of pace ``fast``."""

    @property
    def seated(self) -> Collection[Session]:
        return self._seated.values()

    @property
    def free(self) -> int:
        """Rows that nobody holds or waits for."""
        return max(0, len(self._free) - len(self._line))

    @property
    def waiting(self) -> int:
        return len(self._line)

    def row(self, session: Session) -> Row:
        return self._rows[session.row]

    def take(self, session: Session) -> Row:
        """A row for a session without one; its engine slot is to be opened afresh."""
        session.row = heapq.heappop(self._free)
        session.state = State.OPENING
        self._seated[session.id] = session
        self.fast += session.pace is Pace.FAST
        row = self.row(session)
        row.tenant = session
        return row

    def leave(self, session: Session, state: State) -> Row:
        """Free a seated session's row; ``state``: what the session is without one."""
        session.state = state
        del self._seated[session.id]
        self.fast -= session.pace is Pace.FAST
        row = self.row(session)
        row.tenant = None
        heapq.heappush(self._free, row.index)
        return row

    def queue(self, session: Session, asked_at: float) -> None:
        session.state = State.WAITING
        session.asked_at = asked_at
        self._line.append(session)

    def withdraw(self, session: Session) -> None:
        """It no longer wants a row, if it did."""
        if session in self._line:
            self._line.remove(session)
            session.state = State.PARKED

    def next_in_line(self, live_limit: int) -> Session | None:
        """Whoever may have a row now, taken out of the line. ``live_limit``: seated live sessions that are allowed."""
        if not self._line or not self._free:
            return None
        live = len(self._seated) - self.fast
        first = next((s for s in self._line if s.pace is Pace.FAST or live < live_limit), None)
        if first is not None:
            self._line.remove(first)
        return first
