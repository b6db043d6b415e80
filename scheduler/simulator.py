"""Fleet questions without a fleet: the real loop, policy and admission on a fake clock over a machine of known costs.

Discrete events: calls arrive at booked times, in the middle of a step too, and every step advances the clock by what
the machine model says it costs. Thousands of sessions take seconds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from engine.contract import Entry
from engine.fake import FakeEngine
from scheduler.clock import FakeClock
from scheduler.loop import LoopRules, StepLoop
from scheduler.messages import Ended, Event, Failed, Finish, Frame, Open, Pace, Push, Refused, StepReport

WORD = Entry((5,))


@dataclass(frozen=True, slots=True)
class Call:
    """One session to come: ``words`` of text, all at once or as they are written."""

    at_s: float
    words: int
    pace: Pace = Pace.LIVE
    words_per_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Machine:
    """A worker's engine. The default costs are of a small model on two CPU cores; a GPU's grow less with the rows."""

    capacity: int = 64
    frame_s: Callable[[int], float] = lambda rows: 0.003 + 0.0015 * rows
    text_s: Callable[[int], float] = lambda rows: 0.001 + 0.0003 * rows
    run_ahead: int = 0
    delay: int = 5
    acoustic_delay: int = 1
    steps_per_word: int = 4
    stall: Callable[[random.Random], float] = lambda rng: 0.0
    """Seconds that the host takes away from one step."""

    def cost(self, text_rows: int, frame_rows: int) -> float:
        text_s = self.text_s(text_rows) if text_rows else 0.0
        return text_s + (self.frame_s(frame_rows) if frame_rows else 0.0)


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of a measure."""

    p50: float
    p95: float
    p99: float
    worst: float
    count: int


@dataclass(frozen=True, slots=True)
class Outcome:
    served: int
    refused: int
    failed: int
    ttfa_s: Spread
    """Live sessions: from ``Open`` to the first audio, the frame's way to the network not included."""
    lateness_s: Spread
    """Of the later frames of live sessions; negative = early."""
    underruns: int
    """Live frames that came later than the listener's buffer lasts."""
    audio_s: float
    fast_audio_s: float
    busy_s: float
    elapsed_s: float
    steps: int
    mean_batch: float
    held_s: float
    """Time that all sessions together held a row."""
    most_active: int
    limit: int
    """Admission's limit at the end."""

    @property
    def utilisation(self) -> float:
        return self.busy_s / self.elapsed_s if self.elapsed_s else 0.0


@dataclass(slots=True)
class _Session:
    call: Call
    opened_at: float
    ttfa_s: float | None = None


@dataclass(slots=True)
class _Tally:
    """What happened so far."""

    lateness_s: list[float] = field(default_factory=list)
    ttfa_s: list[float] = field(default_factory=list)
    underruns: int = 0
    samples: int = 0
    fast_samples: int = 0
    served: int = 0
    refused: int = 0
    failed: int = 0
    busy_s: float = 0.0
    steps: int = 0
    rows: int = 0
    held_s: float = 0.0
    most_active: int = 0


class Simulation:
    """One worker and the calls that reach it. With ``admit`` a call beyond the loop's limit is refused on arrival, as
    NATS does where no token is armed; without, every free row is given away."""

    def __init__(
        self,
        machine: Machine,
        *,
        admit: bool = True,
        buffer_s: float = 0.060,
        rules: LoopRules | None = None,
        seed: int = 0,
    ) -> None:
        self._machine, self._admit, self._buffer_s = machine, admit, buffer_s
        self._rng = random.Random(seed)
        self._clock = FakeClock()
        self._tally = _Tally()
        self._engine = FakeEngine(
            machine.capacity,
            run_ahead=machine.run_ahead,
            delay=machine.delay,
            acoustic_delay=machine.acoustic_delay,
            steps_per_word=machine.steps_per_word,
            silent=True,
            spend=self._spend,
        )
        self._loop = StepLoop(self._engine, self._clock, self._deliver, rules)
        self._open: dict[str, _Session] = {}
        self._to_come = 0

    def run(self, calls: Iterable[Call]) -> Outcome:
        """Until the last call is over."""
        self._loop.warm_up()
        self._tally.busy_s = 0.0
        start = self._clock.now()
        for number, call in enumerate(calls):
            self._to_come += 1
            self._clock.at(start + call.at_s, self._arrival(f"{number}", call))
        while self._to_come or self._open:
            self._loop.tick()
        return self._outcome(self._clock.now() - start)

    def _spend(self, text_rows: int, frame_rows: int) -> None:
        cost_s = self._machine.cost(text_rows, frame_rows) + self._machine.stall(self._rng)
        self._tally.busy_s += cost_s
        self._clock.advance(cost_s)

    def _arrival(self, name: str, call: Call) -> Callable[[], None]:
        def arrive() -> None:
            self._to_come -= 1
            if self._admit and len(self._open) >= self._loop.limit:
                self._tally.refused += 1
                return
            now = self._clock.now()
            self._open[name] = _Session(call, now)
            self._loop.submit(Open(name, self._engine.info.defaults, call.pace))
            if math.isinf(call.words_per_s):
                self._loop.submit(Push(name, 0, (WORD,) * call.words))
                self._loop.submit(Finish(name, 0))
                return
            for word in range(call.words):
                self._clock.at(now + word / call.words_per_s, lambda: self._loop.submit(Push(name, 0, (WORD,))))
            self._clock.at(now + call.words / call.words_per_s, lambda: self._loop.submit(Finish(name, 0)))

        return arrive

    def _deliver(self, events: Sequence[Event]) -> None:
        tally = self._tally
        for event in events:
            match event:
                case Frame():
                    self._frame(event)
                case StepReport():
                    tally.steps += 1
                    tally.rows += event.batch
                    tally.most_active = max(tally.most_active, event.active)
                case Ended():
                    tally.served += 1
                    tally.held_s += self._clock.now() - self._open.pop(event.session).opened_at
                case Refused():
                    tally.refused += 1
                    del self._open[event.session]
                case Failed():
                    tally.failed += 1
                    tally.held_s += self._clock.now() - self._open.pop(event.session).opened_at
                case _:
                    pass

    def _frame(self, event: Frame) -> None:
        samples = len(event.frame.pcm) // 2
        if not samples:
            return
        tally, session = self._tally, self._open[event.session]
        tally.samples += samples
        if session.call.pace is Pace.FAST:
            tally.fast_samples += samples
        elif session.ttfa_s is None:
            session.ttfa_s = self._clock.now() - session.opened_at
            tally.ttfa_s.append(session.ttfa_s)
        else:
            tally.lateness_s.append(event.lateness_s)
            tally.underruns += event.lateness_s > self._buffer_s

    def _outcome(self, elapsed_s: float) -> Outcome:
        tally, rate = self._tally, self._engine.info.sample_rate
        return Outcome(
            served=tally.served,
            refused=tally.refused,
            failed=tally.failed,
            ttfa_s=spread(tally.ttfa_s),
            lateness_s=spread(tally.lateness_s),
            underruns=tally.underruns,
            audio_s=tally.samples / rate,
            fast_audio_s=tally.fast_samples / rate,
            busy_s=tally.busy_s,
            elapsed_s=elapsed_s,
            steps=tally.steps,
            mean_batch=tally.rows / tally.steps if tally.steps else 0.0,
            held_s=tally.held_s,
            most_active=tally.most_active,
            limit=self._loop.limit,
        )


def spread(values: Iterable[float]) -> Spread:
    """Nearest-rank percentiles; zeros if there are no values."""
    ranked = sorted(values) or [0.0]

    def rank(share: float) -> float:
        return ranked[max(0, math.ceil(share * len(ranked)) - 1)]

    return Spread(rank(0.50), rank(0.95), rank(0.99), ranked[-1], len(ranked))


def poisson(rate_per_s: float, duration_s: float, words: float, seed: int, pace: Pace = Pace.LIVE) -> list[Call]:
    """Calls at random moments, their lengths exponential about a mean of ``words`` (one at least)."""
    rng = random.Random(seed)
    calls, at_s = [], rng.expovariate(rate_per_s)
    while at_s < duration_s:
        calls.append(Call(at_s, max(1, round(rng.expovariate(1 / words))), pace))
        at_s += rng.expovariate(rate_per_s)
    return calls
