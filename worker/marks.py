"""When each word of the caller's text is heard: one generation's words, in the session's media time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile

from engine.contract import SlotFrame
from engine.frontend.sources import SourceWord
from worker.playhead import Playhead
from worker.wire.events import Mark


@dataclass(frozen=True, slots=True)
class Told:
    """A word whose mark is due or gone out."""

    start_ms: float
    end: int
    """Characters of the text up to its end."""
    spoken: bool

    def is_heard(self, played_ms: float) -> bool:
        """A word that begins exactly where the hearing ends has not been heard; one that speaks nothing has."""
        return self.start_ms < played_ms or (not self.spoken and self.start_ms == played_ms)


class Marks:
    """A mark is due with the audio that holds its beginning and not earlier, so that the marks that went out and the
    text that counts as spoken end at the same word.

    A word that speaks nothing (an emoji, a lone dash) has no length; it stands where the next word begins or, before a
    flush or the end, where the audio ends. What one number or abbreviation speaks is one word of the text.
    """

    def __init__(self, media_ms: Callable[[int], float | None]) -> None:
        """``media_ms``: when a sample that was sent, counted within the generation, is heard; None: not known yet."""
        self._media_ms = media_ms
        self._playhead = Playhead()
        self._waiting: deque[SourceWord] = deque()
        self._begun: list[int] = []  # for each spoken word that the engine has taken, its model sample
        self._paused: dict[int, int] = {}  # spoken words before a break -> its model sample
        self._told: list[Told] = []

    # --- what is known --------------------------------------------------------------------------------------------

    def read(self, words: Iterable[SourceWord]) -> None:
        """The next words of the text."""
        self._waiting.extend(words)

    def take(self, model_sample: int) -> None:
        """The engine begins the next spoken word; it will be heard from that sample on."""
        self._begun.append(model_sample)

    def pause(self, model_sample: int) -> None:
        """The engine begins a break; the last word is over there."""
        self._paused.setdefault(len(self._begun), model_sample)

    def send(self, frame: SlotFrame) -> None:
        """A frame with audio goes into the output chain."""
        self._playhead.send(frame)

    # --- what follows ---------------------------------------------------------------------------------------------

    def due(self, until_ms: float) -> list[Mark]:
        """Of the words that begin before a media time; to be told before the audio up to there."""
        marks: list[Mark] = []
        while self._waiting:
            start = self._start_ms(self._waiting[0])
            if start is None or start >= until_ms:
                break
            marks.append(self._tell(start))
        return marks

    def rest(self, now_ms: float) -> list[Mark]:
        """An utterance is out to its last sample, at ``now_ms``: what it has left to tell."""
        marks: list[Mark] = []
        while self._waiting:
            first = self._waiting[0].first
            if first is not None and first >= len(self._begun):
                break
            start = self._start_ms(self._waiting[0])
            marks.append(self._tell(now_ms if start is None else min(start, now_ms)))
        return marks

    def cut(self, played_ms: float | None) -> int:
        """Characters of the text that count as spoken at a media time; None: all that is told does."""
        told = self._told if played_ms is None else takewhile(lambda word: word.is_heard(played_ms), self._told)
        return max((word.end for word in told), default=0)

    def _tell(self, start: float) -> Mark:
        word = self._waiting.popleft()
        self._told.append(Told(start, word.end, word.spoken))
        end = self._end_ms(start) if word.spoken else start
        return Mark(word=word.text, offset=word.start, start_ms=start, end_ms=end)

    def _start_ms(self, word: SourceWord) -> float | None:
        if word.first is None or word.first >= len(self._begun):
            return None
        return self._heard_ms(self._begun[word.first])

    def _end_ms(self, start: float) -> float | None:
        """Of the word that was told last: where a break or the next word begins."""
        if not self._waiting or (following := self._waiting[0]).first is None:
            return None
        paused = self._paused.get(following.first)
        end = self._start_ms(following) if paused is None else self._heard_ms(paused)
        return None if end is None else max(start, end)

    def _heard_ms(self, model_sample: int) -> float | None:
        media_ms = self._media_ms(self._playhead.place(model_sample))
        return None if media_ms is None else round(media_ms, 3)
