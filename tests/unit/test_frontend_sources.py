"""The caller's words: each once, in order, with the spoken word that it begins with."""

from __future__ import annotations

import pytest

from engine.frontend.scanner import MAX_WORD_CHARS
from engine.frontend.sources import apportion
from tests.frontend_room import FLUSH, pieces_of, stream


def begins(*deltas: str | None) -> list[tuple[str, str]]:
    """Each of the caller's words with the spoken word it begins with; of one that speaks nothing, the next in brackets
    (``()`` if nothing follows)."""
    text = stream()
    spoken = [piece.text for piece in pieces_of(deltas, text) if piece.entry.is_word]
    words = text.words()
    for word in words:
        assert text.text[word.start : word.end] == word.text
    return [
        (word.text, spoken[word.first or 0] if word.spoken else f"({'' if word.first is None else spoken[word.first]})")
        for word in words
    ]


def test_what_the_normaliser_expands_is_one_word() -> None:
    assert begins("Owed $1,204.50, not ", "$1", "2.50.") == [
        ("Owed", "Owed"),
        ("$1,204.50,", "one"),
        ("not", "not"),
        ("$12.50.", "twelve"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("4:05 pm", ["four", "P"]),
        ("March 14, 2027", ["March", "fourteenth,", "twenty"]),
        ("$2.5 billion", ["two", "billion"]),
        ("555 123 4567", ["five", "one", "four"]),
        ("5 ft", ["five", "feet"]),
        ("12.5 kg", ["twelve", "kilograms"]),
        ("2 1/2", ["two", "and"]),
    ],
)
def test_each_word_of_an_expression_has_its_own_beginning(text: str, words: list[str]) -> None:
    assert begins(text) == list(zip(text.split(), words, strict=True))


def test_an_expression_gives_every_word_a_spoken_one_while_they_last() -> None:
    assert apportion(["5", "ft"], [1, 9], ["five", "feet"]) == [0, 1]
    assert apportion(["a", "b", "c"], [1, 1, 1], ["one", "two"]) == [0, 0, 1]
    assert apportion(["a", "b", "c"], [0, 0, 0], ["one"]) == [0, 0, 0]
    assert apportion(["$2.5", "million"], [4, 1], ["two", "point", "five", "million", "dollars."]) == [0, 3]
    assert apportion(["4:05", "pm"], [3, 2], ["four", "oh", "five", "pee", "em"]) == [0, 3]


def test_words_that_speak_nothing_stand_before_the_next_that_does() -> None:
    assert begins("\U0001f642 Hi *** \u2014 you - ", "\U0001f642 ( )") == [
        ("\U0001f642", "(Hi)"),
        ("Hi", "Hi"),
        ("***", "(you)"),
        ("\u2014", "(you)"),
        ("you", "you"),
        ("-", "()"),
        ("\U0001f642", "()"),
        ("(", "()"),
        (")", "()"),
    ]


def test_a_word_of_parts_is_one_and_begins_with_the_first_that_speaks() -> None:
    assert begins("Yes.Then\u2014go \u2014so on") == [("Yes.Then\u2014go", "Yes."), ("\u2014so", "so"), ("on", "on")]


def test_a_flush_or_a_tag_ends_a_word() -> None:
    assert begins("won", FLUSH, "der \U0001f642", FLUSH, "ful") == [
        ("won", "won"),
        ("der", "der"),
        ("\U0001f642", "()"),
        ("ful", "ful"),
    ]
    assert begins('Wait<break time="1s"/>now') == [("Wait", "Wait"), ("now", "now")]
    assert begins("<br", "eak ti", 'me="1s"', "/> go") == [("go", "go")]


def test_a_word_of_any_length_comes_in_parts() -> None:
    parts = begins("0123456789" * 60)
    assert [len(text) for text, _ in parts] == [MAX_WORD_CHARS] * 3
    assert [spoken for _, spoken in parts] == ["zero"] * 3


def test_a_word_comes_out_with_its_first_piece() -> None:
    text = stream()
    text.feed("Hello there")
    assert [(word.text, word.first) for word in text.words()] == [("Hello", 0)]
    text.feed(" \ud83d")
    assert [(word.text, word.first) for word in text.words()] == [("there", 1)]
    text.feed("\ude42 $5")
    assert text.words() == []
    text.finish()
    assert [(word.text, word.start, word.first) for word in text.words()] == [("\U0001f642", 12, 2), ("$5", 14, 2)]
