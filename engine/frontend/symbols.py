"""Whatever no rule claims: taken apart at its signs, each part read by itself, the signs named or silent."""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.frontend.numerals import number
from engine.frontend.words import Context, Reading, View, parse

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
    "**": "to the power of",
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
_POWERS = {"2": "squared", "3": "cubed"}
_CLAUSES = re.compile(r"((?:[-_,;:?()\[\]{}\"|~`]|!(?!=))+)")
_OPERANDS = re.compile(r"(<=|>=|!=|==|<<|>>|\*\*|[/*\\<>=&+@#^%]+)")
_ATOMS = re.compile(r"[A-Za-z']+|\d+(?:[.,]\d+)*|.")
_PAUSES = ",;:!?"

Read = Callable[[View], Reading | None]


def read(view: View, part_of: Read) -> Reading:
    """``part_of`` reads a part that stands between signs, or gives None."""
    if view.core in _FIXED:
        return Reading(_FIXED[view.core])
    return Reading(" ".join(_clauses(view.core, view.context, part_of)))


def _clauses(core: str, context: Context, part_of: Read) -> list[str]:
    """Parts between hyphens, punctuation and brackets. A hyphen between two numbers says "to"."""
    pieces = _CLAUSES.split(core)
    words: list[str] = []
    for index, piece in enumerate(pieces):
        if index % 2 == 0:
            words += _part(piece, context, part_of, _operands)
            context = Context(last=piece.lower())
        elif piece[0] in _PAUSES and words and words[-1][-1] not in _PAUSES:
            words[-1] += piece[0]
        elif piece == "-" and _numeric(pieces[index - 1]) and _numeric(pieces[index + 1]):
            words.append("to")
        elif len(piece) > 1 and piece[-1] == "-" and _numeric(pieces[index + 1]):
            words.append("minus")
    return words


def _operands(core: str, context: Context, part_of: Read) -> list[str]:
    """Parts between operators."""
    pieces = _OPERANDS.split(core)
    words: list[str] = []
    for index, piece in enumerate(pieces):
        if index % 2 == 0:
            words += _part(piece, context, part_of, _atoms)
            context = Context(last=piece.lower())
        elif set(piece) <= {"/"}:
            words += [] if words else ["slash"]
        elif piece == "^" and pieces[index + 1] in _POWERS:
            words.append(_POWERS[pieces[index + 1]])
            pieces[index + 1] = ""
        elif piece == "*" and (_numeric(pieces[index - 1]) or _numeric(pieces[index + 1])):
            words.append("times")
        else:
            words += [_NAMES[piece]] if piece in _NAMES else _names(piece)
    return words


def _part(
    text: str, context: Context, part_of: Read, otherwise: Callable[[str, Context, Read], list[str]]
) -> list[str]:
    word = parse(text, 0, 0)
    if not word.core:
        return []
    reading = Reading("A") if word.core == "A" else part_of(View((word,), context))
    return [reading.text] if reading else otherwise(word.core, context, part_of)


def _numeric(text: str) -> bool:
    return any(char.isdigit() for char in text)


def _names(signs: str) -> list[str]:
    return [_NAMES[sign] for sign in signs if sign in _NAMES]


def _atoms(part: str, context: Context, part_of: Read) -> list[str]:
    """The last resort: runs of letters as they are, numbers as numbers, "." between two of them as "dot"."""
    words: list[str] = []
    for atom in _ATOMS.findall(part):
        if atom[0].isalpha() or atom[0] == "'":
            words.append(atom)
        elif atom[0].isdigit():
            pieces = re.split("[.,]", atom)
            decimal = re.fullmatch(r"\d{1,15}(?:\.\d+)?", atom)
            words.append(number(atom) if decimal else " dot ".join(map(number, pieces)))
        else:
            words += ["dot"] if atom == "." else _names(atom)
    return words
