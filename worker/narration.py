"""The text side of one generation: deltas in their order -> entries for the engine, and what has been spoken of it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from engine.contract import Entry
from engine.frontend.sources import SourceWord
from worker.marks import Marks
from worker.wire.requests import join_surrogates

log = logging.getLogger(__name__)

LIGHT_CHARS = 256
"""A delta of no more is read at once (5 ms at worst), a longer one by the executor."""


class Piece(Protocol):
    """One entry of the engine's text, made of the generation's."""

    @property
    def entry(self) -> Entry: ...


class TextSource(Protocol):
    """``engine.frontend.stream.TextStream``, as far as it is needed here.

    Words count the characters (code points) of the joined text: a surrogate pair that two deltas share is one. A call
    works on a slice of the text; while ``busy``, ``advance`` gives the next.
    """

    @property
    def busy(self) -> bool: ...
    def feed(self, delta: str) -> Sequence[Piece]: ...
    def flush(self) -> Sequence[Piece]: ...
    def finish(self) -> Sequence[Piece]: ...
    def advance(self) -> Sequence[Piece]: ...
    def words(self) -> Sequence[SourceWord]: ...


@dataclass(frozen=True, slots=True)
class Opening:
    """How a narration gets its source."""

    open: Callable[[], TextSource]
    light: bool
    """It takes no time worth a thread."""


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where a narration's results go."""

    entries: Callable[[tuple[Entry, ...]], None]
    """For the engine, in order."""
    idle: Callable[[], None]
    """All that had to wait for the executor has been read."""
    failed: Callable[[], None]
    """The text cannot be read; why is in the log. Nothing comes after it."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What one call of the source gave."""

    pieces: Sequence[Piece]
    words: Sequence[SourceWord]


@dataclass(frozen=True, slots=True)
class Operation:
    work: Callable[[TextSource], Sequence[Piece]]
    light: bool
    done: Callable[[], None]
    speaker: int


class Narration:
    """One generation. Deltas, flush and finish take effect in order; the slow ones run on ``executor``, one at a time,
    slice by slice, so that speech begins before a long text is read.

    The outlet's calls and the ``done`` calls happen on the event loop, never after ``close``.
    """

    def __init__(self, opening: Opening, executor: Executor, outlet: Outlet, marks: Marks, speaker: int = 0) -> None:
        """``marks`` are told which words there are and when the engine begins them. ``speaker``: the first."""
        self._opening, self._executor, self._outlet, self._marks = opening, executor, outlet, marks
        self._source: TextSource | None = None
        self._waiting: deque[Operation] = deque()
        self._running: asyncio.Task[None] | None = None
        self._closed = False
        self._parts: list[str] = []
        self._given = self._taken = 0  # spoken words: given to the engine, begun by it
        self._ends: deque[tuple[int, int]] = deque()  # of words not yet begun: (spoken words before, its end)
        self._read_to = 0
        self.speaker = speaker
        """Whose text comes next."""
        self.characters = 0

    @property
    def text(self) -> str:
        if len(self._parts) > 1:
            self._parts = [join_surrogates("".join(self._parts))]
        return self._parts[0] if self._parts else ""

    @property
    def unspoken_characters(self) -> int:
        """Characters given of which the engine has not begun to speak, as far as they can be spoken at all."""
        return 0 if self._taken == self._given and not self.busy else self.characters - self._read_to

    @property
    def read_to(self) -> int:
        """Characters up to the end of the last word of the text that the engine has begun to speak."""
        return self._read_to

    @property
    def busy(self) -> bool:
        """Text is still on its way to the engine."""
        return bool(self._waiting) or self._running is not None

    async def read(self) -> None:
        """Return when nothing is on its way."""
        while self._running is not None:
            await asyncio.wait({self._running})

    def feed(self, delta: str, speaker: int | None = None) -> None:
        """``speaker``: whose text it is; None: whose the text before was, at first the first one's. No word goes on
        from one speaker to another."""
        if speaker is not None and speaker != self.speaker:
            self.flush(lambda: None)
            self.speaker = speaker
        if not delta:
            return
        self.characters += len(delta) - self._completes_pair(delta)
        self._parts.append(delta)
        self._do(lambda source: source.feed(delta), len(delta) <= LIGHT_CHARS, lambda: None)

    def flush(self, done: Callable[[], None]) -> None:
        # Of the text before, no more is left than the few words that had to wait for the next ones.
        self._do(lambda source: source.flush(), True, done)

    def finish(self, done: Callable[[], None]) -> None:
        self._do(lambda source: source.finish(), True, done)

    def word_taken(self, model_sample: int) -> None:
        """The engine begins the next spoken word; it will be heard from that sample on."""
        if self._taken == self._given:
            return
        self._taken += 1
        self._marks.take(model_sample)
        while self._ends and self._ends[0][0] < self._taken:
            self._read_to = self._ends.popleft()[1]

    def split(self, played_ms: float | None) -> tuple[str, str]:
        """The text before and after what was heard by a media time, or None: before and after what was told. A word
        that has begun is spoken."""
        text, cut = self.text, self._marks.cut(played_ms)
        return text[:cut], text[cut:]

    def close(self) -> None:
        """Cancelled: nothing of this generation reaches the engine any more."""
        self._closed = True
        self._waiting.clear()

    def _completes_pair(self, delta: str) -> bool:
        before = self._parts[-1][-1] if self._parts else ""
        return "\ud800" <= before <= "\udbff" and "\udc00" <= delta[0] <= "\udfff"

    def _do(self, work: Callable[[TextSource], Sequence[Piece]], light: bool, done: Callable[[], None]) -> None:
        if self._closed:
            return
        self._waiting.append(Operation(work, light, done, self.speaker))
        if self._running is not None:
            return
        while self._waiting and self._is_light(self._waiting[0]):
            self._settle(self._read(self._waiting[0].work), self._waiting[0].speaker)
            self._next()
        if self._waiting:
            self._running = asyncio.get_running_loop().create_task(self._work_off())

    def _is_light(self, operation: Operation) -> bool:
        return operation.light and (self._opening.light if self._source is None else not self._source.busy)

    async def _work_off(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                operation = self._waiting[0]
                self._settle(await loop.run_in_executor(self._executor, self._read, operation.work), operation.speaker)
                self._next()
        finally:
            self._running = None
        if not self._closed:
            self._outlet.idle()

    def _next(self) -> None:
        """The operation at the front has had a turn: its next slice comes first, or else what waits behind it."""
        if self._closed:
            return
        assert self._source is not None
        if self._source.busy:
            self._waiting[0] = dataclasses.replace(self._waiting[0], work=lambda source: source.advance())
        else:
            self._waiting.popleft().done()

    def _read(self, work: Callable[[TextSource], Sequence[Piece]]) -> Slice | None:
        """None if it cannot be done. The root of whatever is done with one session's text: its fault stays its own."""
        try:
            if self._source is None:
                self._source = self._opening.open()
            return Slice(work(self._source), self._source.words())
        except Exception:
            log.exception("a text could not be read")
            return None

    def _settle(self, read: Slice | None, speaker: int) -> None:
        if self._closed:
            return
        if read is None:
            self.close()
            self._outlet.failed()
            return
        self._marks.read(read.words)
        self._ends.extend((word.first, word.end) for word in read.words if word.first is not None)
        self._given += sum(piece.entry.is_word for piece in read.pieces)
        if read.pieces:
            self._outlet.entries(tuple(_said_by(speaker, piece.entry) for piece in read.pieces))


def _said_by(speaker: int, entry: Entry) -> Entry:
    return dataclasses.replace(entry, speaker=speaker) if speaker else entry
