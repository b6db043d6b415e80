"""Sessions that come from another worker: their slots are rebuilt from records, in slices between the others' steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.contract import FrameEngine, SlotFrame
from scheduler.clock import Clock
from scheduler.messages import Event, Finish, Flush, Push, Restore, Restored, Retold
from scheduler.session import Session, State

QUANTUM_S = 0.030
"""Longest slice: what a session that comes just then may have to wait."""
LEAST = 16
"""Records of a slice are a multiple of this, which engines take at once. One such slice a frame is made even where
there is no time for it, so that no load stops it for good."""
FIRST_GUESS_S = 0.0015
"""What a record costs, until it is known."""
MEMORY = 0.8
"""Share of the old cost in the new."""
Script = tuple[Push | Flush | Finish, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What the engine of a session had been told of its text."""

    orders: Script
    rest: Script
    """What waited for the last of them, or never needs the engine."""
    fresh: bool
    """Text is told that is neither flushed nor finished."""
    pending: Flush | Finish | None = None
    """The last of the orders, if it is not done."""

    @classmethod
    def of(cls, script: Script, answered: int) -> Told:
        """``answered``: flushes of the script whose answer is out. One with nothing to speak never reached the engine;
        what follows one that is not answered waits."""
        orders: list[Push | Flush | Finish] = []
        fresh = False
        for at, command in enumerate(script):
            if isinstance(command, Push):
                orders.append(command)
                fresh = fresh or bool(command.entries)
            elif isinstance(command, Flush) and answered > 0:
                answered -= 1
                orders += [command] if fresh else []
                fresh = False
            elif fresh:
                return cls((*orders, command), script[at + 1 :], fresh=False, pending=command)
            else:
                return cls(tuple(orders), script[at:], fresh=False)
        return cls(tuple(orders), (), fresh)


@dataclass(slots=True)
class Restoration:
    """What is left to do for one session."""

    records: Sequence[bytes]
    first: int
    """Steps before the first record."""
    loud_at: int
    """From this record on the sound matters."""
    told: Told
    speaker: int = 0
    """Who spoke before that."""
    done: int = 0
    last: SlotFrame | None = None
    """Of the frames that were retold."""

    @classmethod
    def of(cls, command: Restore, reach: int | None) -> Restoration:
        """``reach``: frames before a frame that its sound depends on; None: all."""
        count = len(command.records)
        wanted = count if command.sound_from is None else min(count, max(0, command.sound_from - command.first))
        loud_at = 0 if reach is None else max(0, wanted - reach)
        told = Told.of(command.script, command.answered)
        return cls(command.records, command.first, loud_at, told, command.speaker)

    @property
    def next_slice(self) -> Sequence[bytes]:
        """All that is left of one kind, silent or loud."""
        end = self.loud_at if self.done < self.loud_at else len(self.records)
        return self.records[self.done : end]


class Restorer:
    """First come, first done."""

    def __init__(self, engine: FrameEngine, clock: Clock, emit: Callable[[Event], None]) -> None:
        self._engine, self._clock, self._emit = engine, clock, emit
        self._line: deque[Session] = deque()
        self._cost_s = FIRST_GUESS_S
        self._worked_at = clock.now()

    @property
    def busy(self) -> bool:
        while self._line and self._line[0].state is not State.RESTORING:
            self._line.popleft()  # cancelled meanwhile
        return bool(self._line)

    def begin(self, session: Session) -> None:
        """Its slot is open. Raises what the engine does."""
        work = session.restoration
        assert work is not None
        slot = session.row
        if work.first:
            self._engine.seek(slot, work.first, work.speaker)
        for command in work.told.orders:
            match command:
                case Push():
                    self._engine.push(slot, command.entries)
                case Flush():
                    self._engine.flush(slot)
                case Finish():
                    self._engine.finish(slot)
        session.state = State.RESTORING
        self._line.append(session)

    def size(self, spare_s: float, frame_s: float) -> int:
        """Records that may be taken now."""
        fitting = int(min(QUANTUM_S, spare_s) / self._cost_s)
        if fitting >= LEAST:
            return fitting // LEAST * LEAST
        return LEAST if self._clock.now() - self._worked_at >= frame_s else 0

    def work(self, size: int) -> None:
        """Rebuild so many steps of the first in line. Raises what the engine does."""
        session = self.first
        work = session.restoration
        assert work is not None
        records = work.next_slice[:size]
        began_at = self._clock.now()
        if records:
            frames = tuple(self._engine.rebuild(session.row, records, sound=work.done >= work.loud_at))
            work.done += len(records)
            work.last = frames[-1]
            for frame in frames:
                if frame.pcm:
                    session.overlap = max(session.overlap, session.frame_samples - len(frame.pcm) // 2)
            self._emit(Retold(session.id, session.generation, frames))
            self._worked_at = self._clock.now()
            self._cost_s = MEMORY * self._cost_s + (1 - MEMORY) * (self._worked_at - began_at) / len(records)
        if work.done == len(work.records):
            self._line.popleft()
            self._finish(session)

    @property
    def first(self) -> Session:
        return self._line[0]

    def _finish(self, session: Session) -> None:
        work, session.restoration = session.restoration, None
        assert work is not None
        told = work.told
        session.finishing, session.flushing = isinstance(told.pending, Finish), isinstance(told.pending, Flush)
        session.state = State.RUNNING if told.fresh or told.pending else State.IDLE
        session.in_delay = self._engine.in_delay(session.row)
        session.backlog.extendleft(reversed(told.rest))
        session.fresh = not told.orders
        session.outlook = None
        self._emit(Restored(session.id, session.generation))
