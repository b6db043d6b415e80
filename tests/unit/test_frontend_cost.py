"""Hostile text costs by its length, and no call works for long: counted in function calls, not in time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from engine.frontend.formulas import MAX_CHARS, Formulas
from engine.frontend.normaliser import Normaliser
from engine.frontend.scanner import MAX_WORD_CHARS
from engine.frontend.stream import SLICE_CHARS, Piece, TextStream
from tests.frontend_room import CAPITALS, TOKENIZER, pieces_of, spoken, stream

_HOSTILE = {
    "hexadecimal": "3f9a8c7b6d5e4f3a2b1c",
    "one letter": "a",
    "digits": "1234567890",
    "numbers": "1 ",
    "dashes": "-",
    "dots": ".",
    "tag openings": "<",
    "half tags": "<break ",
    "dotted": "a.",
    "slashes": "1/",
    "dollars": "$1",
    "equations": "=1",
    "entities": "&lt;",
    "emoji": "\U0001f642",
    "ideographs": "\u4e16",
    "accents": "e\u0301",
    "zero width": "a\u200b",
    "capitals": "ABC ",
    "quotes": '"',
    "sentences": "a.A",
    "mail": "a@b.",
    "brackets": "(",
    "line ends": "\n",
    "powers": "x^2",
    "mojibake": "\u00e2\u20ac",
    "fractions": "\u00bd",
}


def calls(work: Callable[[], object]) -> int:
    """Python and C functions called by ``work``."""
    count = 0

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def run(text: str, size: int) -> list[Piece]:
    deltas = [text[at : at + size] for at in range(0, len(text), size)]
    return pieces_of(deltas, TextStream(CAPITALS, TOKENIZER))


@pytest.mark.parametrize("unit", _HOSTILE.values(), ids=_HOSTILE)
def test_cost_is_linear(unit: str) -> None:
    short, long = (unit * (size // len(unit)) for size in (600, 2_400))
    run(short, len(short))
    once = calls(lambda: run(short, len(short)))
    assert calls(lambda: run(long, len(long))) < 4.4 * once
    assert once < 400 * len(short)


@pytest.mark.parametrize("unit", ["a", "<", "3f9a", "-", " ", "1 ", "so on "])
def test_cost_is_linear_in_single_characters(unit: str) -> None:
    short, long = (unit * (size // len(unit)) for size in (500, 2_000))
    assert calls(lambda: run(long, 1)) < 4.4 * calls(lambda: run(short, 1))


@pytest.mark.parametrize("unit", _HOSTILE.values(), ids=_HOSTILE)
def test_each_call_is_bounded(unit: str) -> None:
    text = stream()
    worst = calls(lambda: text.feed(unit * (100_000 // len(unit))))
    for _ in range(3):
        worst = max(worst, calls(text.advance))
    assert worst < 80_000
    assert len(text.advance()) <= 3 * (SLICE_CHARS + MAX_WORD_CHARS)


def test_a_word_of_a_hundred_thousand_characters_is_spoken_in_parts() -> None:
    pieces = run("supercalifragilistic" * 5_000, 100_000)
    assert sum(len(piece.text) for piece in pieces) == 100_000
    assert max(len(piece.entry.tokens) for piece in pieces) <= 40


def test_an_address_of_a_hundred_thousand_characters_is_short() -> None:
    pieces = pieces_of([f"Open https://example.org/?q={'ab%20' * 20_000} now."])
    assert spoken(pieces) == "Open example dot org now."


def test_the_libraries_see_short_spans_only() -> None:
    """The cost of normt2s grows faster than its input."""
    seen: list[int] = []

    class Watched:
        def normalize(self, text: str) -> str:
            seen.append(len(text))
            return text

    normaliser = Normaliser(formulas=Formulas(Watched()))
    for length in (1, 10, 58, 100, 10_000):
        pieces_of(["5" + "^2+x" * (length // 4) + " "], TextStream(normaliser, TOKENIZER))
    assert seen
    assert max(seen) <= MAX_CHARS
