"""Callers who do anything at any moment, and a witness who holds every session to ARCHITECTURE.md's table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scheduler import messages as sched
from tests.live_table import LINES, Line
from tests.stage import Heard, Stage
from worker.audience import Presence
from worker.generation import Phase
from worker.seat import Place
from worker.session import LiveSession
from worker.subscription import Handler, Message

TEXTUAL = ("text", "flush", "finish", "cancel")


@dataclass
class Said:
    """One generation as it went into the session and came out of the engine."""

    text: str = ""
    pcm: bytes = b""
    word: str = ""
    """Begun and not ended: more of it may come."""

    def ends_word(self, delta: str) -> bool:
        *ended, self.word = (self.word + delta).split(" ")
        return any(ended)


@dataclass
class Book:
    """What must be true of one session at its end."""

    opened_at: float
    generations: list[Said] = field(default_factory=lambda: [Said()])
    words: int = 0
    frames: int = 0
    stalled_s: float = 0.0
    stalled_since: float | None = None
    queued_s: float = 0.0
    queued_since: float | None = None
    stepped: bool = False
    credit_ms: float | None = None
    first_audio_at: float | None = None
    over_at: float = 0.0

    def resume(self, now: float) -> None:
        if self.stalled_since is not None:
            self.stalled_s += now - self.stalled_since
            self.stalled_since = None

    def close(self, now: float) -> None:
        self.over_at = now
        self.resume(now)
        if self.queued_since is not None:
            self.queued_s += now - self.queued_since
            self.queued_since = None

    def seat(self, now: float) -> None:
        if self.queued_since is not None and self.stepped:
            self.queued_s += now - self.queued_since
            self.queued_since = None


class Witness:
    """Sees everything that reaches a session, one thing at a time."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.visited: Counter[Line] = Counter()
        self.books: dict[str, Book] = {}
        self._at_rest: dict[str, tuple[str, str]] = {}
        self._mark = 0  # what was sent before was looked at
        stage.bus.hand_over = self._hand_over
        stage.tell, self._tell = self._on_event, stage.tell
        stage.rest = self._on_rest

    # --- what happens -----------------------------------------------------------------------------------------------

    def _hand_over(self, message: Message, handler: Handler) -> None:
        if ".in." not in message.subject:
            handler(message)
            self._mark = len(self.stage.bus.sent)
            if ".open." in message.subject:
                self._register(json.loads(message.payload)["session"])
            return
        fields = json.loads(message.payload)
        session = self._session(message.subject.rpartition(".")[2])
        if session is None or session.over:
            self._expect_nothing(lambda: handler(message))
            self.visited[self._line(("over", "none"), "anything")] += 1
            return
        book = self.books[session.id]
        said = book.generations[-1]
        cause = classify(session, fields)
        if cause == "text" and session.phase is not Phase.FINISHING:
            said.text += fields["text"]
            cause = f"text that ends {'a' if said.ends_word(fields['text']) else 'no'} word"
        elif cause in ("flush", "finish"):
            if said.word and session.phase is Phase.QUIET and (cause == "flush" or session.place is Place.PARKED):
                cause += " that ends a word"
            said.word = ""
        if fields["type"] == "credit" and book.credit_ms is not None:
            book.credit_ms += fields["ms"]
        self._check(session, cause, lambda: handler(message))
        if cause.startswith("cancel") and not cause.endswith("older generation"):
            book.resume(self.stage.clock.now())
            book.seat(self.stage.clock.now())
            self._check_split(session, book)
            book.generations.append(Said())

    def _register(self, name: str) -> None:
        session = self._session(name)
        if session is not None and name not in self.books:
            now = self.stage.clock.now()
            text = Said(session.settled.text or "")
            if not session.settled.final:
                text.ends_word(text.text)
            self.books[name] = Book(now, [text], queued_since=now, credit_ms=session.settled.credit_ms)
            self._at_rest[name] = look(session)

    def _check_split(self, session: LiveSession, book: Book) -> None:
        said = session._last_cancel
        assert said is not None
        assert said.spoken + said.unspoken == book.generations[-1].text, "the text's parts are not its whole"

    def _on_event(self, event: sched.Event) -> None:
        session = None if isinstance(event, sched.StepReport) else self._session(event.session)
        if session is None:
            self._tell(event)
            return
        book = self.books[session.id]
        if session.over:
            self._expect_nothing(lambda: self._tell(event))
            return
        cause = self._cause(session, event)
        self._note(session, event, book)
        if cause is None:
            self._expect_nothing(lambda: self._tell(event))
        else:
            self._check(session, cause, lambda: self._tell(event))

    def _note(self, session: LiveSession, event: sched.Event, book: Book) -> None:
        now = self.stage.clock.now()
        match event:
            case sched.Started():
                book.seat(now)
            case sched.FirstStep():
                book.stepped = True
                book.queued_s, book.queued_since = now - book.opened_at, None
            case sched.Frame() if event.generation == session._generation.number:
                book.resume(now)
                book.words += event.frame.word
                book.frames += bool(event.frame.pcm)
                book.generations[-1].pcm += event.frame.pcm

    def _cause(self, session: LiveSession, event: sched.Event) -> str | None:
        generation = session._generation
        if isinstance(event, sched.Failed):
            return "arithmetic that is not finite, or a step that raises"
        if isinstance(event, sched.Parked):
            crossing = {Phase.QUIET: "", Phase.FINISHING: "finish"}.get(session.phase, "text")
            asked = session._seat._asked
            if asked is not None and asked >= event.generation:
                crossing = "text" if generation.begun else "text that was cancelled"
            return f"the same, crossing with {crossing}" if crossing else "2 s of silence after a cancel with keep"
        if isinstance(event, sched.Started):
            if session.place is Place.ROW:
                return None
            return "a row is free" if session._seat.wanted else "a row is free, which it no longer wants"
        if isinstance(event, sched.Cancelled) and session.place is Place.LINE:
            confirmed = session._seat._rested == event.generation and not session._seat.wanted
            return "its cancel has taken it out of the line" if confirmed else None
        if not isinstance(event, sched.Frame | sched.Stalled | sched.Flushed | sched.Ended):
            return None
        if event.generation != generation.number:
            ended = isinstance(event, sched.Ended)
            return "the end of an older generation: its row is free" if ended else OLD
        match event:
            case sched.Frame():
                return "a frame"
            case sched.Stalled():
                crossed = event.heard < generation.told or generation.finished
                return "it wants a word, and text, flush or finish is under way" if crossed else "it wants a word"
            case sched.Flushed():
                more = generation._more or len(generation._flushes) > 1 or generation.finished
                said = session.phase is not Phase.QUIET
                return "a flush is done, and more was given behind it" if more and said else "a flush is done"
        return "the end of the text"

    def _on_rest(self) -> None:
        """Whatever has changed since the last look was brought by time."""
        held = self.stage.loop.active + self.stage.loop.waiting
        assert self.stage.desk._occupied() >= held, "a row would be given away twice"
        for session in list(self.stage.desk._sessions.values()):
            before = self._at_rest.get(session.id)
            self._at_rest[session.id] = now = look(session)
            if before == now and before[0] != "over":
                self._check_silence(session, before)
            if before not in (None, now):
                assert session.over, f"{before} -> {now} by itself"
                self.books[session.id].close(self.stage.clock.now())
                self._ended_by_time(session, before)
        self.stage.bus.sent.clear()
        self._mark = 0

    def _check_silence(self, session: LiveSession, state: tuple[str, str]) -> None:
        if events := self._events_of(session, self.stage.bus.sent[self._mark :]):
            line = self._line(state, "1 s without an event")
            assert line.allows(events) or session.audience.absent, f"{events} in {state}, by itself"
            self.visited[line] += 1

    def _ended_by_time(self, session: LiveSession, before: tuple[str, str]) -> None:
        last = [heard for heard in self._events_of(session, self.stage.bus.sent) if heard[0] in ("error", "end")]
        if session.egress.route.withheld or last[-1] == ("end", "shutdown"):
            return
        unheard = session.audience._presence is Presence.GONE
        cause = {
            "idle": "idle_timeout_s without a message of the producer",
            "limit": "max_session_s",
            "gone": "nobody for 3 s" if unheard else "a producer that pinged is silent for 3.5 s",
            "failed": "none for 5 s",
        }[last[-1][1]]
        line = self._line(before, cause)
        assert unheard or line.allows(last)
        self.visited[line] += 1

    def _line(self, before: tuple[str, str], cause: str) -> Line:
        lines = [line for line in LINES if line.matches(*before, cause)]
        assert len(lines) == 1, f"{cause!r} in {before}: {len(lines)} lines of the table"
        return lines[0]

    # --- what may happen --------------------------------------------------------------------------------------------

    def _check(self, session: LiveSession, cause: str, do: Callable[[], None]) -> None:
        before, generation, sent = look(session), session._generation.number, len(self.stage.bus.sent)
        withheld = session.egress.route.withheld
        do()
        self._mark = len(self.stage.bus.sent)
        after, events = look(session), self._events_of(session, self.stage.bus.sent[sent:])
        book = self.books[session.id]
        if ("audio", "") in events and book.first_audio_at is None and not withheld:
            book.first_audio_at = self.stage.clock.now()
        if after[0] == "over":
            book.close(self.stage.clock.now())
        self._at_rest[session.id] = after
        if session.place is Place.LINE and session._generation.begun and book.queued_since is None:
            book.queued_since = self.stage.clock.now()
        if ("need_text", "") in events or (cause == "it wants a word" and withheld):
            book.stalled_since = self.stage.clock.now()
        line = self._line(before, cause)
        self.visited[line] += 1
        where = f"{cause!r} in {before} -> {after}, {events}"
        assert after[0] == (line.then or before[0]), where
        assert after[1] in (line.row_then or (before[1],)), where
        assert session._generation.number == generation + line.generation or after[0] == "over", where
        assert withheld or line.allows(events), where

    def _expect_nothing(self, do: Callable[[], None]) -> None:
        sent = len(self.stage.bus.sent)
        do()
        assert not [m for m in self.stage.bus.sent[sent:] if m.subject.startswith("_INBOX")], (
            "it was over, or no matter"
        )
        self._mark = len(self.stage.bus.sent)

    def _events_of(self, session: LiveSession, messages: list[Message]) -> list[tuple[str, str]]:
        subject = f"_INBOX.caller.{int(session.id.removeprefix('caller-'))}"
        heard = [Heard.of(0.0, message) for message in messages if message.subject == subject]
        return [(one.kind, one.fields.get("code") or one.fields.get("reason") or "") for one in heard]

    def _session(self, name: str) -> LiveSession | None:
        return self.stage.desk._sessions.get(name)


OLD = "frames, stalls, flushes of an older generation"


def look(session: LiveSession) -> tuple[str, str]:
    return session.phase.value, "none" if session.over else session.place.value


def classify(session: LiveSession, fields: dict[str, Any]) -> str:
    """Which cause of the table a producer's message is."""
    kind, generation, expected = fields["type"], session._intake.generation, session._intake.text_seq
    named, seq = fields.get("gen"), fields.get("seq")
    if kind in TEXTUAL and named is not None and named != generation:
        if named > generation:
            return "text, flush, finish, cancel of a generation to come"
        again = kind == "cancel" and named == generation - 1
        return "the last cancel again" if again else "text, flush, finish, cancel of an older generation"
    if kind == "cancel":
        return "cancel with keep" if fields.get("keep") else "cancel"
    if seq is not None and seq > expected:
        return "text, flush, finish behind a text that was lost"
    if kind == "text":
        if seq is not None and seq < expected:
            return "text that was taken already"
        return "text"
    if kind in ("flush", "finish") and session.phase is Phase.FINISHING:
        return "flush, finish"
    return str(kind)
