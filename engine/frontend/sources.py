"""The caller's words: at which spoken word each white-space word of the text begins."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from engine.frontend.scanner import Segment
from engine.frontend.words import Word


@dataclass(frozen=True, slots=True)
class SourceWord:
    """A white-space word as the caller wrote it, or a part of one that a tag, a flush or ``MAX_WORD_CHARS`` cut."""

    text: str
    start: int
    end: int
    """Characters [start, end) of ``TextStream.text``."""
    first: int | None
    """Spoken words of the generation before the one that it begins with or, if it speaks nothing, that comes next.
    None: it speaks nothing, and a flush or the end comes next."""
    spoken: bool


class Sources:
    """Follows the white-space words of one text. Every one comes out once, in order, and those that speak nothing
    together with the next that speaks."""

    def __init__(self, scanned: deque[Segment]) -> None:
        """``scanned``: where the scanner leaves white-space words."""
        self._scanned = scanned
        self._spoken = 0
        self._out: list[SourceWord] = []

    def speak(self, words: Sequence[Word], places: Sequence[int], count: int) -> None:
        """``words`` are spoken as ``count`` spoken words, each of them from ``places`` on."""
        for word, place in zip(words, places, strict=True):
            while self._scanned and self._scanned[0].start <= word.start:
                source = self._scanned.popleft()
                self._put(source, self._spoken + place, spoken=word.start < source.end)
        self._spoken += count

    def settle(self, end: int) -> None:
        """No word before ``end`` goes on after it."""
        while self._scanned and self._scanned[0].start < end:
            self._put(self._scanned.popleft(), None, spoken=False)

    def take(self) -> list[SourceWord]:
        """What has come out since the last call."""
        out, self._out = self._out, []
        return out

    def _put(self, source: Segment, first: int | None, *, spoken: bool) -> None:
        self._out.append(SourceWord(source.text, source.start, source.end, first, spoken))


def apportion(cores: Sequence[str], lengths: Sequence[int], spoken: Sequence[str]) -> list[int]:
    """Where in an expression's spoken words each of its written words begins: at itself if it stands there
    ("$2.5 million"), else in proportion to ``lengths``, the spoken words that each would have alone."""
    said = [word.strip(",;:.!?").lower() for word in spoken]
    places = [0]
    for index in range(1, len(cores)):
        start, core = places[-1], cores[index].lower()
        if core in said[start + 1 :]:
            places.append(said.index(core, start + 1))
        else:
            share = len(said) * sum(lengths[:index]) // max(1, sum(lengths))
            places.append(max(start, min(max(share, start + 1), len(said) - len(cores) + index)))
    return places
