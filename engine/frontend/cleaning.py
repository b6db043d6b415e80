"""Unicode to the few characters the rules know: quotes, dashes, accents, entities, invisible signs, emoji, scripts.

The result holds ASCII, the currency and mathematical signs of ``SIGNS``, and white space where one raw word turned out
to be several.
"""

from __future__ import annotations

import html
import re
import unicodedata
from dataclasses import dataclass

from engine.frontend.lexicon import ordered

SIGNS = frozenset(
    "\u00a3\u20ac\u00a5\u20b9\u20a9\u20bd\u20bf\u00a2\u00b0\u00b1\u00d7\u00f7\u2264\u2265\u2260\u2248\u221a\u221e\u00a7\u00b5\u03a9"
)
"""Signs beyond ASCII that are spoken."""

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_MOJIBAKE = re.compile("[\u00c2\u00c3\u00c5\u00d0\u00e2\u00f0\u00ef][^A-Za-z\\s]")
_MERIDIEM_SPAN = re.compile(r"([ap]\.m\.)-(?=\d)", re.IGNORECASE)
_KEYCAP = re.compile("[0-9#*]\ufe0f?\u20e3")
_SUPERSCRIPT = re.compile("\u207b?[\u00b9\u00b2\u00b3\u2070\u2074-\u2079]+")
_INVISIBLE = (
    0xAD,
    0x34F,
    0x61C,
    0x180E,
    *range(0x200B, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x2060, 0x2070),
    0xFEFF,
)
_TABLE: dict[int, str | None] = {
    **dict.fromkeys((*_INVISIBLE, *range(0xFE00, 0xFE10), 0xFFFD)),
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b\u2032\u02bc\u00b4\uff07\u02b9\u02bb"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\u2039\u203a\u300c\u300d\u300e\u300f"), '"'),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d"), "-"),
    **dict.fromkeys(map(ord, "\u2014\u2015"), ", "),
    **dict.fromkeys(map(ord, "\u2022\u00b7\u2023\u25cf\u25aa\u2020\u2021\u00a9\u00ae\u2122\u00b6"), " "),
    ord("\u2026"): "...",
    ord("\u2044"): "/",
    ord("\u03bc"): "\u00b5",
    ord("\u3001"): ",",
    ord("\u3002"): ".",
    ord("\u00ba"): "°",
    ord("\u00bf"): None,
    ord("\u00a1"): None,
    ord("\u00df"): "ss",
    ord("\u00e6"): "ae",
    ord("\u00c6"): "Ae",
    ord("\u0153"): "oe",
    ord("\u0152"): "Oe",
    ord("\u00f8"): "o",
    ord("\u00d8"): "O",
    ord("\u0142"): "l",
    ord("\u0141"): "L",
    ord("\u0111"): "d",
    ord("\u0110"): "D",
    ord("\u00f0"): "th",
    ord("\u00d0"): "Th",
    ord("\u00fe"): "th",
    ord("\u00de"): "Th",
    ord("\u0131"): "i",
}
_GREEK_NAMES = ordered(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma sigma tau upsilon "
    "phi chi psi omega"
)
_GREEK = {chr(0x3B1 + index): name for index, name in enumerate(_GREEK_NAMES)}


@dataclass(frozen=True, slots=True)
class Notes:
    """How much of a text was left unspoken, by reason: counts, never the text."""

    emoji: int = 0
    other_script: int = 0
    """Letters of other scripts."""
    symbols: int = 0
    """Signs with no spoken form."""
    lone_surrogates: int = 0
    capped_breaks: int = 0
    """Breaks that asked for more than ``breaks.LONGEST_S``."""

    def __add__(self, other: Notes) -> Notes:
        return Notes(
            self.emoji + other.emoji,
            self.other_script + other.other_script,
            self.symbols + other.symbols,
            self.lone_surrogates + other.lone_surrogates,
            self.capped_breaks + other.capped_breaks,
        )


NOTHING = Notes()


def clean(raw: str) -> tuple[str, Notes]:
    """A raw word as the rules want it, and what was dropped from it. Linear in its length."""
    if "&" in raw and ";" in raw:
        raw = _unescape(_unescape(raw))
    if ".m.-" in raw:
        raw = _MERIDIEM_SPAN.sub(r"\1 to ", raw)
    if raw.isascii():
        return (raw if raw.isprintable() else _CONTROL.sub("", raw)), NOTHING
    if _MOJIBAKE.search(raw):
        raw = _repair(raw)
    if raw.isascii():
        return raw, NOTHING
    raw, emoji_count = _drop_emoji(raw)
    folded = _fold(_CONTROL.sub("", raw).translate(_TABLE))
    if folded.isascii():
        return folded, Notes(emoji=emoji_count)
    text, notes = _drop_foreign(folded)
    return text, notes + Notes(emoji=emoji_count)


def _unescape(raw: str) -> str:
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), raw)


def _repair(raw: str) -> str:
    """Undo UTF-8 that was read as Latin-1 or Windows-1252."""
    import ftfy

    return str(ftfy.fix_encoding(raw))


def _drop_emoji(raw: str) -> tuple[str, int]:
    """A space for each emoji, so that what stood around it stays apart."""
    if not any(char > "\u20e2" or char in "\u203c\u2049" for char in raw):
        return raw, 0
    import emoji

    raw = _KEYCAP.sub("\U0001f522", raw)
    count: int = emoji.emoji_count(raw)
    return (emoji.replace_emoji(raw, " ") if count else raw), count


def _fold(text: str) -> str:
    """Compatibility forms and accents to their base characters."""
    text = _SUPERSCRIPT.sub(_power, unicodedata.normalize("NFC", text))
    return "".join(char if char.isascii() or char in SIGNS else _base(char) for char in text).translate(_TABLE)


def _power(found: re.Match[str]) -> str:
    """An exponent after a number or a short unit; after a word it is a footnote's mark."""
    footnote = re.search(r"[^\W\d_]{3}$", found.string[: found.start()])
    return " " if footnote else f"^{unicodedata.normalize('NFKC', found[0]).replace(chr(0x2212), '-')}"


def _base(char: str) -> str:
    compatible = unicodedata.normalize("NFKC", char)
    if unicodedata.decomposition(char).startswith("<fraction>"):
        return f" {compatible}"
    bare = "".join(mark for mark in unicodedata.normalize("NFD", compatible) if not unicodedata.combining(mark))
    return bare if bare.isascii() else compatible


def _drop_foreign(text: str) -> tuple[str, Notes]:
    """Leave out what has no spoken form; a Greek letter by itself has one."""
    letters = symbols = 0
    kept: list[str] = []
    for index, char in enumerate(text):
        foreign_letter = char.isalnum() and not char.isascii()
        if foreign_letter and _among_foreign(text, index):
            letters += 1
        elif char.isascii() or char in SIGNS:
            kept.append(char)
            continue
        elif char.lower() in _GREEK:
            kept.append(f" {_GREEK[char.lower()]}")
        elif foreign_letter or unicodedata.category(char).startswith("M"):
            letters += 1
        else:
            symbols += 1
        kept.append(" ")
    return "".join(kept), Notes(other_script=letters, symbols=symbols)


def _among_foreign(text: str, index: int) -> bool:
    around = text[max(0, index - 1) : index] + text[index + 1 : index + 2]
    return any(char.isalpha() and not char.isascii() for char in around)


def warm() -> None:
    """Load the libraries that only text beyond ASCII needs."""
    _repair("a")
    _drop_emoji("\U0001f642")
