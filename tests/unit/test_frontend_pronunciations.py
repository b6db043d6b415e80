"""The caller's spellings replace whole words, whatever their case, and keep the punctuation."""

from __future__ import annotations

import pytest

from engine.frontend.pronunciations import MAX_ENTRIES, MAX_SPELLING_CHARS
from tests.frontend_room import CAPITALS, said


@pytest.mark.parametrize(
    ("text", "spellings", "way"),
    [
        ("Use SQL, now.", {"sql": "sequel"}, "Use sequel, now."),
        ("use sql", {"SQL": "sequel"}, "use sequel"),
        ("Nguyen's and (Nguyen).", {"Nguyen": "win"}, "win's and win."),
        ("nginx-based", {"NGINX": "engine X"}, "engine X based"),
        ("Dr. Lee", {"Dr.": "doktor"}, "doktor Lee"),
        ("a 3D film", {"3d": "three dee"}, "a three dee film"),
        ("gif gifs", {"gif": "jif"}, "jif gifs"),
        ("caf\u00e9 bar", {"cafe\u0301": "kah fay"}, "kah fay bar"),
        ("one two", {"one": "", "two": "number 2!"}, "number two"),
        ("say it", {"it": "\u4e16 \u00e9t\u00e9"}, "say ete"),
        ("5 kg", {"kg": "kilos"}, "five kilograms"),
    ],
)
def test_replacement(text: str, spellings: dict[str, str], way: str) -> None:
    assert said(text, pronunciations=spellings) == way


def test_a_replaced_word_does_not_wait() -> None:
    from tests.frontend_room import spoken, stream

    assert spoken(stream({"FBI": "bureau"}).feed("the FBI ")) == "the bureau"


@pytest.mark.parametrize("key", ["", "  ", "New York", "\U0001f642", "a\tb"])
def test_a_key_is_one_word(key: str) -> None:
    with pytest.raises(ValueError, match="pronunciation 1: the key must be one word") as refused:
        CAPITALS.pronunciations({"fine": "fine", key: "secret"})
    assert "secret" not in str(refused.value)
    assert "York" not in str(refused.value)


def test_limits() -> None:
    with pytest.raises(ValueError, match=f"more than {MAX_ENTRIES}"):
        CAPITALS.pronunciations({f"w{index}": "x" for index in range(MAX_ENTRIES + 1)})
    with pytest.raises(ValueError, match=f"longer than {MAX_SPELLING_CHARS}"):
        CAPITALS.pronunciations({"word": "x" * (MAX_SPELLING_CHARS + 1)})
