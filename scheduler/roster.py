"""Who is here: sessions and the rows they hold; what each command does to them and to the engine's slots."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from engine.contract import Entry, FrameEngine, SlotFrame, SlotOptions
from scheduler.clock import Clock
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
    Park,
    Parked,
    Push,
    Refused,
    Restore,
    Resume,
    Stalled,
    Started,
)
from scheduler.restoring import Restoration, Restorer
from scheduler.seating import Row, Seating
from scheduler.session import Session, State

log = logging.getLogger(__name__)


class Roster:
    """Applies commands. Guarantees: one terminal event a session, after which nothing of it is emitted; no event of a
    generation after its ``Cancelled``; a row is free again as soon as the event that says so is out; a session that was
    parked has the next free row, ahead of every ``Open``, in the order in which they came back.

    Commands for sessions or generations that are not (or no longer) there do nothing: they cross with our own events.
    An ``Open`` with the id of a session that is here does nothing either; ids are the caller's to keep apart.
    """

    def __init__(self, engine: FrameEngine, clock: Clock, emit: Callable[[Event], None]) -> None:
        self._engine = engine
        self._emit = emit
        self._rate, self._frame_samples = engine.info.sample_rate, engine.info.frame_samples
        self._sessions: dict[str, Session] = {}
        self._seating = Seating(engine.capacity)
        self.restorer = Restorer(engine, clock, emit)
        self.closed = False
        """No new sessions."""

    @property
    def sessions(self) -> Collection[Session]:
        """Those that hold a row."""
        return self._seating.seated

    @property
    def free(self) -> int:
        """Rows that nobody holds or waits for."""
        return self._seating.free

    @property
    def waiting(self) -> int:
        """Sessions in line for a row."""
        return self._seating.waiting

    @property
    def fast(self) -> int:
        """Sessions of pace ``fast`` that hold a row."""
        return self._seating.fast

    def row(self, session: Session) -> Row:
        return self._seating.row(session)

    def seat(self, live_limit: int, now: float) -> None:
        """Give rows to those in line, as far as there are rows and admission allows."""
        while session := self._seating.next_in_line(live_limit):
            row = self._seating.take(session)
            session.resume(now)
            self._emit(Started(session.id, now - session.asked_at))
            self.settle(row, now)

    # -- commands ------------------------------------------------------------------------------------------------

    def apply(self, command: Command, submitted_at: float, now: float) -> None:
        if isinstance(command, Open):
            self._open(command, None, submitted_at, now)
            return
        if isinstance(command, Restore):
            restoration = Restoration.of(command, self._engine.sound_reach)
            self._open(command.open, restoration, submitted_at, now)
            return
        session = self._sessions.get(command.session)
        if session is None:
            return
        session.outlook = None
        match command:
            case Push() | Flush() | Finish():
                if command.generation == session.generation:
                    session.heard += 1
                    self._speak(session, command, submitted_at, now)
            case Cancel():
                self._cancel(session, command.successor, now)
            case Park():
                if command.generation == session.generation:
                    self._park(session, now)
            case Credit():
                self._credit(session, command.ms, now)
            case Hold():
                session.held = True
            case Resume():
                if session.held:
                    session.held = False
                    session.resume(now)

    def _open(self, command: Open, restoration: Restoration | None, submitted_at: float, now: float) -> None:
        if command.session in self._sessions:
            return
        if self.closed or not self.free:
            self._emit(Refused(command.session))
            return
        session = Session(
            id=command.session,
            row=0,
            pace=command.pace,
            lead_s=command.lead_ms / 1000,
            rate=self._rate,
            frame_samples=self._frame_samples,
            opened_at=submitted_at,
            credit=None if command.credit_ms is None else self._samples(command.credit_ms),
            options=command.options,
            since=now,
            lasting=command.lasting,
            restoration=restoration,
        )
        self._sessions[session.id] = session
        self._emit(Started(session.id, now - submitted_at))
        self.settle(self._seating.take(session), now)

    def _cancel(self, session: Session, successor: SlotOptions | None, now: float) -> None:
        self._emit(Cancelled(session.id, session.generation, kept=successor is not None))
        self._seating.withdraw(session)
        if successor is None:
            self._release(session, now)
            return
        session.restart(successor, now)
        if session.seated:
            self.settle(self.row(session), now)

    def _park(self, session: Session, now: float) -> None:
        if session.seated and session.fresh and not session.backlog:
            self._emit(Parked(session.id, session.generation))
            self.settle(self._seating.leave(session, State.PARKED), now)

    def _credit(self, session: Session, ms: float, now: float) -> None:
        if session.credit is None:
            return
        if not session.may_send:
            session.resume(now)
        session.credit += self._samples(ms)

    def _samples(self, ms: float) -> int:
        return round(ms * self._rate / 1000)

    # -- text ----------------------------------------------------------------------------------------------------

    def _speak(self, session: Session, command: Push | Flush | Finish, submitted_at: float, now: float) -> None:
        if session.finishing:
            return
        if session.state is State.PARKED and isinstance(command, Push) and command.entries:
            self._seating.queue(session, submitted_at)
        if session.flushing or session.state in (State.OPENING, State.WAITING, State.RESTORING):
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
            session.fresh = False
            self._wake(session, now)

    def _flush(self, session: Session, now: float) -> None:
        if session.state in (State.IDLE, State.PARKED):  # everything is out already
            self._emit(Flushed(session.id, session.generation))
        elif self._engine_takes(session, now, self._engine.flush):
            session.flushing = True
            self._wake(session, now)

    def _finish(self, session: Session, now: float) -> None:
        if session.state in (State.IDLE, State.PARKED):
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
        while session.backlog and session.state in (State.IDLE, State.RUNNING, State.STALLED) and not session.flushing:
            self._speak(session, session.backlog.popleft(), now, now)

    # -- what steps report ---------------------------------------------------------------------------------------

    def stalled(self, session: Session, now: float) -> None:
        if session.flushing or session.finishing:
            self.fail(session, "the engine stalled though no more text was to come", now)
        else:
            session.state = State.STALLED
            self._emit(Stalled(session.id, session.generation, session.heard))

    def flushed(self, session: Session, now: float) -> None:
        session.flushing = False
        session.state = State.IDLE
        self._emit(Flushed(session.id, session.generation))
        self._replay(session, now)

    def end(self, session: Session, now: float) -> None:
        self._emit(Ended(session.id, session.generation))
        session.finishing = True
        if not session.lasting:
            self._release(session, now)
        elif session.seated:
            self.settle(self._seating.leave(session, State.PARKED), now)

    def fail(self, session: Session, reason: str, now: float) -> None:
        self._emit(Failed(session.id, session.generation, reason))
        self._release(session, now)

    def cancel_all(self, now: float) -> None:
        for session in list(self._sessions.values()):
            self._cancel(session, None, now)

    # -- rows ----------------------------------------------------------------------------------------------------

    def _release(self, session: Session, now: float) -> None:
        del self._sessions[session.id]
        if session.seated:
            self.settle(self._seating.leave(session, State.GONE), now)
        session.state = State.GONE

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
            if tenant.restoration is None:
                self._replay(tenant, now)
            else:
                self._engine_takes(tenant, now, lambda _: self.restorer.begin(tenant))

    def restore(self, spare_s: float, now: float) -> bool:
        """Rebuild a slice of the first session in line. False: there is no time for it."""
        size = self.restorer.size(spare_s, self._frame_samples / self._rate)
        if size == 0:
            return False
        session = self.restorer.first
        work = session.restoration
        if self._engine_takes(session, now, lambda _: self.restorer.work(size)) and session.restoration is None:
            session.resume(now)
            self._go_on(session, work.last if work else None, now)
        return True

    def _go_on(self, session: Session, last: SlotFrame | None, now: float) -> None:
        """Its slot is as it was; what came with the last frame may not have been told."""
        if last is not None and last.ended:
            self.end(session, now)
        elif last is not None and last.flushed and session.flushing:
            self.flushed(session, now)
        else:
            self._replay(session, now)

    def _engine_takes(self, session: Session, now: float, call: Callable[[int], object]) -> bool:
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
