"""Who is here: sessions and the rows they hold; what each command does to them and to the engine's slots."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from engine.contract import Entry, FrameEngine, SlotOptions
from scheduler.messages import (
    Cancel,
    Cancelled,
    Command,
    Credit,
    Ended,
    Event,
    Failed,
    Finish,
    Flush,
    Flushed,
    Hold,
    Open,
    Pace,
    Push,
    Refused,
    Resume,
    Stalled,
    Started,
)
from scheduler.session import Session, State

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Row:
    """One engine slot. It changes hands only when no step of it is in flight."""

    index: int
    in_flight: int = 0
    is_open: bool = False
    tenant: Session | None = None


class Roster:
    """Applies commands. Guarantees: one terminal event a session, after which nothing of it is emitted; no event of a
    generation after its ``Cancelled``; a row is free again as soon as its session's terminal event is out.

    Commands for sessions or generations that are not (or no longer) there do nothing: they cross with our own events.
    An ``Open`` with the id of a session that is here does nothing either; ids are the caller's to keep apart.
    """

    def __init__(self, engine: FrameEngine, emit: Callable[[Event], None]) -> None:
        self._engine = engine
        self._emit = emit
        self._rate, self._frame_samples = engine.info.sample_rate, engine.info.frame_samples
        self._sessions: dict[str, Session] = {}
        self._rows = [Row(index) for index in range(engine.capacity)]
        self._free = list(range(engine.capacity))  # a heap: low rows first keeps the busy ones together
        self.closed = False
        """No new sessions."""
        self.fast = 0
        """Sessions of pace ``fast``."""

    @property
    def sessions(self) -> Collection[Session]:
        return self._sessions.values()

    @property
    def free(self) -> int:
        return len(self._free)

    def row(self, session: Session) -> Row:
        return self._rows[session.row]

    # -- commands ------------------------------------------------------------------------------------------------

    def apply(self, command: Command, submitted_at: float, now: float) -> None:
        if isinstance(command, Open):
            self._open(command, submitted_at, now)
            return
        session = self._sessions.get(command.session)
        if session is None:
            return
        session.outlook = None
        match command:
            case Push() | Flush() | Finish():
                if command.generation == session.generation:
                    self._speak(session, command, now)
            case Cancel():
                self._cancel(session, command.successor, now)
            case Credit():
                self._credit(session, command.ms, now)
            case Hold():
                session.held = True
            case Resume():
                if session.held:
                    session.held = False
                    session.resume(now)

    def _open(self, command: Open, submitted_at: float, now: float) -> None:
        if command.session in self._sessions:
            return
        if self.closed or not self._free:
            self._emit(Refused(command.session))
            return
        session = Session(
            id=command.session,
            row=heapq.heappop(self._free),
            pace=command.pace,
            lead_s=command.lead_ms / 1000,
            rate=self._rate,
            frame_samples=self._frame_samples,
            opened_at=submitted_at,
            credit=None if command.credit_ms is None else self._samples(command.credit_ms),
            options=command.options,
            since=now,
        )
        self._sessions[session.id] = session
        self.fast += session.pace is Pace.FAST
        self._emit(Started(session.id, now - submitted_at))
        row = self.row(session)
        row.tenant = session
        self.settle(row, now)

    def _cancel(self, session: Session, successor: SlotOptions | None, now: float) -> None:
        self._emit(Cancelled(session.id, session.generation, kept=successor is not None))
        if successor is None:
            self._release(session, now)
        else:
            session.restart(successor, now)
            self.settle(self.row(session), now)

    def _credit(self, session: Session, ms: float, now: float) -> None:
        if session.credit is None:
            return
        if not session.may_send:
            session.resume(now)
        session.credit += self._samples(ms)

    def _samples(self, ms: float) -> int:
        return int(ms * self._rate / 1000)

    # -- text ----------------------------------------------------------------------------------------------------

    def _speak(self, session: Session, command: Push | Flush | Finish, now: float) -> None:
        if session.finishing:
            return
        if session.flushing or session.state is State.OPENING:
            session.backlog.append(command)
            return
        match command:
            case Push():
                self._push(session, command.entries, now)
            case Flush():
                self._flush(session, now)
            case Finish():
                self._finish(session, now)

    def _push(self, session: Session, entries: Sequence[Entry], now: float) -> None:
        if entries and self._engine_takes(session, now, lambda slot: self._engine.push(slot, entries)):
            self._wake(session, now)

    def _flush(self, session: Session, now: float) -> None:
        if session.state is State.IDLE:  # everything is out already
            self._emit(Flushed(session.id, session.generation))
        elif self._engine_takes(session, now, self._engine.flush):
            session.flushing = True
            self._wake(session, now)

    def _finish(self, session: Session, now: float) -> None:
        if session.state is State.IDLE:
            self.end(session, now)
        elif self._engine_takes(session, now, self._engine.finish):
            session.finishing = True
            self._wake(session, now)

    def _wake(self, session: Session, now: float) -> None:
        session.text_epoch += 1
        if session.state is not State.RUNNING:
            session.state = State.RUNNING
            session.resume(now)

    def _replay(self, session: Session, now: float) -> None:
        """Give the engine what had to wait, up to and including the next flush."""
        while session.backlog and session.state not in (State.OPENING, State.GONE) and not session.flushing:
            self._speak(session, session.backlog.popleft(), now)

    # -- what steps report ---------------------------------------------------------------------------------------

    def stalled(self, session: Session, now: float) -> None:
        if session.flushing or session.finishing:
            self.fail(session, "the engine stalled though no more text was to come", now)
        else:
            session.state = State.STALLED
            self._emit(Stalled(session.id, session.generation))

    def flushed(self, session: Session, now: float) -> None:
        session.flushing = False
        session.state = State.IDLE
        self._emit(Flushed(session.id, session.generation))
        self._replay(session, now)

    def end(self, session: Session, now: float) -> None:
        self._emit(Ended(session.id, session.generation))
        self._release(session, now)

    def fail(self, session: Session, reason: str, now: float) -> None:
        self._emit(Failed(session.id, session.generation, reason))
        self._release(session, now)

    def cancel_all(self, now: float) -> None:
        for session in list(self.sessions):
            self._cancel(session, None, now)

    # -- rows ----------------------------------------------------------------------------------------------------

    def _release(self, session: Session, now: float) -> None:
        session.state = State.GONE
        del self._sessions[session.id]
        self.fast -= session.pace is Pace.FAST
        row = self.row(session)
        row.tenant = None
        heapq.heappush(self._free, row.index)
        self.settle(row, now)

    def settle(self, row: Row, now: float) -> None:
        """Make the engine's slot follow its row's tenant, once no step of the slot is in flight."""
        tenant = row.tenant
        if row.in_flight or (tenant is not None and tenant.state is not State.OPENING):
            return
        if row.is_open:
            row.is_open = False
            self._close(row)
        if tenant is not None and self._engine_takes(tenant, now, lambda slot: self._engine.open(slot, tenant.options)):
            row.is_open = True
            tenant.state = State.IDLE
            tenant.outlook = None
            self._replay(tenant, now)

    def _engine_takes(self, session: Session, now: float, call: Callable[[int], None]) -> bool:
        """Call the engine for one session; whatever it raises costs that session alone."""
        try:
            call(session.row)
        except Exception as error:
            log.exception("the engine refused a call for slot %d", session.row)
            self.fail(session, f"engine raised {type(error).__name__}", now)
            return False
        return True

    def _close(self, row: Row) -> None:
        try:
            self._engine.close(row.index)
        except Exception:
            log.exception("the engine could not close slot %d", row.index)
