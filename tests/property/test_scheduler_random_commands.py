"""Whatever commands come, in whatever order and at whatever moment, the promises to a session hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.contract import Entry
from scheduler.messages import (
    Cancel,
    Cancelled,
    Credit,
    Ended,
    Event,
    Failed,
    Finish,
    FirstStep,
    Flush,
    Flushed,
    Frame,
    Hold,
    Open,
    Pace,
    Park,
    Parked,
    Push,
    Refused,
    Resume,
    Stalled,
    Started,
    StepReport,
)
from tests.scheduler_room import FRAME_S, WORD, Room, options

RATE = 24_000
OVERLAP = 720
"""Samples that the codec may keep back; the last frame of an utterance is longer by them."""


@dataclass
class Watch:
    """What one session was promised, and what came."""

    pace: Pace
    lead_s: float
    credit: int | None
    lasting: bool = False
    generation: int = 0
    """Of the last ``Cancel`` submitted: what the caller speaks in."""
    heard_generation: int = 0
    started: bool = False
    seated: bool = False
    complete: bool = False
    """``Ended`` came in this generation; a lasting session is still there."""
    ended: bool = False
    first_step: bool = False
    samples: int = 0
    words: Counter[int] = field(default_factory=Counter)
    """Submitted and not spoken yet, by generation."""
    step: int = 0
    played_until: float = float("-inf")
    stalls: int = 0
    """In this generation."""
    texts: Counter[int] = field(default_factory=Counter)
    """Commands that can end a stall, by generation."""
    pushed: set[int] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    flushes: Counter[int] = field(default_factory=Counter)
    """Not answered yet, by generation."""

    def take(self, event: Event, now: float) -> None:
        assert not self.ended, f"{event} after the end"
        match event:
            case Started():
                assert not self.seated
                assert not self.started or self.heard_generation in self.pushed, "a row, and nothing to say"
                self.started = self.seated = True
            case Parked():
                self._speaks(event.generation)
                assert self.seated
                assert self.step == self.stalls == 0, "what the model has in mind is lost"
                self.seated = False
            case Refused():
                assert not self.started
                self.ended = True
            case FirstStep():
                assert not self.first_step
                self.first_step = True
            case Frame():
                self._frame(event, now)
            case Stalled():
                self._speaks(event.generation)
                assert event.generation in self.pushed, "stalled before the first text"
                self.stalls += 1
                assert self.stalls <= self.texts[event.generation], "stalled twice for want of the same word"
            case Flushed():
                self._speaks(event.generation)
                self.flushes[event.generation] -= 1
                assert self.flushes[event.generation] >= 0, "flushed without having been asked"
            case Ended():
                self._speaks(event.generation)
                assert event.generation in self.closed
                assert self.words[event.generation] == 0, "a word was not spoken"
                assert self.flushes[event.generation] == 0, "a flush before the end was not answered"
                assert not self.complete, "ended twice"
                self.complete, self.ended, self.seated = True, not self.lasting, False
            case Failed():
                self._speaks(event.generation)
                self.ended = True
            case Cancelled():
                self._speaks(event.generation)
                self.ended = not event.kept
                self.heard_generation += 1
                self.step, self.played_until, self.stalls, self.complete = 0, float("-inf"), 0, False
            case _:
                raise AssertionError(event)

    def _speaks(self, generation: int) -> None:
        assert self.started
        assert generation == self.heard_generation, "an old or a future generation speaks"

    def _frame(self, event: Frame, now: float) -> None:
        self._speaks(event.generation)
        assert self.seated, "a frame without a row"
        assert event.frame.step == self.step + 1, "a frame is missing, twice, or out of order"
        self.step += 1
        assert self.stalls < self.texts[event.generation], "a frame between a stall and the next text"
        self.words[event.generation] -= event.frame.word
        assert self.words[event.generation] >= 0, "a word that nobody said, or not in this generation"
        samples = len(event.frame.pcm) // 2
        if not samples:
            return
        self.samples += samples
        assert self.credit is None or self.samples <= self.credit
        self.played_until = max(self.played_until, now) + samples / RATE
        if self.pace is Pace.LIVE:
            tail_s = OVERLAP / RATE if event.frame.flushed or event.frame.ended else 0.0
            assert self.played_until - now <= max(self.lead_s, FRAME_S) + FRAME_S + tail_s + 1e-9, "too far ahead"


class RandomCommands(RuleBasedStateMachine):
    @initialize(
        run_ahead=st.sampled_from([0, 1, 2]),
        base_ms=st.sampled_from([0.0, 1.0, 5.0, 30.0]),
        row_ms=st.sampled_from([0.0, 0.5, 8.0]),
        capacity=st.sampled_from([1, 3, 8]),
        overlap=st.sampled_from([0, OVERLAP]),
    )
    def begin(self, run_ahead: int, base_ms: float, row_ms: float, capacity: int, overlap: int) -> None:
        def cost(rows: int) -> float:
            return (base_ms + row_ms * rows) / 1000

        self.room = Room(
            capacity,
            run_ahead=run_ahead,
            overlap=overlap,
            frame_s=cost,
            text_s=lambda rows: cost(rows) / 4,
            warm=True,
        )
        self.watches: dict[str, Watch] = {}
        self.read = 0
        self.number = 0

    def _alive(self) -> list[str]:
        return [name for name, watch in self.watches.items() if not watch.ended]

    def _some(self, pick: int) -> str | None:
        alive = self._alive()
        return alive[pick % len(alive)] if alive else None

    @rule(
        pace=st.sampled_from([Pace.LIVE, Pace.LIVE, Pace.FAST]),
        lead_ms=st.sampled_from([0.0, 80.0, 160.0, 480.0]),
        credit_ms=st.sampled_from([None, None, 0.0, 200.0, 1000.0]),
        words=st.integers(0, 12),
        finish=st.booleans(),
        lasting=st.booleans(),
    )
    def open(
        self, pace: Pace, lead_ms: float, credit_ms: float | None, words: int, finish: bool, lasting: bool
    ) -> None:
        name = f"s{self.number}"
        self.number += 1
        credit = None if credit_ms is None else int(credit_ms * RATE / 1000)
        self.watches[name] = Watch(pace, lead_ms / 1000, credit, lasting)
        self.room.submit(Open(name, options(seed=self.number), pace, lead_ms, credit_ms, lasting))
        self._push(name, (WORD,) * words)
        if finish:
            self._finish(name)

    def _push(self, name: str, entries: tuple[Entry, ...]) -> None:
        watch = self.watches[name]
        if watch.generation not in watch.closed:
            watch.words[watch.generation] += sum(entry.is_word for entry in entries)
        if entries:
            watch.pushed.add(watch.generation)
            watch.texts[watch.generation] += 1
        self.room.submit(Push(name, watch.generation, entries))

    def _finish(self, name: str) -> None:
        watch = self.watches[name]
        watch.closed.add(watch.generation)
        watch.texts[watch.generation] += 1
        self.room.submit(Finish(name, watch.generation))

    @rule(pick=st.integers(0, 7), words=st.integers(0, 5), pause=st.integers(0, 1))
    def push(self, pick: int, words: int, pause: int) -> None:
        if name := self._some(pick):
            self._push(name, (WORD,) * words + (Entry((), padding=4),) * pause)

    @rule(pick=st.integers(0, 7))
    def flush(self, pick: int) -> None:
        if name := self._some(pick):
            watch = self.watches[name]
            if watch.generation not in watch.closed:
                watch.flushes[watch.generation] += 1
                watch.texts[watch.generation] += 1
            self.room.submit(Flush(name, watch.generation))

    @rule(pick=st.integers(0, 7))
    def finish(self, pick: int) -> None:
        if name := self._some(pick):
            self._finish(name)

    @rule(pick=st.integers(0, 7), keep=st.booleans())
    def cancel(self, pick: int, keep: bool) -> None:
        if name := self._some(pick):
            watch = self.watches[name]
            watch.generation += 1
            self.room.submit(Cancel(name, options(watch.generation, seed=9) if keep else None))

    @rule(pick=st.integers(0, 7), interrupt=st.booleans())
    def park(self, pick: int, interrupt: bool) -> None:
        if name := self._some(pick):
            if interrupt:
                self.cancel(pick, keep=True)
            self.room.submit(Park(name, self.watches[name].generation))

    @rule(pick=st.integers(0, 7), ms=st.sampled_from([10.0, 80.0, 500.0]))
    def grant(self, pick: int, ms: float) -> None:
        if name := self._some(pick):
            watch = self.watches[name]
            if watch.credit is not None:
                watch.credit += round(ms * RATE / 1000)
            self.room.submit(Credit(name, ms))

    @rule(pick=st.integers(0, 7))
    def hold(self, pick: int) -> None:
        if name := self._some(pick):
            self.room.submit(Hold(name))

    @rule(pick=st.integers(0, 7))
    def resume(self, pick: int) -> None:
        if name := self._some(pick):
            self.room.submit(Resume(name))

    @rule()
    def stray(self) -> None:
        self.room.submit(Push("nobody", 0, (WORD,)), Cancel("nobody"), Finish("nobody", 0), Hold("nobody"))

    @rule(pick=st.integers(0, 7))
    def poison(self, pick: int) -> None:
        if slots := self.room.engine.open_slots:
            self.room.engine.poison(slots[pick % len(slots)])

    @rule(in_collect=st.booleans())
    def break_a_step(self, in_collect: bool) -> None:
        self.room.engine.raise_once(RuntimeError("ordered"), in_collect=in_collect)

    @rule(ms=st.sampled_from([1.0, 7.0, 40.0, 81.0, 400.0, 2500.0]))
    def pass_time(self, ms: float) -> None:
        self.room.run(ms / 1000)

    @rule(ticks=st.integers(1, 4))
    def tick(self, ticks: int) -> None:
        for _ in range(ticks):
            self.room.loop.tick()

    @precondition(lambda self: hasattr(self, "room"))
    @invariant()
    def promises_hold(self) -> None:
        for now, event in self.room.timed[self.read :]:
            self.read += 1
            if not isinstance(event, StepReport):
                self.watches[event.session].take(event, now)
            else:
                assert event.active <= self.room.engine.capacity
        rows = sum(watch.seated and not watch.ended for watch in self.watches.values())
        assert rows <= self.room.engine.capacity

    def teardown(self) -> None:
        if not hasattr(self, "room"):
            return
        for name in self._alive():
            self.room.submit(Resume(name), Credit(name, 1e7))
            watch = self.watches[name]
            if watch.credit is not None:
                watch.credit += 10**12
            self._finish(name)
        self.room.run_out()
        self.promises_hold()
        for name in self._alive():
            assert self.watches[name].complete, "no end"
            self.room.submit(Cancel(name))
        self.room.run_out()
        self.promises_hold()
        assert [name for name, watch in self.watches.items() if not watch.ended] == [], "no end"
        assert self.room.engine.open_slots == []
        self._every_row_is_free()

    def _every_row_is_free(self) -> None:
        capacity = self.room.engine.capacity
        for row in range(capacity + 1):
            self.room.open(f"last {row}")
        self.room.loop.tick()
        taken = [event for event in self.room.events if isinstance(event, Started) and event.session.startswith("last")]
        assert len(taken) == capacity


TestRandomCommands = RandomCommands.TestCase
TestRandomCommands.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
