"""Number words against num2words, which says them with hyphens, commas and "and"."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from num2words import num2words

from engine.frontend.numerals import cardinal, number, ordinal, spell, year

_SETTINGS = settings(derandomize=True, deadline=None, database=None)


def plain(words: str) -> str:
    return words.replace("-", " ").replace(",", "").replace(" and ", " ")


@_SETTINGS
@given(st.integers(0, 10**18 - 1) | st.integers(0, 2_000))
def test_cardinals(value: int) -> None:
    assert cardinal(value) == plain(num2words(value))
    assert cardinal(-value) == plain(num2words(-value))


@_SETTINGS
@given(st.integers(0, 10**15) | st.integers(0, 300))
def test_ordinals(value: int) -> None:
    assert ordinal(value) == plain(num2words(value, to="ordinal"))


@_SETTINGS
@given(st.integers(1000, 2999))
def test_years(value: int) -> None:
    assert year(value) == plain(num2words(value, to="year"))


@_SETTINGS
@given(st.integers(1, 10**15), st.text("0123456789", min_size=1, max_size=6))
def test_decimals(whole: int, decimals: str) -> None:
    assert number(f"{whole:,}.{decimals}") == f"{cardinal(whole)} point {spell(decimals)}"


@_SETTINGS
@given(st.integers(10**18, 10**40))
def test_what_is_too_long_is_read_digit_by_digit(value: int) -> None:
    assert cardinal(value) == spell(str(value))
    assert len(spell(str(value)).split()) == len(str(value))
