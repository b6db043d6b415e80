from __future__ import annotations

import pytest

pytest.importorskip("num2words")

from tests.speech.scoring import WordErrors, edit_distance, hears, total_errors, word_errors, words
from tests.speech.yardstick import Yardstick


@pytest.mark.parametrize(
    ("heard", "spoken"),
    [
        ("Hello, World!", "hello world"),
        ("It’s a well-known thing.", "it's a well known thing"),
        ("You owe $1,204.", "you owe one thousand two hundred four dollars"),
        ("You owe $1,204.50.", "you owe one thousand two hundred four dollars fifty cents"),
        ("$5, please", "five dollars please"),
        ("in 1984", "in nineteen eighty four"),
        ("in 2027", "in twenty twenty seven"),
        ("the 3rd of May", "the third of may"),
        ("on the 21st", "on the twenty first"),
        ("code 48213", "code four eight two one three"),
        ("at 7:46 p.m.", "at seven forty six p m"),
        ("a 20% tip", "a twenty percent tip"),
        ("salt and pepper", "salt pepper"),
        ("Sandy and Andy", "sandy andy"),
        ("2,000 men", "two thousand men"),
        ("1,204 men", "one thousand two hundred four men"),
        ("1099 or 2100", "one thousand ninety nine or two thousand one hundred"),
        ("", ""),
    ],
)
def test_words_as_spoken(heard: str, spoken: str) -> None:
    assert words(heard) == spoken.split()


@pytest.mark.parametrize(
    ("expected", "heard", "distance"),
    [
        ("a b c", "a b c", 0),
        ("a b c", "a x c", 1),
        ("a b c", "a c", 1),
        ("a b c", "a b b c", 1),
        ("a b c", "", 3),
        ("", "a b", 2),
        ("a b c d", "b c d a", 2),
        ("the cat sat", "a dog", 3),
    ],
)
def test_edit_distance(expected: str, heard: str, distance: int) -> None:
    assert edit_distance(expected.split(), heard.split()) == distance
    assert edit_distance(heard.split(), expected.split()) == distance


def test_word_errors_compare_what_is_said_not_how_it_is_written() -> None:
    assert word_errors("Seven o'clock on the twenty first!", "7 o'clock on the 21st") == WordErrors(0, 6)
    assert word_errors("Please hold the line.", "Please told a line") == WordErrors(2, 4)


def test_total_is_errors_over_all_words() -> None:
    total = total_errors([("one", "two"), ("four words in all", "four words in all")])
    assert total == WordErrors(1, 5)
    assert total.rate == pytest.approx(0.2)
    assert total_errors([]) == WordErrors(0, 0)


def test_rate_of_nothing_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        _ = word_errors("", "noise").rate


def test_hears_a_number_written_in_digits() -> None:
    assert hears("seven", "7:46 p.m.")
    assert hears("seven", "746 PM")
    assert not hears("seven", "11:46 p.m.")


@pytest.mark.parametrize(
    ("reference", "ours", "allowed"),
    [
        (WordErrors(100, 1000), WordErrors(125, 1000), True),
        (WordErrors(100, 1000), WordErrors(126, 1000), False),
        (WordErrors(10, 1000), WordErrors(30, 1000), True),
        (WordErrors(10, 1000), WordErrors(31, 1000), False),
    ],
)
def test_yardstick_allows_a_quarter_more_or_two_points(reference: WordErrors, ours: WordErrors, allowed: bool) -> None:
    assert Yardstick(reference, "", "", 0, 0, "", "").allows(ours) is allowed
