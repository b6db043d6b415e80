"""Whatever no rule claims: taken apart at its signs, each part read by itself, the signs named or silent."""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.frontend.numerals import number
from engine.frontend.words import Context, Reading, View, Word

_FIXED = {
    "C#": "C sharp",
    "F#": "F sharp",
    "C++": "C plus plus",
    "g++": "G plus plus",
    "he/she": "he or she",
    "she/he": "she or he",
    "his/her": "his or her",
    "him/her": "him or her",
    "and/or": "and or",
    "w/": "with",
    "w/o": "without",
    "AT&T": "A T and T",
    "&": "and",
    "@": "at",
    "#": "number",
    "<3": "heart",
}
_NAMES = {
    "&": "and",
    "@": "at",
    "%": "percent",
    "+": "plus",
    "=": "equals",
    "==": "equals",
    "!=": "is not equal to",
    "<": "less than",
    ">": "greater than",
    "<=": "less than or equal to",
    ">=": "greater than or equal to",
    "<<": "less than less than",
    ">>": "greater than greater than",
    "^": "to the power of",
    "\\": "backslash",
    "$": "dollar",
    "\u20ac": "euro",
    "\u00a3": "pound",
    "\u00a5": "yen",
    "\u20b9": "rupee",
    "\u20a9": "won",
    "\u20bd": "ruble",
    "\u20bf": "bitcoin",
    "\u00a2": "cent",
    "\u00b0": "degrees",
    "\u00b1": "plus or minus",
    "\u00d7": "times",
    "\u00f7": "divided by",
    "\u2264": "less than or equal to",
    "\u2265": "greater than or equal to",
    "\u2260": "is not equal to",
    "\u2248": "about",
    "\u221a": "square root of",
    "\u221e": "infinity",
    "\u00a7": "section",
    "\u00b5": "micro",
    "\u03a9": "ohm",
}
_PARTS = re.compile(r"([-/_,;:!?()\[\]{}\"|*~`\\<>=&+@#^%]+)")
_ATOMS = re.compile(r"[A-Za-z']+|\d+(?:[.,]\d+)*|<=|>=|!=|==|<<|>>|.")
_PAUSES = ",;:!?"

Read = Callable[[View], Reading | None]


def read(view: View, part_of: Read) -> Reading:
    """``part_of`` reads a part that stands between signs, or gives None."""
    core = view.core
    if core in _FIXED:
        return Reading(_FIXED[core])
    core = core.replace("(s)", "s")
    words: list[str] = []
    context = view.context
    for index, part in enumerate(_PARTS.split(core)):
        if not part:
            continue
        if index % 2:
            words = _sign(words, part, core)
            continue
        word = Word(part, "", 0, 0)
        reading = Reading("A") if part == "A" else part_of(View((word,), context))
        words.append(reading.text if reading else _atoms(part))
        context = Context(last=part.lower())
    return Reading(" ".join(words))


def _sign(words: list[str], signs: str, core: str) -> list[str]:
    """The words so far with what a run of signs adds to them."""
    if signs in ("-", "_", "/") and words:
        return words
    if signs in _NAMES:
        return [*words, _NAMES[signs]]
    if signs[0] in _PAUSES and words:
        return [*words[:-1], words[-1] + signs[0], *_names(signs[1:])]
    if set(signs) <= {"/"}:
        return [*words, "slash"]
    if signs == "*" and re.search(r"\d\*|\*\d", core):
        return [*words, "times"]
    return [*words, *_names(signs)]


def _names(signs: str) -> list[str]:
    return [_NAMES[sign] for sign in re.findall(r"<=|>=|!=|==|<<|>>|.", signs) if sign in _NAMES]


def _atoms(part: str) -> str:
    """The last resort: runs of letters as they are, numbers as numbers, "." between two of them as "dot"."""
    words: list[str] = []
    for atom in _ATOMS.findall(part):
        if atom[0].isalpha() or atom[0] == "'":
            words.append(atom)
        elif atom[0].isdigit():
            pieces = re.split("[.,]", atom)
            words.append(
                number(atom) if re.fullmatch(r"\d{1,15}(?:\.\d+)?", atom) else " dot ".join(map(number, pieces))
            )
        elif atom == ".":
            words.append("dot")
        else:
            words += _names(atom)
    return " ".join(words)
