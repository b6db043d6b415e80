"""Roman numerals, where the word before makes them numbers."""

from __future__ import annotations

import re

from engine.frontend.lexicon import listed
from engine.frontend.numerals import cardinal, ordinal
from engine.frontend.words import Reading, View

_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_ROMAN = re.compile(r"(?=[MDCLXVI])M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_COUNTED = listed(
    "chapter part volume vol book act scene section article phase stage class level appendix title table figure "
    "type episode season war bowl unit lesson exhibit column rocky grade tier mark group corps"
)
_RULERS = listed(
    "henry louis elizabeth george edward charles william james richard john paul pius benedict leo napoleon "
    "nicholas alexander catherine philip peter frederick mary innocent gregory urban clement otto ramses ramesses "
    "darius xerxes ptolemy francis ferdinand gustav christian haakon olaf carl juan boniface"
)


def read(view: View) -> Reading | None:
    core, last = view.core, view.context.last
    possessive = "'s" if core.endswith("'s") else ""
    numeral = core.removesuffix("'s")
    if not last or numeral in ("C", "D", "L", "M") or not _ROMAN.fullmatch(numeral):
        return None
    if numeral == "I" and not view.context.titled:
        return None
    value = _value(numeral)
    series = last in ("and", "or", "to") and _ROMAN.fullmatch(view.context.before.upper()) is not None
    if last in _COUNTED or (series and value > 1):
        return Reading(cardinal(value) + possessive)
    if (
        last in _RULERS
        and value <= 30
        and (value > 1 or bool(view.words[0].tail or possessive) or view.context.before in ("king", "queen", "pope"))
    ):
        return Reading(f"the {ordinal(value)}{possessive}")
    return None


def _value(numeral: str) -> int:
    total = 0
    for sign, following in zip(numeral, [*numeral[1:], ""], strict=True):
        value = _VALUES[sign]
        total += -value if following and _VALUES[following] > value else value
    return total
