"""Formulas and the long tail of units, by the library normt2s. Its import takes some 20 ms, a call under 0.1 ms."""

from __future__ import annotations

import re
from typing import Protocol

from engine.frontend.words import Reading, View

_OPERATORS = "*/^=+\u00b0\u00b1\u00d7\u00f7\u2264\u2265\u2260\u2248\u221a\u221e\u00b5\u03a9"
_FORMULA = re.compile(rf"(?=.*\d|[A-Za-z]?[{_OPERATORS}-])[\w.,(){_OPERATORS}-]*[{_OPERATORS}][\w.,(){_OPERATORS}-]*")
_UNIT = re.compile(r"[-+]?[\d.,]+[A-Za-z][A-Za-z/]{0,5}")
_SQUARE = re.compile(r"\^2(?!\d)")
_CUBE = re.compile(r"\^3(?!\d)")
_WORDS = re.compile(r"[a-zA-Z]+(?: [a-zA-Z]+)*")
MAX_CHARS = 60
"""The library's cost grows faster than the length of what it reads."""


class Library(Protocol):
    """What is used of ``normt2s.Normalizer``."""

    def normalize(self, text: str) -> str: ...


class Formulas:
    """Holds the library, loaded when it is first needed."""

    def __init__(self, library: Library | None = None) -> None:
        self._library = library

    def warm(self) -> None:
        self._read("5^2")

    def read(self, view: View) -> Reading | None:
        """A reading if the library knows every part of the word, else None."""
        core = view.core
        if len(core) > MAX_CHARS or not (_FORMULA.fullmatch(core) or _UNIT.fullmatch(core)):
            return None
        spoken = self._read(_SQUARE.sub("\u00b2", _CUBE.sub("\u00b3", core))).replace("-", " ").replace(",", "")
        if not _WORDS.fullmatch(spoken) or not _all_read(core, spoken):
            return None
        return Reading(" ".join(word.upper() if len(word) == 1 and word != "a" else word for word in spoken.split()))

    def _read(self, text: str) -> str:
        if self._library is None:
            import normt2s

            library: Library = normt2s.Normalizer("en")
            self._library = library
        return self._library.normalize(text)


def _all_read(core: str, spoken: str) -> bool:
    """Whether no run of two or more letters was passed through as it stood: an unknown unit or a name."""
    left = set(re.findall("[A-Za-z]{2,}", core))
    return not left & set(spoken.split())
