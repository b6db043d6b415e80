"""The caller's spellings for single words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from engine.frontend.cleaning import clean
from engine.frontend.words import parse

MAX_ENTRIES = 1000
MAX_SPELLING_CHARS = 200

_SEPARATOR = re.compile("([-/])")


class Pronunciations:
    """Whole-word replacements, blind to case: an exact word, its possessive, or a part between hyphens or slashes.

    ``spoken`` turns a caller's spelling into spoken words; it is called once an entry.

    Raises ValueError if there are too many entries, a key is not one word or a spelling is too long; the message gives
    the entry's number, never its text.
    """

    def __init__(self, spellings: Mapping[str, str], spoken: Callable[[str], str]) -> None:
        if len(spellings) > MAX_ENTRIES:
            raise ValueError(f"pronunciations: more than {MAX_ENTRIES}")
        self._words: dict[str, str] = {}
        for index, (key, spelling) in enumerate(spellings.items()):
            parts = clean(key.strip())[0].split()
            if len(parts) != 1:
                raise ValueError(f"pronunciation {index}: the key must be one word")
            if len(spelling) > MAX_SPELLING_CHARS:
                raise ValueError(f"pronunciation {index}: the spelling is longer than {MAX_SPELLING_CHARS} characters")
            word = parse(parts[0], 0, 0)
            self._words[(word.core or parts[0]).lower()] = spoken(spelling)

    def __bool__(self) -> bool:
        return bool(self._words)

    def find(self, core: str) -> str | None:
        """Spoken words for a word's core, or None where the caller has said nothing."""
        if not self._words:
            return None
        exact = self._whole(core)
        if exact is not None or not _SEPARATOR.search(core):
            return exact
        parts = _SEPARATOR.split(core)[::2]
        found = [self._whole(part) for part in parts]
        if all(spelling is None for spelling in found) or not all(_readable(part) for part in parts):
            return None
        return " ".join(part if spelling is None else spelling for part, spelling in zip(parts, found, strict=True))

    def _whole(self, core: str) -> str | None:
        key = core.lower()
        if key in self._words:
            return self._words[key]
        if key.endswith("'s") and key[:-2] in self._words:
            return f"{self._words[key[:-2]]}'s"
        return None


def _readable(part: str) -> bool:
    return part.isalpha() and part.isascii()
