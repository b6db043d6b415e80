"""How a transcript is scored against what should have been said: words, numbers spelt out, edit distance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from num2words import num2words

_DOLLARS = re.compile(r"\$(\d[\d,]*)(?:\.(\d\d)\b)?")
_GROUPED = re.compile(r"\b\d{1,3}(?:,\d{3})+\b")
_NUMBER = re.compile(r"([0-9]+)(st|nd|rd|th)?")


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Substitutions, insertions and deletions against a number of words that should have been said."""

    errors: int
    words: int

    @property
    def rate(self) -> float:
        """Raises ZeroDivisionError if nothing should have been said."""
        return self.errors / self.words

    def __add__(self, other: WordErrors) -> WordErrors:
        return WordErrors(self.errors + other.errors, self.words + other.words)


def words(text: str) -> list[str]:
    """Lower-case words as spoken: recognisers write digits where a voice said words, so numbers are spelt out.

    Four digits from 1100 to 2099 are read as a year unless they have a comma or a dollar sign, more than four digit by
    digit; "and" is dropped, because numbers are said with and without it.
    """
    text = text.lower().replace("’", "'").replace("-", " ").replace("%", " percent ")
    text = _DOLLARS.sub(_amount, text)
    text = _GROUPED.sub(lambda number: _cardinal(number[0]), text)
    text = _NUMBER.sub(_spelt, text).replace("-", " ")
    kept = re.sub(r"[^a-z' ]", " ", text).split()
    return [word for word in kept if word != "and"]


def _amount(money: re.Match[str]) -> str:
    cents = f" {_cardinal(money[2])} cents" if money[2] else ""
    return f"{_cardinal(money[1])} dollars{cents}"


def _cardinal(number: str) -> str:
    return str(num2words(int(number.replace(",", ""))))


def _spelt(number: re.Match[str]) -> str:
    digits = number[1]
    if number[2]:
        return str(num2words(int(digits), to="ordinal"))
    if len(digits) == 4 and 1100 <= int(digits) <= 2099:
        return str(num2words(int(digits), to="year"))
    if len(digits) > 4:
        return " ".join(_cardinal(digit) for digit in digits)
    return _cardinal(digits)


def edit_distance(expected: Sequence[str], heard: Sequence[str]) -> int:
    """Levenshtein distance between two sequences of words."""
    above = list(range(len(heard) + 1))
    for i, said in enumerate(expected, 1):
        row = [i]
        for j, other in enumerate(heard, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (said != other)))
        above = row
    return above[-1]


def word_errors(expected: str, heard: str) -> WordErrors:
    """Both texts are normalised with ``words`` first."""
    reference = words(expected)
    return WordErrors(edit_distance(reference, words(heard)), len(reference))


def total_errors(pairs: Iterable[tuple[str, str]]) -> WordErrors:
    """Sum over (expected, heard) pairs: a corpus's rate is errors over words, not a mean of rates."""
    return sum((word_errors(expected, heard) for expected, heard in pairs), WordErrors(0, 0))


def hears(word: str, transcript: str) -> bool:
    """Whether the normalised transcript has the (lower-case) word."""
    return word in words(transcript)
