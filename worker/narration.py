"""The text side of one generation: deltas in their order -> entries for the engine, and what has been spoken of it."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from engine.contract import Entry


class Piece(Protocol):
    """One entry with the range of the generation's text that it speaks."""

    @property
    def entry(self) -> Entry: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


class TextSource(Protocol):
    """``engine.frontend.stream.TextStream``, as far as it is needed here."""

    def feed(self, delta: str) -> Sequence[Piece]: ...
    def flush(self) -> Sequence[Piece]: ...
    def finish(self) -> Sequence[Piece]: ...
    def is_light(self, delta: str) -> bool:
        """Whether ``feed(delta)`` takes no library and so no time worth a thread."""
        ...


@dataclass(slots=True)
class Word:
    """A word given to the engine. ``heard_from``: model sample at which it begins, once the engine has taken it."""

    start: int
    end: int
    heard_from: int | None = None


Operation = tuple[Callable[[], Sequence[Piece]], bool, Callable[[], None]]


class Narration:
    """One generation. Deltas, flush and finish take effect in order; the slow ones run on ``executor``, one at a time.

    ``on_entries`` and the ``done`` calls happen on the event loop, never after ``close``.
    """

    def __init__(self, source: TextSource, executor: Executor, on_entries: Callable[[tuple[Entry, ...]], None]) -> None:
        self._source, self._executor, self._on_entries = source, executor, on_entries
        self._waiting: deque[Operation] = deque()
        self._running: asyncio.Task[None] | None = None
        self._closed = False
        self._parts: list[str] = []
        self._words: list[Word] = []
        self._taken = 0
        self.characters = 0

    @property
    def text(self) -> str:
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    @property
    def unspoken_characters(self) -> int:
        """Characters given of which the engine has not begun to speak."""
        return self.characters - (self._words[self._taken - 1].end if self._taken else 0)

    @property
    def words_taken(self) -> int:
        return self._taken

    @property
    def busy(self) -> bool:
        """Text is still on its way to the engine."""
        return bool(self._waiting) or self._running is not None

    def feed(self, delta: str, done: Callable[[], None] = lambda: None) -> None:
        self._parts.append(delta)
        self.characters += len(delta)
        self._put((lambda: self._source.feed(delta), self._source.is_light(delta), done))

    def flush(self, done: Callable[[], None]) -> None:
        self._put((self._source.flush, False, done))

    def finish(self, done: Callable[[], None]) -> None:
        self._put((self._source.finish, False, done))

    def word_taken(self, model_sample: int) -> None:
        """The engine begins the next word; it will be heard from that sample on."""
        if self._taken < len(self._words):
            self._words[self._taken].heard_from = model_sample
            self._taken += 1

    def split(self, heard_samples: int) -> tuple[str, str]:
        """The text before and after what a listener has heard by a model sample; a word that has begun is spoken."""
        starts = [word.heard_from for word in self._words[: self._taken] if word.heard_from is not None]
        # A word that begins exactly where the hearing ends has not been heard.
        count = bisect_right(starts, heard_samples - 1)
        cut = self._words[count - 1].end if count else 0
        return self.text[:cut], self.text[cut:]

    def close(self) -> None:
        """Cancelled: nothing of this generation reaches the engine any more."""
        self._closed = True
        self._waiting.clear()

    def _put(self, operation: Operation) -> None:
        work, light, done = operation
        if light and not self.busy:
            self._settle(work(), done)
            return
        self._waiting.append(operation)
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._work_off())

    async def _work_off(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                work, light, done = self._waiting.popleft()
                pieces = work() if light else await loop.run_in_executor(self._executor, work)
                self._settle(pieces, done)
        finally:
            self._running = None

    def _settle(self, pieces: Sequence[Piece], done: Callable[[], None]) -> None:
        if self._closed:
            return
        self._words += [Word(piece.start, piece.end) for piece in pieces if piece.entry.is_word]
        if pieces:
            self._on_entries(tuple(piece.entry for piece in pieces))
        done()
