"""The step loop: the one thread that owns the engine receives commands, picks rows, steps them and delivers."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.contract import FrameEngine, SlotFrame, SlotOptions
from scheduler.admission import Admission, warm_up
from scheduler.clock import Beat, Clock
from scheduler.costs import CostRules, StepCosts
from scheduler.inbox import Inbox
from scheduler.messages import Command, Event, FirstStep, Frame, StepReport
from scheduler.policy import Plan, Policy
from scheduler.roster import Roster
from scheduler.seating import Row
from scheduler.session import Session, State

log = logging.getLogger(__name__)

RESTORE_PAUSE_S = 0.005
"""Until the next look for time in which to rebuild a slot."""


@dataclass(frozen=True, slots=True)
class LoopRules:
    """What an operator may turn."""

    headroom: float = 0.7
    """Share of the beat that a round of all live sessions may take."""
    reserve_frames: float = 2.0
    """A live session with less audio in hand than this is about to underrun."""
    inbox: int = 8192
    """Commands that may wait to be read."""
    idle_tick_s: float = 0.5
    """Longest sleep: the heartbeat beats at least this often."""
    refresh_steps: int = 64
    """Steps after which costs and the admission limit are computed anew."""
    costs: CostRules = field(default_factory=CostRules)


class Passenger(NamedTuple):
    """A session's part in one step, with what tells later whether its result still concerns it."""

    session: Session
    row: Row
    """The one that stepped; the session may hold another by the time the step is done."""
    options: SlotOptions
    """Of the generation that stepped; one object a generation."""
    text_epoch: int
    audio: int
    """Frames of audio expected: 1, or 0 inside the delay."""

    @property
    def is_current(self) -> bool:
        return self.session.options is self.options and self.session.seated


@dataclass(frozen=True, slots=True)
class Flight:
    """A step that was launched and not collected yet."""

    ticket: object
    passengers: list[Passenger]
    text_only: bool
    launched_at: float


class StepLoop:
    """``submit``, ``drain``, ``stop`` and the properties may be used from any thread; ``warm_up``, ``run`` and ``tick``
    belong to the engine's.

    ``deliver`` is called on the engine's thread, once an iteration, with the events in their order; it must not block.
    """

    def __init__(
        self,
        engine: FrameEngine,
        clock: Clock,
        deliver: Callable[[Sequence[Event]], None],
        rules: LoopRules | None = None,
    ) -> None:
        self._rules = rules = rules or LoopRules()
        self._engine, self._clock, self._deliver_to = engine, clock, deliver
        info = engine.info
        frame_s = info.frame_samples / info.sample_rate
        self._events: list[Event] = []
        self._flights: deque[Flight] = deque()
        self._inbox = Inbox(clock, rules.inbox)
        self._roster = Roster(engine, clock, self._emit)
        self._costs = StepCosts(engine.capacity, rules.costs)
        self._admission = Admission(self._costs, frame_s, rules.headroom)
        self._policy = Policy(Beat(clock.now(), frame_s), reserve_s=rules.reserve_frames * frame_s)
        self._plan = Plan([], text_only=False, wake_at=clock.now())
        self._live_limit = self._admission.limit()
        self._text_run = 0
        self._steps_to_refresh = rules.refresh_steps
        self._refreshed_at = self._collected_at = self._heartbeat = clock.now()
        self._failures = 0
        self._pause_s = rules.idle_tick_s  # longest sleep that the last iteration allows
        self._stopping = False

    # -- any thread ----------------------------------------------------------------------------------------------

    def submit(self, command: Command) -> None:
        """Never blocks. Raises ``InboxFull``; the command is then not taken."""
        self._inbox.submit(command)

    def drain(self) -> None:
        """First stage of leaving: every further ``Open`` is refused, all else goes on."""
        self._roster.closed = True

    def stop(self) -> None:
        """Second stage: ``run`` cancels what is left and returns after the step in progress."""
        self._stopping = True
        self._inbox.wake()

    @property
    def limit(self) -> int:
        """Sessions that may hold a row now. Fast sessions take nothing from the live ones but a row."""
        return min(self._engine.capacity, self._live_limit + self._roster.fast)

    @property
    def active(self) -> int:
        """Sessions that hold a row."""
        return len(self._roster.sessions)

    @property
    def waiting(self) -> int:
        """Sessions that were parked and stand in line for a row."""
        return self._roster.waiting

    @property
    def heartbeat(self) -> float:
        """Clock time of the last iteration. More than two seconds ago, with ``idle_tick_s`` at its default: the loop is
        stuck in a step."""
        return self._heartbeat

    @property
    def failures(self) -> int:
        """Steps in a row in which the engine raised; 0 after one that went well."""
        return self._failures

    # -- the engine's thread -------------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Measure the idle engine, so that the first limit is a measured one. Before ``run``; takes seconds."""
        warm_up(self._engine, self._clock, self._costs)
        self._refresh()

    def run(self) -> None:
        """Until ``stop``."""
        while not self._stopping:
            self.tick()
        self._collect(keep=0)
        self._roster.cancel_all(self._clock.now())
        self._deliver()

    def tick(self) -> None:
        """One iteration. It sleeps only where the one before found nothing to do, so results never wait."""
        self._receive()
        self._deliver()
        self._schedule()
        self._step()
        self._restore()

    def _receive(self) -> None:
        self._heartbeat = now = self._clock.now()
        if not self._plan.rows and self._pause_s > 0.0:
            self._inbox.wait(min(self._plan.wake_at, now + self._pause_s))
            self._heartbeat = now = self._clock.now()
        for command, submitted_at in self._inbox.drain():
            self._roster.apply(command, submitted_at, now)
        self._roster.seat(self._live_limit, now)

    def _deliver(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self._deliver_to(events)

    def _schedule(self) -> None:
        now = self._clock.now()
        if self._steps_to_refresh <= 0 or now - self._refreshed_at > self._rules.costs.horizon_s:
            self._refresh()
        self._plan = self._policy.plan(self._roster.sessions, now, self._costs, self._text_run)

    def _step(self) -> None:
        plan = self._plan
        if plan.rows and not (plan.calm and self._roster.restorer.busy):  # whoever is restored goes before a lead
            self._text_run = self._text_run + 1 if plan.text_only else 0
            self._launch(plan)
            self._collect(keep=self._engine.run_ahead)
        elif self._flights:
            self._collect(keep=0)
            self._plan = Plan([], text_only=False, wake_at=self._clock.now())  # made before these results were known

    def _restore(self) -> None:
        """What time the steps leave goes to sessions that come from elsewhere."""
        self._pause_s = self._rules.idle_tick_s
        if self._roster.restorer.busy:
            now = self._clock.now()
            worked = self._roster.restore(self._policy.spare_s(self._roster.sessions, now, self._costs), now)
            self._pause_s = 0.0 if worked else RESTORE_PAUSE_S

    # -- steps ---------------------------------------------------------------------------------------------------

    def _launch(self, plan: Plan) -> None:
        now = self._clock.now()
        row_of = self._roster.row
        passengers = [Passenger(s, row_of(s), s.options, s.text_epoch, int(not s.in_delay)) for s in plan.rows]
        for passenger in passengers:
            session = passenger.session
            session.audio_in_flight += passenger.audio
            session.launched_at = now
            session.outlook = None
            passenger.row.in_flight += 1
        try:
            ticket = self._engine.launch([session.row for session in plan.rows])
        except Exception as error:
            self._crash(passengers, error)
            return
        for session in plan.rows:
            session.in_delay = session.in_delay and self._engine.in_delay(session.row)
        self._flights.append(Flight(ticket, passengers, plan.text_only, now))

    def _collect(self, keep: int) -> None:
        while len(self._flights) > keep:
            flight = self._flights.popleft()
            try:
                frames = self._engine.collect(flight.ticket)
            except Exception as error:
                self._crash(flight.passengers, error)
            else:
                self._land(flight, frames)

    def _land(self, flight: Flight, frames: Sequence[SlotFrame]) -> None:
        now = self._clock.now()
        duration_s = now - max(flight.launched_at, self._collected_at)  # it began when the one before it was done
        self._collected_at = now
        self._costs.of(flight.text_only).add(len(frames), duration_s, now)
        self._steps_to_refresh -= 1
        self._failures = 0
        for passenger, frame in zip(flight.passengers, frames, strict=True):
            self._take(passenger, frame, now)
        words = sum(frame.word for frame in frames)
        self._emit(StepReport(len(frames), duration_s, self.active, self.limit, words))

    def _take(self, passenger: Passenger, frame: SlotFrame, now: float) -> None:
        session, roster = passenger.session, self._roster
        passenger.row.in_flight -= 1
        if not passenger.is_current:
            roster.settle(passenger.row, now)
            return
        session.outlook = None
        session.audio_in_flight -= passenger.audio
        if not session.stepped:
            session.stepped = True
            self._emit(FirstStep(session.id, now - session.opened_at))
        if frame.failed:
            roster.fail(session, "a value of the row was not finite", now)
            return
        if frame.committed:
            lateness_s = session.play(len(frame.pcm) // 2, now) if frame.pcm else 0.0
            self._emit(Frame(session.id, session.generation, frame, lateness_s))
        if frame.flushed:
            roster.flushed(session, now)
        if frame.ended:
            roster.end(session, now)
        elif not frame.committed and session.state is State.RUNNING and session.text_epoch == passenger.text_epoch:
            roster.stalled(session, now)

    def _crash(self, passengers: list[Passenger], error: Exception) -> None:
        """The engine raised in a step: that ends the sessions in it, and nobody else's."""
        log.error("a step of %d rows failed", len(passengers), exc_info=error)
        self._failures += 1
        now = self._clock.now()
        for passenger in passengers:
            passenger.row.in_flight -= 1
        for passenger in passengers:
            if passenger.is_current:
                self._roster.fail(passenger.session, f"engine raised {type(error).__name__}", now)
            else:
                self._roster.settle(passenger.row, now)

    def _refresh(self) -> None:
        now = self._clock.now()
        self._costs.refresh(now)
        self._live_limit = self._admission.limit()
        self._steps_to_refresh = self._rules.refresh_steps
        self._refreshed_at = now

    def _emit(self, event: Event) -> None:
        self._events.append(event)
