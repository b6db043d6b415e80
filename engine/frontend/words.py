"""The front end's vocabulary: a cleaned word, what came before it, and how it is read."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

CHARSET = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ,;:-.!?'")
"""The characters of the built-in voice's training text; nothing else may reach its tokenizer."""

PLAIN = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*")
DOTTED_LETTERS = re.compile(r"[A-Za-z](?:\.[A-Za-z])+|[A-Z]|[Pp]h\.D")
ELLIPSIS = "..."

_TRAIL = "\"')]}*_`|~-.,;:!?"
_LEAD = "\"'([{*_`|~-.,;:!?#"
_KEPT_LEAD = re.compile(r"'\d\d(?:s\b|\b)|[-~+][-.]?[\d$£€¥₹]|\.\d|\.[A-Z]{2}|#\w|!=")
_DECORATION = re.compile(r"[-=_*~#.|+/\\<>]{3,}|[-_*~|#]+")
_ADDRESS = re.compile(r"[(\"']?<([a-z][a-z+.-]*://[^<>]+|[^<>@]+@[^<>]+)>([)\"'.,;:!?]*)")
_STOPPED = re.compile(r"\.(?!\.)")
_FEET = re.compile(r"\d+'(?:\d+(?:\"|'')?)?")


class Kind(enum.Enum):
    """What the word before was, as far as the next one's reading depends on it."""

    OTHER = enum.auto()
    MONTH = enum.auto()
    DAY = enum.auto()
    DIGITS = enum.auto()
    """A group of a telephone or card number: following groups are digits too."""
    SPELLED = enum.auto()
    """A code read character by character."""
    SILENT = enum.auto()
    """The unspoken rest of a long address: what is glued to it stays unspoken."""


@dataclass(frozen=True, slots=True)
class Word:
    """One white-space word, cleaned, or a part of one where a sentence or a dash ends inside it."""

    core: str
    """Without quotes, brackets, emphasis marks and punctuation around it; empty if there is nothing else."""
    tail: str
    """Its punctuation reduced to one of ``, ; : . ! ? ...`` or nothing."""
    start: int
    end: int
    """Characters [start, end) of the caller's text."""
    stopped: bool = False
    """A full stop follows the core directly, before any other punctuation."""
    bracketed: bool = False
    """An opening bracket stood before it."""
    glued: bool = False
    """Continues a word that was cut because of its length."""

    @property
    def plain(self) -> bool:
        return PLAIN.fullmatch(self.core) is not None

    @property
    def capitalised(self) -> bool:
        return self.core[:1].isupper()


@dataclass(frozen=True, slots=True)
class Context:
    """What the reading of a word may know of the words before it in its sentence."""

    last: str = ""
    """Core of the word before, lower case; empty at a sentence's beginning."""
    before: str = ""
    """The one before that."""
    kind: Kind = Kind.OTHER
    shouted: bool = False
    """The word before was an ordinary word in capitals."""
    titled: bool = False
    """The word before began with a capital."""

    def follow(self, word: Word, kind: Kind, shouted: bool) -> Context:
        return Context(word.core.lower(), self.last, kind, shouted, word.capitalised)


@dataclass(frozen=True, slots=True)
class View:
    """The word to read and up to two after it; never past a sentence's end, a break or a flush."""

    words: tuple[Word, ...]
    context: Context = Context()

    @property
    def core(self) -> str:
        return self.words[0].core

    @property
    def next(self) -> str:
        """Core of the next word if nothing separates the two, else empty."""
        return self.words[1].core if len(self.words) > 1 and not self.words[0].tail else ""

    @property
    def after(self) -> str:
        """Core of the word after ``next``, likewise."""
        return self.words[2].core if self.next and len(self.words) > 2 and not self.words[1].tail else ""


@dataclass(frozen=True, slots=True)
class Reading:
    """How the first ``taken`` words of a view are spoken.

    A token of one capital letter (also with ``s`` or ``'s``) is that letter's name. Punctuation may be attached to any
    token; the last one gets the source's unless ``tail`` says otherwise.
    """

    text: str
    taken: int = 1
    kind: Kind = Kind.OTHER
    tail: str | None = None
    shouted: bool = False


def parse(cleaned: str, start: int, end: int, glued: bool = False) -> Word:
    """Take a cleaned piece of text without white space apart."""
    if _DECORATION.fullmatch(cleaned):
        return Word("", _punctuation(cleaned), start, end, glued=glued)
    if feet := _FEET.match(cleaned):
        core, trail = feet[0], cleaned[feet.end() :]
        if not trail.strip(_TRAIL):
            return Word(core, _punctuation(trail), start, end, stopped=_STOPPED.match(trail) is not None, glued=glued)
    if bracketed_address := _ADDRESS.fullmatch(cleaned):
        cleaned = bracketed_address[1] + bracketed_address[2]
    cleaned = cleaned.replace("(s)", "s")
    core = cleaned.rstrip(_TRAIL)
    skipped = 0
    while skipped < len(core) and core[skipped] in _LEAD and not _KEPT_LEAD.match(core, skipped):
        skipped += 1
    trail = cleaned[len(core) :]
    return Word(
        core[skipped:],
        _punctuation(trail),
        start,
        end,
        stopped=_STOPPED.match(trail) is not None,
        bracketed="(" in core[:skipped],
        glued=glued,
    )


def _punctuation(trail: str) -> str:
    """The one sign that a run of closing punctuation stands for."""
    for sign in ("?", "!", ELLIPSIS):
        if sign in trail:
            return sign
    return next((sign for sign in reversed(trail) if sign in ".;:,"), "")
