"""Cuts a book into segments of some 10 to 30 seconds of speech, each rendered, stored and replaced by itself.

Cuts fall at the ends of paragraphs and sentences. Which of them is a matter of the words nearby alone: an end is a cut
where no better one lies within ``NEAR`` characters to either side, better being a paragraph's end before a sentence's,
and then the hash of the sentence. So a changed sentence moves no cut beyond the next ones; filling each segment up in
turn would move all that follow. What is still longer than ``CAP`` between two such cuts is divided by itself.

Lengths count white space once; spans refer to the text as given.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, Protocol

import nupunkt

from worker.wire.jobs import canonical

NEAR = 150
"""Characters, some 10 s of speech: no two cuts are nearer, unless nothing else is left."""
CAP = 450
"""Characters, some 30 s of speech: no segment is longer, unless it is one word."""
SHOWN_CHARS = 64
"""Of one word that the sentence finder sees: its expressions cost by the square of a word's length."""

_WORD = re.compile(r"\S+")
_CLAUSE_END = re.compile(r"[,;:\u2014\u2013\u2026.!?][\"'\u201d\u2019)\]]*$")

Rank = Literal[0, 1, 2, 3]
"""Of the place after a word: white space, a clause's end, a sentence's, a paragraph's."""


class Span(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Segment:
    """``text`` is ``[start, end)`` of the book, in code points, from its first word to its last, verbatim."""

    chapter: int
    index: int
    """In its chapter."""
    start: int
    end: int
    text: str
    seed: int

    @property
    def primed(self) -> bool:
        """Whether its row begins with the last frames of the segment before; chapters begin with none."""
        return self.index > 0


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one could cut: after word ``word - 1``."""

    word: int
    at: int
    """Characters before it, white space counted once."""
    score: tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class _Words:
    """A chapter's words, their spans in the book, and the rank of the place after each."""

    texts: list[str]
    spans: list[tuple[int, int]]
    ranks: list[Rank]
    before: list[int]
    """Characters before each word, white space counted once, and at last of all."""

    def length(self, first: int, end: int) -> int:
        return self.before[end] - self.before[first]


def cut(text: str, chapters: Sequence[Span], seed: int) -> list[Segment]:
    """All segments of a job in their order; a chapter without a word has none. Linear in the text."""
    return [segment for number, chapter in enumerate(chapters) for segment in _of_chapter(text, number, chapter, seed)]


def segment_seed(job_seed: int, text: str, take: int = 0) -> int:
    """By the words alone, so that a segment keeps its noise wherever others move it. ``take``: of a retake, from 1."""
    seen = canonical(["segment-seed", 1, job_seed, take]) + b"\n" + text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(seen).digest()[:8], "big")


def recipe(*, model: str, voice: str, options: object, language: str | None = None, engine: str = "") -> str:
    """Digest of all that shapes every segment of a job, for ``content_key``.

    Args:
        model, voice: digests of their files, not names: a name may come to mean another voice.
        options: plain values, all that the renderer reads (sampling, pronunciations, sample rate, gain).
        engine: version of what renders, where another version gives other audio.
    """
    return hashlib.sha256(canonical(["recipe", 1, model, voice, language, options, engine])).hexdigest()


def content_key(segment: Segment, recipe: str) -> str:
    """Under which a segment's audio may be used again; hexadecimal SHA-256.

    In it: the text verbatim (white space makes pauses), the seed that the segment is rendered with (a retake's is
    another), the recipe (model, voice, options, all by content), and whether it is primed. Not in it: place and
    chapter, which its audio does not depend on, and the segment before. A primed segment does continue the voice of
    its neighbour, but its words are its own; with the neighbour in it, one corrected word would render the rest of
    the chapter again. So equal keys mean equal input, not equal bits: who needs those compares jobs, not segments.
    """
    seen = canonical(["segment", 1, recipe, segment.seed, segment.primed])
    return hashlib.sha256(seen + b"\n" + segment.text.encode("utf-8", "surrogatepass")).hexdigest()


def _of_chapter(text: str, number: int, chapter: Span, seed: int) -> Iterator[Segment]:
    words = _words(text, chapter)
    first = 0
    for index, end in enumerate(_ends(words)):
        start, stop = words.spans[first][0], words.spans[end - 1][1]
        spoken = text[start:stop]
        yield Segment(number, index, start, stop, spoken, segment_seed(seed, spoken))
        first = end


# --- where sentences end --------------------------------------------------------------------------------------------


def _words(text: str, chapter: Span) -> _Words:
    spans = [match.span() for match in _WORD.finditer(text, chapter.start, chapter.end)]
    texts = [text[start:end] for start, end in spans]
    before = [0, *accumulate(len(word) + 1 for word in texts)]
    ranks: list[Rank] = [1 if _CLAUSE_END.search(word[-8:]) else 0 for word in texts]
    first = 0
    for end in range(1, len(texts) + 1):
        if end == len(texts) or _parts(text[spans[end - 1][1] : spans[end][0]]):
            for place in _sentence_ends(texts[first:end]):
                ranks[first + place - 1] = 2
            ranks[end - 1] = 3
            first = end
    return _Words(texts, spans, ranks, before)


def _parts(gap: str) -> bool:
    """Whether the white space between two words holds a blank line."""
    return max(gap.count("\n"), gap.count("\r")) > 1 or "\u2029" in gap


def _sentence_ends(words: Sequence[str]) -> Iterator[int]:
    """Numbers of words after which a sentence ends, in one paragraph; an end inside a word is none."""
    shown = [word if len(word) <= SHOWN_CHARS else word[:32] + word[-32:] for word in words]
    starts = [0, *accumulate(len(word) + 1 for word in shown)]
    for _, end in nupunkt.sent_spans(" ".join(shown)):
        word = bisect_left(starts, end)
        if word < len(starts) and starts[word] - end <= 1:
            yield word


# --- where segments end ---------------------------------------------------------------------------------------------


def _ends(words: _Words) -> Iterator[int]:
    """Numbers of words after which segments end."""
    total = len(words.texts)
    if not total:
        return
    places = list(_places(words, 0, total, lowest=2))
    first = 0
    for word in [*(place.word for place in _peaks(places, words.before[total])), total]:
        yield from _divide(words, first, word)
        first = word


def _places(words: _Words, first: int, end: int, lowest: int) -> Iterator[_Place]:
    """Inside ``[first, end)``, its borders left out. The score of a place is what stands before it, to the last one."""
    since = first
    for word in range(first + 1, end):
        rank = words.ranks[word - 1]
        if rank >= lowest:
            said = " ".join(words.texts[since:word]).encode("utf-8", "surrogatepass")
            yield _Place(word, words.before[word], (rank, hashlib.blake2b(said, digest_size=8).digest()))
            since = word


def _peaks(places: Sequence[_Place], total: int) -> Iterator[_Place]:
    """Places that no other within ``NEAR`` surpasses, nor the chapter's own ends; of equals the first."""
    for number, place in enumerate(places):
        if place.at < NEAR or total - place.at < NEAR:
            continue
        earlier = _near(places, place, range(number - 1, -1, -1))
        later = _near(places, place, range(number + 1, len(places)))
        if all(other.score < place.score for other in earlier) and all(other.score <= place.score for other in later):
            yield place


def _near(places: Sequence[_Place], place: _Place, numbers: range) -> Iterator[_Place]:
    for number in numbers:
        if abs(places[number].at - place.at) >= NEAR:
            return
        yield places[number]


def _divide(words: _Words, first: int, end: int) -> Iterator[int]:
    """The ends of what lies between two cuts: at the highest rank that keeps below ``CAP``; of its places the best."""
    while end - first > 1 and words.length(first, end) > CAP:
        nearest = first + 1
        limit = max(nearest, bisect_left(words.before, words.before[first] + CAP + 1, first, end) - 1)
        lowest = bisect_left(words.before, words.before[first] + NEAR, first, limit)
        highest = bisect_left(words.before, words.before[end] - NEAR, first, limit)
        first = _best(words, first, range(nearest, limit + 1), range(lowest, highest + 1))
        yield first
    yield end


def _best(words: _Words, first: int, allowed: range, wanted: range) -> int:
    """A place in ``wanted`` (no piece too short) of a sentence's rank or more, else anywhere ``allowed``, else the
    lower ranks in the same order; at last after the only word."""
    for ranks in ((3, 2), (1,), (0,)):
        for numbers in (wanted, allowed):
            found = [word for word in numbers if word in allowed and words.ranks[word - 1] in ranks]
            if found:
                return _last_of_highest(words, found)
    return allowed[0]


def _last_of_highest(words: _Words, found: Sequence[int]) -> int:
    """The last gives the fewest segments."""
    return max(found, key=lambda word: (words.ranks[word - 1], word))
