"""A whole worker but for NATS and torch: desk and sessions, step loop, fake engine, on one clock that is advanced."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

from engine.contract import Entry, FrameEngine
from engine.fake import FakeEngine
from engine.frontend.sources import SourceWord
from scheduler.clock import FakeClock
from scheduler.loop import LoopRules, StepLoop
from scheduler.messages import Credit, Event
from tests.fake_bus import FakeBus
from worker.bus import Bus
from worker.desk import FrontDesk
from worker.greenroom import GreenRoom
from worker.narration import Opening
from worker.sections import NatsSettings, ProbesSettings, Settings, TelemetrySettings, WorkerSettings
from worker.subscription import Message
from worker.telemetry import Telemetry

TICK_S = 0.05
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Piece:
    entry: Entry


@dataclass
class Words:
    """A text's white-space words as they are, each with the white space before it; the last one waits for more."""

    busy: bool = False
    _text: str = ""
    _at: int = 0
    _spoken: int = 0
    _sources: list[SourceWord] = field(default_factory=list)

    def feed(self, delta: str) -> Sequence[Piece]:
        self._text += delta
        return self._cut(self._text.rfind(" ") + 1)

    def flush(self) -> Sequence[Piece]:
        return self._cut(len(self._text))

    def finish(self) -> Sequence[Piece]:
        return self.flush()

    def advance(self) -> Sequence[Piece]:
        return []

    def words(self) -> Sequence[SourceWord]:
        out, self._sources = self._sources, []
        return out

    def _cut(self, end: int) -> Sequence[Piece]:
        pieces = []
        while self._at < end:
            start = self._at
            while start < end and self._text[start] == " ":
                start += 1
            stop = start
            while stop < end and self._text[stop] != " ":
                stop += 1
            if stop > start:
                self._sources.append(SourceWord(self._text[start:stop], start, stop, self._spoken, True))
                self._spoken += 1
                pieces.append(Piece(Entry((5,))))
            self._at = stop
        return pieces


class ClockedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is a fake clock's: whoever runs on it must never let it wait."""

    def __init__(self, clock: FakeClock) -> None:
        self._fake = clock
        super().__init__()

    def time(self) -> float:
        return self._fake.now()


@dataclass(frozen=True)
class Heard:
    """One message on a session's subject: an event's fields, or ``kind`` audio with its headers."""

    at: float
    kind: str
    fields: dict[str, Any]
    payload: bytes = b""

    @classmethod
    def of(cls, at: float, message: Message) -> Heard:
        if message.no_responders:
            return cls(at, "status 503", {})
        kind = message.headers["Tts-Event"]
        if kind != "audio":
            return cls(at, kind, json.loads(message.payload))
        numbers = {name: int(message.headers[f"Tts-{name.capitalize()}"]) for name in ("seq", "pts", "gen")}
        return cls(at, kind, numbers, message.payload)


class Caller:
    """One caller with one session: producer and listener."""

    def __init__(self, stage: Stage, number: int) -> None:
        self.stage = stage
        self.id = f"caller-{number:016d}"
        self.inbox = f"_INBOX.caller.{number}"
        self.events: list[Heard] = []
        self._ear = stage.bus.subscribe(self.inbox, self._hear)

    def _hear(self, message: Message) -> None:
        self.events.append(Heard.of(self.stage.clock.now(), message))

    def open(self, **fields: Any) -> None:
        body = json.dumps({"type": "open", "session": self.id, **fields}).encode()
        self.stage.bus.publish("tts.v1.default.open.std", body, headers=JSON, reply=self.inbox)

    def say(self, kind: str, **fields: Any) -> None:
        ready = self.events[0].fields
        body = json.dumps({"type": kind, **fields}).encode()
        self.stage.bus.publish(ready["input"], body, headers=JSON)

    def deafen(self) -> None:
        self._ear.close()

    def listen(self) -> None:
        self._ear = self.stage.bus.subscribe(self.inbox, self._hear)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    @property
    def over(self) -> bool:
        return "end" in self.kinds

    def last(self, kind: str) -> dict[str, Any]:
        return next(event.fields for event in reversed(self.events) if event.kind == kind)


class Stage:
    """Everything happens on the test's own thread and in its own time. The engine's events reach the desk after
    ``latency`` further turns, so that they cross with what callers say."""

    def __init__(
        self,
        clock: FakeClock,
        *,
        seed: int,
        slots: int,
        run_ahead: int = 0,
        silent: bool = False,
        latency: Callable[[], int] = lambda: 0,
    ) -> None:
        self.clock = clock
        self.rng = random.Random(seed)
        self.bus = FakeBus(self.rng)
        self.engine = FakeEngine(slots, run_ahead=run_ahead, overlap=720, silent=silent, spend=self._spend)
        self.loop = StepLoop(self.engine, clock, self._deliver, LoopRules(headroom=100.0, idle_tick_s=TICK_S))
        self._latency = latency
        self._turn = 0
        self.tell: Callable[[Event], None] = lambda event: self.desk.deliver([event])
        """How one event is given to the desk; a test may look on."""
        self.rest: Callable[[], None] = lambda: None
        """Called when everybody has reacted to everything; timers have fired."""
        self._under_way: deque[tuple[int, Sequence[Event]]] = deque()
        self._numbers = itertools.count()
        settings = Settings(
            nats=NatsSettings(embedded="off"),
            probes=ProbesSettings(port=0),
            telemetry=TelemetrySettings(prometheus=False),
            worker=WorkerSettings(id="fake", idle_timeout_s=60.0),
        )
        self.telemetry = Telemetry(settings.telemetry, pool="std", worker="fake", version="0")
        self.reader = ThreadPoolExecutor(1)
        self.desk = FrontDesk(
            cast(Bus, self.bus),
            settings,
            cast(FrameEngine, self.engine).info,
            self.telemetry,
            submit=self.loop.submit,
            limit=lambda: self.loop.limit,
            opening=lambda settled: Opening(Words, light=True),
            greenroom=GreenRoom(self.engine, 1.0),
            reader=self.reader,
            version="0",
            slots=slots,
        )
        self.desk.start()

    def _spend(self, text_rows: int, frame_rows: int) -> None:
        self.clock.advance(0.001 * text_rows + 0.002 * frame_rows)

    def _deliver(self, events: Sequence[Event]) -> None:
        due = self._turn + self._latency()
        if self._under_way:
            due = max(due, self._under_way[-1][0])
        self._under_way.append((due, list(events)))

    def _wake(self) -> None:
        self.loop.submit(Credit("nobody", 0.0))

    def caller(self) -> Caller:
        return Caller(self, next(self._numbers))

    async def settle(self) -> None:
        """Everybody reacts to everything that is known, at this moment."""
        busy = True
        while busy:
            busy = self.bus.pump()
            while self._under_way and self._under_way[0][0] <= self._turn:
                for event in self._under_way.popleft()[1]:
                    self.tell(event)
                busy = True
            await asyncio.sleep(0)
            self.rest()

    async def turn(self) -> None:
        """One iteration of the step loop."""
        self.loop.tick()
        self._turn += 1
        await self.settle()

    async def run(self, seconds: float) -> None:
        until = self.clock.now() + seconds
        self.clock.at(until, self._wake)
        while self.clock.now() < until:
            await self.turn()

    async def run_until(self, done: Callable[[], bool], limit_s: float = 100.0) -> None:
        until = self.clock.now() + limit_s
        while not done():
            assert self.clock.now() < until, "it does not come"
            await self.run(TICK_S)


@contextlib.asynccontextmanager
async def staged(clock: FakeClock, **options: Any) -> AsyncIterator[Stage]:
    stage = Stage(clock, **options)
    try:
        yield stage
        await stage.desk.shut()
        await stage.settle()
    finally:
        stage.reader.shutdown()
        stage.telemetry.close(1.0)


def perform(play: Callable[[Stage], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Run a play on a stage of its own."""
    clock = FakeClock(1000.0)

    async def run() -> None:
        async with staged(clock, **{"seed": 0, "slots": 4, **options}) as stage:
            await play(stage)

    with asyncio.Runner(loop_factory=lambda: ClockedLoop(clock)) as runner:
        runner.run(run())
