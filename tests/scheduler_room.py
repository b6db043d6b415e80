"""A step loop on a fake clock over the fake engine, with everything that it delivered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from engine.contract import Entry, SlotOptions
from engine.fake import DEFAULTS, FakeEngine
from scheduler.clock import FakeClock
from scheduler.loop import LoopRules, StepLoop
from scheduler.messages import (
    Cancel,
    Command,
    Credit,
    Ended,
    Event,
    Failed,
    Finish,
    Flush,
    Frame,
    Hold,
    Open,
    Pace,
    Park,
    Push,
    Refused,
    Resume,
    StepReport,
)

FRAME_S = 0.080
WORD = Entry((7,))


def options(generation: int = 0, seed: int = 0) -> SlotOptions:
    return dataclasses.replace(DEFAULTS, generation=generation, seed=seed)


class Room:
    def __init__(
        self,
        capacity: int = 4,
        *,
        run_ahead: int = 0,
        overlap: int = 0,
        frame_s: Callable[[int], float] = lambda rows: 0.004,
        text_s: Callable[[int], float] = lambda rows: 0.001,
        rules: LoopRules | None = None,
        warm: bool = False,
    ) -> None:
        self.frame_s, self.text_s = frame_s, text_s
        self.clock = FakeClock(100.0)
        self.engine = FakeEngine(capacity, run_ahead=run_ahead, overlap=overlap, spend=self._spend)
        self.deliveries: list[list[Event]] = []
        self.events: list[Event] = []
        self.timed: list[tuple[float, Event]] = []
        """(seconds since the start, event)"""
        self.loop = StepLoop(self.engine, self.clock, self._deliver, rules)
        if warm:
            self.loop.warm_up()
        self.start = self.clock.now()

    def _spend(self, text_rows: int, frame_rows: int) -> None:
        seconds = self.text_s(text_rows) if text_rows else 0.0
        self.clock.advance(seconds + (self.frame_s(frame_rows) if frame_rows else 0.0))

    def _deliver(self, events: Sequence[Event]) -> None:
        self.deliveries.append(list(events))
        self.events += events
        self.timed += [(self.clock.now() - self.start, event) for event in events]

    # -- in ----------------------------------------------------------------------------------------------------------

    def submit(self, *commands: Command) -> None:
        for command in commands:
            self.loop.submit(command)

    def open(
        self,
        session: str,
        words: int = 0,
        *,
        finish: bool = False,
        pace: Pace = Pace.LIVE,
        lead_ms: float = 480.0,
        credit_ms: float | None = None,
        seed: int = 0,
    ) -> None:
        self.submit(Open(session, options(seed=seed), pace, lead_ms, credit_ms))
        if words:
            self.push(session, words)
        if finish:
            self.submit(Finish(session, 0))

    def push(self, session: str, words: int = 1, generation: int = 0) -> None:
        self.submit(Push(session, generation, (WORD,) * words))

    def flush(self, session: str, generation: int = 0) -> None:
        self.submit(Flush(session, generation))

    def finish(self, session: str, generation: int = 0) -> None:
        self.submit(Finish(session, generation))

    def cancel(self, session: str, successor: SlotOptions | None = None) -> None:
        self.submit(Cancel(session, successor))

    def park(self, session: str, generation: int = 0) -> None:
        self.submit(Park(session, generation))

    def credit(self, session: str, ms: float) -> None:
        self.submit(Credit(session, ms))

    def hold(self, session: str) -> None:
        self.submit(Hold(session))

    def resume(self, session: str) -> None:
        self.submit(Resume(session))

    # -- time --------------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Until the time has passed; a step in progress then is brought to its end and delivered."""
        until = self.clock.now() + seconds
        self.clock.at(until, lambda: self.loop.submit(Credit("nobody", 0.0)))
        while self.clock.now() < until:
            self.loop.tick()
        self.loop.tick()

    def run_until(self, done: Callable[[], bool], limit_s: float = 60.0) -> None:
        until = self.clock.now() + limit_s
        while not done():
            assert self.clock.now() < until, "it does not come"
            self.loop.tick()

    def run_out(self) -> None:
        """Until no session is left."""
        self.loop.tick()
        self.run_until(lambda: self.loop.active + self.loop.waiting == 0)
        self.loop.tick()

    # -- out ---------------------------------------------------------------------------------------------------------

    def of(self, session: str) -> list[Event]:
        return [event for event in self.events if not isinstance(event, StepReport) and event.session == session]

    def kinds(self, session: str) -> list[str]:
        """Names of the session's events, frames left out."""
        return [type(event).__name__ for event in self.of(session) if not isinstance(event, Frame)]

    def frames(self, session: str, generation: int | None = None) -> list[Frame]:
        return [
            event for event in self.of(session) if isinstance(event, Frame) and generation in (None, event.generation)
        ]

    def audio(self, session: str, generation: int | None = None) -> bytes:
        return b"".join(frame.frame.pcm for frame in self.frames(session, generation))

    def audio_times(self, session: str) -> list[float]:
        """Seconds since the start at which audio of the session was delivered."""
        return [
            at for at, event in self.timed if isinstance(event, Frame) and event.session == session and event.frame.pcm
        ]

    def reports(self) -> list[StepReport]:
        return [event for event in self.events if isinstance(event, StepReport)]


def is_terminal(event: Event) -> bool:
    return isinstance(event, Ended | Failed | Refused)
