"""Callers at random, and what each of them must have heard."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.live_walk import Book, Witness
from tests.stage import Caller, Stage
from worker.seat import PARK_AFTER_S

TEXTS = ("one ", "two three ", "par", "tial and ", "four five six ", " ")
PAUSES_S = (0.0, 0.0, 0.0, 0.01, 0.05, 0.3, 1.1, 2.6)


class Walker:
    """One caller who knows the rules and keeps most of them."""

    def __init__(self, stage: Stage, rng: random.Random) -> None:
        self.caller: Caller = stage.caller()
        self._rng = rng
        self._generation = self._seq = 0
        self._pings = False
        self.was_deaf = self._deaf = False
        self.cancelled_at = 0.0

    def open(self) -> None:
        rng = self._rng
        options: dict[str, Any] = {
            "seed": rng.randrange(1000),
            "pace": rng.choice(["live", "live", "fast"]),
            "idle_timeout_s": rng.choice([3.0, 9.0, 30.0]),
        }
        if rng.random() < 0.3:
            options["text"] = "".join(rng.choices(TEXTS, k=2))
            options["final"] = rng.random() < 0.3
        if rng.random() < 0.3:
            options["credit_ms"] = rng.choice([0.0, 250.0, 1_000.0])
        if rng.random() < 0.1:
            options["max_session_s"] = rng.choice([2.0, 6.0])
        self.caller.open(**options)

    @property
    def begun(self) -> bool:
        return bool(self.caller.events)

    @property
    def over(self) -> bool:
        return self.begun and (self.caller.over or self.caller.kinds[0] != "ready")

    def act(self) -> None:
        rng = self._rng
        if self._pings:
            self.caller.say("ping")
        say = rng.choices(
            [self._text, self._flush, self._finish, self._cancel, self._err, self._credit, self._ping, self._listen],
            [12, 3, 1.5, 4, 3, 2, 0.2, 0.6],
        )[0]
        say()

    def _text(self) -> None:
        self.caller.say("text", seq=self._seq, text=self._rng.choice(TEXTS), **self._named())
        self._seq += 1

    def _flush(self) -> None:
        self.caller.say("flush", seq=self._seq, **self._named())

    def _finish(self) -> None:
        self.caller.say("finish", **self._named())

    def _cancel(self) -> None:
        keep = self._rng.random() < 0.85
        self.caller.say("cancel", keep=keep, **self._named())
        self._generation, self._seq = self._generation + 1, 0
        self.cancelled_at = self.caller.stage.clock.now()
        if self._rng.random() < 0.2:
            self.caller.say("cancel", keep=keep, gen=self._generation - 1)

    def _err(self) -> None:
        """A message that is lost, late, doubled or too early."""
        say, rng = self.caller.say, self._rng
        kind = rng.choice(["text", "flush", "finish", "cancel"])
        text = {"text": "wrong "} if kind == "text" else {}
        match rng.randrange(4):
            case 0:
                say(kind, gen=self._generation + rng.randint(1, 3), **({"seq": 0} if text else {}), **text)
            case 1 if self._generation > 1:
                say(kind, gen=self._generation - 2, **({"seq": 0} if text else {}), **text)
            case 2 if self._seq:
                say("text", seq=rng.randrange(self._seq), text="again ", **self._named())
            case _:
                say("text", seq=self._seq + 1, text="later ", **self._named())

    def _credit(self) -> None:
        self.caller.say("credit", ms=self._rng.choice([80.0, 500.0, 5_000.0]))

    def _ping(self) -> None:
        self._pings = True
        self.caller.say("ping")

    def _listen(self) -> None:
        """Leave, or come back."""
        self.was_deaf = True
        (self.caller.listen if self._deaf else self.caller.deafen)()
        self._deaf = not self._deaf

    def _named(self) -> dict[str, int]:
        return {"gen": self._generation} if self._generation or self._rng.random() < 0.5 else {}


async def walk(stage: Stage, sessions: int, at_once: int) -> Witness:
    """So many sessions, until the last is over and nothing is left of any."""
    rng, witness = stage.rng, Witness(stage)
    before = len(stage.bus.interests)
    walkers: list[Walker] = []
    done = 0
    while done < sessions:
        room = stage.desk._tokens.target > 0 or rng.random() < 0.02
        if room and len(walkers) < at_once and done + len(walkers) < sessions:
            walkers.append(Walker(stage, rng))
            walkers[-1].open()
        for walker in walkers:
            if walker.begun and not walker.over and rng.random() < 0.5:
                walker.act()
        await stage.settle()
        misfortune(stage, rng)
        await stage.run(pause_s(stage, walkers))
        for walker in [walker for walker in walkers if is_over(stage, walker)]:
            walkers.remove(walker)
            walker.caller.deafen()
            done += verify(walker, witness)
    await stage.run_until(lambda: stage.desk.sessions == 0 and not stage.bus.watches)
    assert_nothing_left(stage, before)
    return witness


def pause_s(stage: Stage, walkers: list[Walker]) -> float:
    """Any; or until somebody's row is being parked at this very moment."""
    now = stage.clock.now()
    parking = [walker.cancelled_at + PARK_AFTER_S - now for walker in walkers]
    due = [seconds for seconds in parking if seconds > 0]
    return min(due) if due and stage.rng.random() < 0.1 else stage.rng.choice(PAUSES_S)


def misfortune(stage: Stage, rng: random.Random) -> None:
    """A row that fails, or a whole step."""
    if rng.random() < 0.002 and (slots := stage.engine.open_slots):
        stage.engine.poison(rng.choice(slots))
    if rng.random() < 0.001:
        stage.engine.raise_once(RuntimeError("ordered"), in_collect=rng.random() < 0.5)


def is_over(stage: Stage, walker: Walker) -> bool:
    live = stage.desk._sessions.get(walker.caller.id)
    return walker.over or (walker.was_deaf and walker.begun and (live is None or live.over))


def assert_nothing_left(stage: Stage, interests: int) -> None:
    slots = stage.engine.capacity
    assert stage.loop.active == stage.loop.waiting == 0
    assert stage.engine.open_slots == []
    assert stage.desk._tokens.target == stage.desk._tokens.armed == slots
    assert len(stage.bus.interests) == interests
    assert stage.bus.watches == {}


def verify(walker: Walker, witness: Witness) -> bool:
    """All that one caller was promised. False: there was no room."""
    events = walker.caller.events
    kinds = walker.caller.kinds
    if kinds[0] != "ready":
        assert len(events) == 1
        assert events[0].kind == "status 503" or events[0].fields["code"] == "no_capacity"
        return False
    assert kinds.count("ready") == 1
    assert kinds.count("end") == 1 or walker.was_deaf, "exactly one end"
    assert "end" not in kinds[:-1], "and it is the last"
    book = witness.books[walker.caller.id]
    verify_order(walker)
    verify_audio(walker, book)
    if kinds[-1] == "end":
        verify_usage(walker, book)
    return True


def verify_order(walker: Walker) -> None:
    """Nothing old follows a ``cancelled``; what the listener gets runs on without a hole, if he was there."""
    generation = seq = pts = 0
    for event in walker.caller.events:
        if event.kind == "cancelled":
            assert event.fields["gen"] in (generation, generation + 1) or walker.was_deaf
            generation = max(generation, event.fields["gen"])
        if event.kind == "audio":
            at = (event.fields["gen"], event.fields["seq"], event.fields["pts"])
            if walker.was_deaf:
                assert all(new >= old for new, old in zip(at, (generation, seq, pts), strict=True))
            else:
                assert at == (generation, seq, pts), "a stale frame, a lost one, or one too early"
            generation, seq, pts = at[0], at[1] + 1, at[2] + len(event.payload) // 2


def verify_audio(walker: Walker, book: Book) -> None:
    """No frame lost or doubled, and none of another's."""
    start = 0
    for number, said in enumerate(book.generations):
        heard = [e for e in walker.caller.events if e.kind == "audio" and e.fields["gen"] == number]
        for event in heard:
            at = 2 * event.fields["pts"] - start
            assert event.payload == said.pcm[at : at + len(event.payload)]
        if not walker.was_deaf:
            assert sum(len(event.payload) for event in heard) == len(said.pcm)
        start += len(said.pcm)


def verify_usage(walker: Walker, book: Book) -> None:
    end, sent = walker.caller.last("end"), sum(len(said.pcm) for said in book.generations)
    usage = end["usage"]
    assert usage["characters"] == sum(len(said.text) for said in book.generations)
    assert usage["words"] == book.words
    assert usage["frames"] == book.frames
    assert usage["audio_ms"] == sent / 48
    assert usage["queued_ms"] == pytest.approx(1000 * book.queued_s, abs=0.01)
    assert usage["stalled_ms"] == pytest.approx(1000 * book.stalled_s, abs=0.01)
    life_ms = 1000 * (book.over_at - book.opened_at)
    assert usage["queued_ms"] + usage["stalled_ms"] <= life_ms + 0.01
    if not walker.was_deaf:
        first_s = None if book.first_audio_at is None else book.first_audio_at - book.opened_at
        assert usage.get("first_audio_ms") == (None if first_s is None else pytest.approx(1000 * first_s, abs=0.01))
    if book.credit_ms is not None:
        assert sent / 48 <= book.credit_ms + 0.5
