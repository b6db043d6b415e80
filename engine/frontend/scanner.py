"""Cuts the deltas of a generation into white-space words and stops, at the same places however they were cut.

Every item is emitted when no later character can change it. All searches are bounded by ``MAX_WORD_CHARS`` and
``breaks.MAX_TAG_CHARS`` from the item's beginning, so the cost of a text is linear in its length.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from engine.frontend import breaks, web

MAX_WORD_CHARS = 200
"""A longer word without white space is cut there and spoken in parts."""

DASH_PAUSE_S = 0.25
PARAGRAPH_PAUSE_S = 0.45

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORD_END = re.compile(r"[\s<]")
_SPACE = re.compile(r"\s+")
_DASH = re.compile(
    r"[\u2014\u2192]"  # an em dash or an arrow, even in an address
    r"|(?P<soft>--+>?|[-=]>|(?<![\w%])\u2013|\u2013(?![\w$£€¥'])|(?<=[A-Za-z])(?:\.{3,}|\u2026)(?=\w))"
)
_UPPER = "A-Z\u00c0-\u00de"
_SENTENCE_END = re.compile(f"[.!?\u2026]+[\"'\u201d\u2019)\\]\u00bb]*(?=[{_UPPER}])")
_NEW_SENTENCE = re.compile(f"[{_UPPER}][A-Za-z\u00c0-\u00ff]|[AI](?![A-Za-z])")
_NEW_WORD = re.compile(f"[{_UPPER}][a-z\u00df-\u00ff]")
_INITIALS = re.compile(r"(?:^|[^A-Za-z])[A-Za-z](?:\.[A-Za-z])*$")
_PRODUCT_SUFFIX = re.compile(r"(?:JS|NET|IO|AI|TS)\b")


@dataclass(frozen=True, slots=True)
class Segment:
    """A white-space word as it came, or a part of one. Characters [start, end) of the text."""

    text: str
    start: int
    end: int
    glued: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Ends the view of the words before it; no word stands at [start, end)."""

    start: int
    end: int
    pause_s: float = 0.0
    exact: bool = False
    """A break that the caller asked for; else a pause that is made only between two words."""
    final: bool = False
    """A flush or the end: no word before it goes on after it."""


Item = Segment | Stop


class Scanner:
    """Words and stops of one generation, in order.

    All offsets count characters of ``text``: what was taken so far, with surrogate halves joined.
    """

    def __init__(self) -> None:
        self.taken_chars = 0
        self.lone_surrogates = 0
        self.words: deque[Segment] = deque()
        """White-space words (or parts of one, by a tag, a flush or ``MAX_WORD_CHARS``), for whoever takes them away;
        those of an item are here before the item comes out."""
        self._taken: list[str] = []
        self._half = ""
        self._incoming: deque[str | None] = deque()  # None = flush
        self._ready: deque[Item] = deque()
        self._buffer = ""
        self._at = 0  # in the buffer: where the next item begins
        self._searched = 0  # in the buffer: no word end before this
        self._origin = 0  # of the buffer in the text
        self._newlines = 0
        self._glued = False

    @property
    def text(self) -> str:
        self._taken = ["".join(self._taken)]
        return self._taken[0]

    @property
    def position(self) -> int:
        """Where the first word begins that was not yet handed out."""
        return self._ready[0].start if self._ready else self._origin + self._at

    def feed(self, delta: str) -> None:
        self._append(self._join(self._half + delta))

    def flush(self) -> None:
        """The text so far is complete: a word, a tag or a surrogate half at its end gets no continuation."""
        if self._half:
            self._append(self._lone(self._half))
            self._half = ""
        self._incoming.append(None)

    def next(self) -> Item | None:
        """The next item, or None if it takes more text to know it."""
        while True:
            if self._ready:
                return self._ready.popleft()
            flushing = bool(self._incoming) and self._incoming[0] is None
            if self._scan(flushing):
                continue
            if not self._incoming:
                return None
            self._refill(self._incoming.popleft())

    def _append(self, text: str) -> None:
        if text:
            self.taken_chars += len(text)
            self._taken.append(text)
            self._incoming.append(text)

    def _join(self, text: str) -> str:
        """Join surrogate pairs; keep back a first half at the end."""
        self._half = ""
        if text.isascii() or not _SURROGATE.search(text):
            return text
        text = _PAIR.sub(lambda pair: pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le"), text)
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return _SURROGATE.sub(lambda half: self._lone(half[0]), text)

    def _lone(self, half: str) -> str:
        self.lone_surrogates += len(half)
        return "\ufffd"

    def _refill(self, delta: str | None) -> None:
        if delta is None:
            end = self._origin + len(self._buffer)
            self._ready.append(Stop(end, end, final=True))
            self._glued = False
            return
        self._buffer = self._buffer[self._at :] + delta
        self._origin += self._at
        self._searched -= self._at
        self._at = 0

    def _scan(self, flushing: bool) -> bool:
        """Take one stretch of white space, one tag or one word off the buffer; False if its end is not there yet."""
        if self._at == len(self._buffer):
            return False
        if space := _SPACE.match(self._buffer, self._at):
            return self._take_space(space)
        if tag := breaks.match(self._buffer, self._at):
            end, seconds = tag
            start = self._origin + self._at
            self._advance(end)
            self._ready.append(Stop(start, self._origin + end, seconds, exact=True))
            return True
        end_of_word = self._word_end(flushing)
        if end_of_word is None:
            return False
        self._take_word(end_of_word)
        return True

    def _take_space(self, space: re.Match[str]) -> bool:
        before = self._newlines
        self._newlines += space[0].count("\n") + 2 * (space[0].count("\f") + space[0].count("\u2029"))
        start = self._origin + self._at
        self._advance(space.end())
        if before < 2 <= self._newlines:
            self._ready.append(Stop(start, self._origin + self._at, PARAGRAPH_PAUSE_S))
        return True

    def _word_end(self, flushing: bool) -> int | None:
        """Where the word at the buffer's beginning ends; None if more text decides."""
        cap = self._at + MAX_WORD_CHARS
        position = max(self._searched, self._at)
        while found := _WORD_END.search(self._buffer, position, cap):
            position = found.start()
            if found[0] != "<":
                return position
            if position > self._at and breaks.match(self._buffer, position):
                return position
            if not flushing and breaks.may_begin(self._buffer, position):
                self._searched = position
                return None
            position += 1
        self._searched = min(len(self._buffer), cap)
        if len(self._buffer) > cap:
            return cap
        return len(self._buffer) if flushing else None

    def _take_word(self, end: int) -> None:
        text, start = self._buffer[self._at : end], self._origin + self._at
        self.words.append(Segment(text, start, start + len(text)))
        self._split(text, start)
        cut = len(text) == MAX_WORD_CHARS and end < len(self._buffer) and not self._buffer[end].isspace()
        self._advance(end)
        self._newlines = 0
        self._glued = cut

    def _advance(self, end: int) -> None:
        self._at = end
        self._searched = max(self._searched, end)
        self._glued = False

    def _split(self, text: str, start: int) -> None:
        """Hand out a word in the parts that a dash or a sentence's end inside it makes of it."""
        if text == "-":
            self._ready.append(Stop(start, start + 1, DASH_PAUSE_S))
            return
        done = 0
        for left, right in _cuts(text):
            if left > done:
                self._ready.append(Segment(text[done:left], start + done, start + left, self._glued))
            if right > left:
                self._ready.append(Stop(start + left, start + right, DASH_PAUSE_S))
            done = right


def _cuts(text: str) -> list[tuple[int, int]]:
    """Where a word's parts end and the next ones begin, the word's own end included; between the two stands a dash."""
    if text.isalpha():
        return [(len(text), len(text))]
    address = web.is_address(text)
    cuts = [dash.span() for dash in _DASH.finditer(text) if not (address and dash["soft"])]
    cuts += [(end.end(), end.end()) for end in _SENTENCE_END.finditer(text) if _ends_sentence(text, end, address)]
    return [*sorted(set(cuts)), (len(text), len(text))]


def _ends_sentence(text: str, end: re.Match[str], address: bool) -> bool:
    left, right = text[: end.start()], text[end.end() :]
    if not left or not _NEW_SENTENCE.match(right) or _PRODUCT_SUFFIX.match(right):
        return False
    if address:
        return web.ends_domain(left)
    return _INITIALS.search(left) is None or _NEW_WORD.match(right) is not None
