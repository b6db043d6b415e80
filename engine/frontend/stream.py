"""Text of one generation in, pieces out: what the text machine takes, and where in the text it stands."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import islice

from engine.contract import Entry
from engine.frontend import abbreviations, breaks
from engine.frontend.cleaning import NOTHING, Notes, clean
from engine.frontend.normaliser import Normaliser
from engine.frontend.pronunciations import Pronunciations
from engine.frontend.scanner import Item, Scanner, Stop
from engine.frontend.sources import Sources, SourceWord, apportion
from engine.frontend.tokenizer import Tokenizer
from engine.frontend.words import Context, View, Word, parse

SLICE_WORDS = 60
"""Words that one call reads at most: 2 ms of prose, 10 ms of nothing but numbers."""
SLICE_CHARS = 500
"""Characters of text that one call scans at most, give or take a word."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One spoken word, or a break."""

    entry: Entry
    text: str
    """The spoken word with its punctuation; empty for a break."""
    start: int
    end: int
    """Characters [start, end) of ``TextStream.text`` that it stands for. Words of one expression share their range."""


class TextStream:
    """Turns deltas, cut anywhere, into the same pieces as the whole text would give; flushes are boundaries.

    A piece comes out when no later text can change it: a plain word at the white space after it, others at most two
    words later or at the end of their sentence, at a break, flush or finish.

    Every call works on a slice of the text at most. While ``busy``, call ``advance`` for the rest (in a thread or
    between two turns of an event loop) before the next ``feed``, ``flush`` or ``finish``. Not thread-safe.

    ``frame_rate``: steps a second. ``padding_between``: steps forced between words (moshi ``script_to_entries``).
    """

    def __init__(
        self,
        normaliser: Normaliser,
        tokenizer: Tokenizer,
        pronunciations: Pronunciations | None = None,
        frame_rate: float = 12.5,
        padding_between: int = 0,
    ) -> None:
        self._normaliser = normaliser
        self._tokenizer = tokenizer
        self._pronunciations = normaliser.pronunciations({}) if pronunciations is None else pronunciations
        self._frame_rate = frame_rate
        self._padding_between = padding_between
        self._scanner = Scanner()
        self._sources = Sources(self._scanner.words)
        self._queue: deque[Word | Stop] = deque()
        self._context = Context()
        self._pause_s = 0.0
        self._broken_s = 0.0
        self._spoke = False
        self._in_sentence = False
        self._notes = NOTHING
        self._busy = False
        self._finished = False

    @property
    def busy(self) -> bool:
        """Text is taken that ``advance`` has still to work on."""
        return self._busy

    @property
    def text(self) -> str:
        """Everything taken, surrogate halves joined, a half without its partner as U+FFFD. Ranges refer to this."""
        return self._scanner.text

    @property
    def held_chars(self) -> int:
        """Characters at the end of the text from which no piece has come yet."""
        done = self._queue[0].start if self._queue else self._scanner.position
        return self._scanner.taken_chars - done

    @property
    def notes(self) -> Notes:
        """What was left unspoken so far."""
        return replace(self._notes, lone_surrogates=self._scanner.lone_surrogates)

    def words(self) -> list[SourceWord]:
        """The caller's words that have come out since the last call: each with the piece that it begins with."""
        return self._sources.take()

    def feed(self, delta: str) -> list[Piece]:
        assert not self._finished, "the text is finished"
        self._scanner.feed(delta)
        return self.advance()

    def flush(self) -> list[Piece]:
        """Everything taken so far is complete: no word goes on after it."""
        assert not self._finished, "the text is finished"
        self._scanner.flush()
        return self.advance()

    def finish(self) -> list[Piece]:
        """No more text will come."""
        pieces = self.flush()
        self._finished = True
        return pieces

    def advance(self) -> list[Piece]:
        """Work on the next slice of what was taken."""
        pieces: list[Piece] = []
        words, chars = SLICE_WORDS, SLICE_CHARS
        while words > 0 and chars > 0:
            if self._speak(pieces):
                words -= 1
            elif (item := self._scanner.next()) is not None:
                chars -= item.end - item.start + 1
                self._take(item)
            else:
                self._busy = False
                return pieces
        self._busy = True
        return pieces

    def rest(self) -> list[Piece]:
        """Advance until nothing is left: seconds for a book."""
        pieces: list[Piece] = []
        while self._busy:
            pieces += self.advance()
        return pieces

    def _take(self, item: Item) -> None:
        if isinstance(item, Stop):
            self._queue.append(item)
            return
        cleaned, notes = clean(item.text)
        if notes is not NOTHING:
            self._notes += notes
        self._queue.extend(parse(part, item.start, item.end, item.glued) for part in cleaned.split())

    def _speak(self, pieces: list[Piece]) -> bool:
        """Read the first word or stop of the queue; False if it has to wait for more text."""
        if not self._queue:
            return False
        head = self._queue[0]
        if isinstance(head, Stop):
            self._queue.popleft()
            self._stop(head, pieces)
        elif (view := self._view(head)) is not None:
            self._read(view, pieces)
        else:
            return False
        return True

    def _view(self, head: Word) -> View | None:
        """The head with the words that its reading depends on, or None if they are not all there."""
        words = [head]
        needed = 1 + self._normaliser.lookahead(head, self._pronunciations)
        for item in islice(self._queue, 1, None):
            if len(words) == needed or abbreviations.closes(words[-1]):
                break
            if isinstance(item, Stop):
                return View(tuple(words), self._context)
            words.append(item)
        complete = len(words) == needed or abbreviations.closes(words[-1])
        return View(tuple(words), self._context) if complete else None

    def _read(self, view: View, pieces: list[Piece]) -> None:
        spoken = self._normaliser.read(view, self._pronunciations)
        start, end = view.words[0].start, view.words[spoken.taken - 1].end
        for _ in range(spoken.taken):
            self._queue.popleft()
        self._context = spoken.context
        self._pause_s = max(self._pause_s, spoken.pause_s)
        said = [(word, tokens) for word in spoken.words if (tokens := self._tokenizer.encode(word))]
        if said:
            self._note_sources(view.words[: spoken.taken], [word for word, _ in said])
        for word, tokens in said:
            self._resume(start, pieces)
            pieces.append(Piece(Entry(tokens, self._padding(tokens)), word, start, end))
            self._spoke = True
            self._in_sentence = word[-1] not in ".!?"

    def _note_sources(self, words: tuple[Word, ...], said: list[str]) -> None:
        places = [0]
        if len(words) > 1:
            alone = (self._normaliser.read(View((word,)), self._pronunciations).words for word in words)
            places = apportion([word.core for word in words], [len(spoken) for spoken in alone], said)
        self._sources.speak(words, places, len(said))

    def _stop(self, stop: Stop, pieces: list[Piece]) -> None:
        if stop.final:
            self._sources.settle(stop.end)
        if not stop.exact:
            self._pause_s = max(self._pause_s, stop.pause_s)
            return
        seconds = min(stop.pause_s, breaks.LONGEST_S - self._broken_s)
        if seconds < stop.pause_s:
            self._notes += Notes(capped_breaks=1)
        self._broken_s += seconds
        self._pause_s = 0.0
        if frames := round(seconds * self._frame_rate):
            pieces.append(Piece(Entry((), frames), "", stop.start, stop.end))

    def _resume(self, start: int, pieces: list[Piece]) -> None:
        """Make the pause that a dash, a paragraph or a lone mark has left, if it stands inside a sentence."""
        if self._pause_s and self._spoke and self._in_sentence:
            pieces.append(Piece(Entry((), round(self._pause_s * self._frame_rate)), "", start, start))
        self._pause_s = self._broken_s = 0.0

    def _padding(self, tokens: tuple[int, ...]) -> int:
        return max(0, self._padding_between + len(tokens) - 1) if self._padding_between > 0 else 0
