"""Numbers as English words: one spelling for each way of saying a number. American, without "and" and hyphens."""

from __future__ import annotations

import re

from engine.frontend.lexicon import ordered

NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
"""Pattern of an unsigned decimal number, with or without thousands separators."""

_SMALL = ordered(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_TENS = ordered("zero ten twenty thirty forty fifty sixty seventy eighty ninety")
_SCALES = ("", "thousand", "million", "billion", "trillion", "quadrillion")
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_LONGEST = 18
"""Digits; a longer number is read digit by digit."""


def spell(digits: str) -> str:
    """Digit by digit; anything but digits is left out."""
    return " ".join(_SMALL[int(digit)] for digit in digits if digit in "0123456789")


def cardinal(value: int) -> str:
    if value < 0:
        return f"minus {cardinal(-value)}"
    if len(str(value)) > _LONGEST:
        return spell(str(value))
    parts: list[str] = []
    for scale in _SCALES:
        value, rest = divmod(value, 1000)
        if rest:
            parts.append(f"{_below_thousand(rest)} {scale}".strip())
        if not value:
            break
    return " ".join(reversed(parts)) or "zero"


def _below_thousand(value: int) -> str:
    hundreds, rest = divmod(value, 100)
    parts = [_SMALL[hundreds], "hundred"] if hundreds else []
    if rest:
        parts.append(_below_hundred(rest))
    return " ".join(parts)


def _below_hundred(value: int) -> str:
    if value < 20:
        return _SMALL[value]
    tens, ones = divmod(value, 10)
    return f"{_TENS[tens]} {_SMALL[ones]}" if ones else _TENS[tens]


def ordinal(value: int) -> str:
    head, _, last = cardinal(value).rpartition(" ")
    last = f"{last[:-1]}ieth" if last.endswith("y") else _ORDINALS.get(last, f"{last}th")
    return f"{head} {last}".strip()


def pairs(value: int) -> str:
    """Of 100 to 9999, as in room, flight and house numbers: "one oh one", "twenty four ninety"."""
    high, low = divmod(value, 100)
    if not low:
        return cardinal(value) if value % 1000 == 0 else f"{_below_hundred(high)} hundred"
    return f"{_below_hundred(high)} {f'oh {_SMALL[low]}' if low < 10 else _below_hundred(low)}"


def year(value: int) -> str:
    """As in "nineteen oh five", "two thousand five", "twenty twenty seven"; outside 1000 to 9999 a cardinal."""
    if not 1000 <= value <= 9999 or value % 1000 < 10:
        return cardinal(value)
    return pairs(value)


def number(text: str) -> str:
    """An unsigned number as matched by ``NUMBER``. Leading zeros are spoken: they are part of a code."""
    whole, _, fraction = text.replace(",", "").partition(".")
    words = spell(whole) if len(whole) > 1 and whole.startswith("0") else cardinal(int(whole)) if whole else ""
    return f"{words} point {spell(fraction)}".strip() if fraction else words


def signed(text: str) -> str:
    """A number with an optional ``+`` or ``-``."""
    name = {"-": "minus ", "+": "plus "}.get(text[:1], "")
    return name + number(text.lstrip("+-"))


def is_number(text: str) -> bool:
    return re.fullmatch(NUMBER, text) is not None


def fraction(numerator: int, denominator: int) -> str:
    """As in "one half", "three quarters", "five sixteenths"."""
    if denominator in (2, 4):
        name = {2: "half", 4: "quarter"}[denominator]
        plural = {2: "halves", 4: "quarters"}[denominator]
    else:
        name = ordinal(denominator)
        plural = f"{name}s"
    return f"{cardinal(numerator)} {name if numerator == 1 else plural}"


def mixed(whole: str, numerator: int, denominator: int) -> str:
    """As in "two and a half", "three and two thirds"."""
    if numerator == 1:
        part = fraction(1, denominator).removeprefix("one ")
        return f"{number(whole)} and {'an' if part[0] in 'aeiou' else 'a'} {part}"
    return f"{number(whole)} and {fraction(numerator, denominator)}"
