"""English as a person would say it: the order of the rules, and what is common to all of their readings."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from engine.frontend import (
    abbreviations,
    cleaning,
    clock,
    codes,
    dates,
    letters,
    measures,
    money,
    phones,
    quantities,
    roman,
    symbols,
    web,
)
from engine.frontend.formulas import Formulas
from engine.frontend.pronunciations import Pronunciations
from engine.frontend.words import CHARSET, DOTTED_LETTERS, ELLIPSIS, Context, Kind, Reading, View, Word, parse

MAX_SPOKEN_CHARS = 40
"""A longer spoken word is cut: the voice has heard none."""

_RULES = (
    web.read,
    dates.read,
    money.read,
    clock.read,
    phones.read,
    measures.read,
    quantities.read,
    abbreviations.read,
    roman.read,
    codes.read,
    letters.read,
)
"""The first rule that claims a word reads it. Dates come before telephone numbers (2027-03-14)."""

_PAUSE_S = 0.25
_SENTENCE_ENDS = frozenset(".!?")
_REPEATED = re.compile(r"([A-Za-z])\1{3,}")
_LETTER = re.compile(r"([A-Z])('?s)?([,.;:]?)")
_VOWEL = re.compile("[aeiouyAEIOUY]")
_ODD_PART = re.compile(r"(?:^|-)(?:[A-Za-z]|[A-Z]{2,}|[^aeiouyAEIOUY-]+)(?:-|$)")
_FAR_SEEING = re.compile(r"[\d$%\u00a2-\u00a5\u20a9-\u20bf]")
_NO_SPELLINGS = Pronunciations({}, str)


@dataclass(frozen=True, slots=True)
class Spoken:
    """The first ``taken`` words of a view as spoken words, each with its punctuation, and the context they leave."""

    words: tuple[str, ...]
    taken: int
    context: Context
    pause_s: float = 0.0
    """A pause in place of words, due only between two words."""


class Normaliser:
    """Reads words one after another. Deterministic; holds no state of any text, so one serves all streams.

    ``charset``: the characters that may appear in a spoken word. ``letter_names``: how a letter by itself is written
    for the voice; empty = as a capital.
    """

    def __init__(
        self,
        charset: Collection[str] = CHARSET,
        letter_names: Mapping[str, str] = letters.NAMES,
        formulas: Formulas | None = None,
    ) -> None:
        self._unspeakable = re.compile(f"[^\\s{re.escape(''.join(sorted(charset)))}]")
        self._letter_names = letter_names
        self._formulas = formulas or Formulas()

    def warm(self) -> None:
        """Load the libraries that are otherwise loaded by the first text that needs them (under 0.1 s)."""
        self._formulas.warm()
        cleaning.warm()

    def pronunciations(self, spellings: Mapping[str, str]) -> Pronunciations:
        """The caller's spellings, ready for a stream.

        Raises ValueError, which names the entry by its number, if one of them is not one word or there is too much.
        """
        return Pronunciations(spellings, self._spelling)

    def lookahead(self, word: Word, pronunciations: Pronunciations = _NO_SPELLINGS) -> int:
        """How many words after this one its reading depends on: 0, 1 or 2."""
        core = word.core
        if not core:
            return 0
        if word.tail == ELLIPSIS:
            return 1
        if core in ("A", "I"):
            return 0
        if pronunciations.find(core) is not None:
            return int(abbreviations.stop_is_open(word))
        if _reads_itself(word):
            return 0
        return 2 if _FAR_SEEING.search(core) else 1

    def read(self, view: View, pronunciations: Pronunciations = _NO_SPELLINGS) -> Spoken:
        word = view.words[0]
        if not word.core:
            context = Context() if word.tail in _SENTENCE_ENDS else view.context
            return Spoken((), 1, context, _PAUSE_S if word.tail else 0.0)
        reading = self._glued(view) or self._reading(view, pronunciations)
        last = view.words[reading.taken - 1]
        tail = _tail(view, reading, last)
        words = self._words(reading.text, tail)
        if tail in _SENTENCE_ENDS:
            lasting = reading.kind in (Kind.SILENT, Kind.SPELLED)
            return Spoken(words, reading.taken, Context(kind=reading.kind if lasting else Kind.OTHER))
        context = view.context
        for taken in view.words[: reading.taken]:
            context = context.follow(taken, reading.kind, reading.shouted)
        return Spoken(words, reading.taken, context)

    def _glued(self, view: View) -> Reading | None:
        """The rest of a word that was cut at its beginning's kind of reading."""
        if not view.words[0].glued:
            return None
        if view.context.kind is Kind.SILENT:
            return Reading("", kind=Kind.SILENT, tail="")
        return codes.string(view.core) if view.context.kind is Kind.SPELLED else None

    def _reading(self, view: View, pronunciations: Pronunciations) -> Reading:
        word = view.words[0]
        spelling = pronunciations.find(word.core)
        if spelling is not None:
            return Reading(spelling, tail=abbreviations.closing(view) if abbreviations.stop_is_open(word) else None)
        if _reads_itself(word):
            return Reading(word.core, kind=Kind.MONTH if dates.is_month(word.core) else Kind.OTHER)
        if word.core == "I":
            return roman.read(view) or Reading("I")
        if reading := self._by_rule(view) or self._possessive(view):
            return reading
        whole = word.plain and "-" not in word.core
        return Reading(word.core) if whole else symbols.read(view, self._part)

    def _possessive(self, view: View) -> Reading | None:
        if not view.core.endswith("'s"):
            return None
        owner = replace(view.words[0], core=view.core[:-2])
        reading = self._by_rule(View((owner,), view.context)) if owner.core else None
        return replace(reading, text=f"{reading.text}'s") if reading else None

    def _by_rule(self, view: View) -> Reading | None:
        for rule in _RULES:
            if reading := rule(view):
                return reading
        return self._formulas.read(view)

    def _part(self, view: View) -> Reading | None:
        word = view.words[0]
        return Reading(word.core) if _reads_itself(word) else self._by_rule(view) or self._possessive(view)

    def _spelling(self, spelling: str) -> str:
        """A caller's spelling in the voice's characters."""
        words: list[str] = []
        parts = (part for raw in spelling.split() for part in cleaning.clean(raw)[0].split())
        for part in parts:
            words += self.read(View((parse(part, 0, 0),))).words
        return " ".join(words).rstrip(".,;:!?")

    def _words(self, text: str, tail: str) -> tuple[str, ...]:
        words: list[str] = []
        for token in text.split():
            words += self._speakable(token)
        if words and tail and words[-1][-1] not in _SENTENCE_ENDS:
            words[-1] = words[-1].rstrip(",;:") + tail
        return tuple(words)

    def _speakable(self, token: str) -> list[str]:
        """One token of a reading in the voice's characters; none if nothing of it can be said."""
        if letter := _LETTER.fullmatch(token):
            token = self._letter_names.get(letter[1], letter[1]) + (letter[2] or "") + letter[3]
        token = self._unspeakable.sub("", token)
        if len(token) > 3:
            token = _REPEATED.sub(r"\1\1\1", token)
        parts = token.split()
        return [piece for part in parts for piece in _pieces(part) if any(char.isalnum() for char in piece)]


def _reads_itself(word: Word) -> bool:
    """Letters, apostrophes and inner hyphens that are spoken as they stand."""
    core = word.core
    if not word.plain or len(core) == 1 or not _VOWEL.search(core) or core.isupper():
        return core in ("a", "i")
    if "-" in core:
        return _ODD_PART.search(core) is None and not dates.is_span(core)
    if dates.is_month(core) and dates.MONTHS[core.lower()] != core:
        return False
    return not (abbreviations.is_abbreviation(word) or letters.is_special(core))


def _tail(view: View, reading: Reading, last: Word) -> str:
    if reading.tail is not None:
        return reading.tail
    if last.tail == ELLIPSIS:
        return _after_ellipsis(view, reading.taken)
    abbreviated = reading.taken > 1 and (abbreviations.stop_is_open(last) or last.core == "in")
    if last.tail == "." and (abbreviated or DOTTED_LETTERS.fullmatch(last.core)):
        return abbreviations.closing(view, reading.taken)
    return last.tail


def _after_ellipsis(view: View, taken: int) -> str:
    """A sentence goes on after an ellipsis unless a capital follows, or nothing."""
    if len(view.words) <= taken:
        return "."
    follower = view.words[taken].core
    return "." if follower[:1].isupper() and not follower.startswith("I") else ","


def _pieces(word: str) -> list[str]:
    return [word[at : at + MAX_SPOKEN_CHARS] for at in range(0, len(word), MAX_SPOKEN_CHARS)]
