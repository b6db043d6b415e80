"""Unicode comes down to the characters of the voice's training text."""

from __future__ import annotations

import pytest

from engine.frontend.cleaning import Notes, clean
from tests.frontend_room import said


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("don\u2019t", "don't"),
        ("\u201cYes\u201d", '"Yes"'),
        ("Pro\u00adnun\u00adciation", "Pronunciation"),
        ("can\u200bnot", "cannot"),
        ("\ufeffHello", "Hello"),
        ("cafe\u0301", "cafe"),
        ("caf\u00e9", "cafe"),
        ("\u0141\u00f3d\u017a", "Lodz"),
        ("Stra\u00dfe", "Strasse"),
        ("\ufb01ne", "fine"),
        ("\uff21\uff22\uff11", "AB1"),
        ("wait\u2026", "wait..."),
        ("\u22125", "-5"),
        ("x\u00b2", "x^2"),
        ("10\u207b\u00b3", "10^-3"),
        ("5\u00bd", "5 1/2"),
        ("&lt;ok&gt;", "<ok>"),
        ("AT&amp;T", "AT&T"),
        ("&amp;lt;", "<"),
        ("a&nbsp;b", "a b"),
        ("donâ€™t", "don't"),
        ("cafÃ©", "cafe"),
        ("R&D;", "R&D;"),
        ("a\x00b", "ab"),
        ("\u03c0", "pi"),
        ("5\u03bcm", "5\u00b5m"),
        ("20\u2103", "20\u00b0C"),
    ],
)
def test_clean(raw: str, cleaned: str) -> None:
    text, notes = clean(raw)
    assert text.strip() == cleaned
    assert notes == Notes()


@pytest.mark.parametrize(
    ("raw", "cleaned", "notes"),
    [
        ("\U0001f642\U0001f642", "", Notes(emoji=2)),
        ("hi\U0001f44d\U0001f3fdthere", "hi there", Notes(emoji=1)),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", "", Notes(emoji=1)),
        ("5\ufe0f\u20e3", "", Notes(emoji=1)),
        ("\u4e16\u754c", "", Notes(other_script=2)),
        ("\u041f\u0440\u0438\u0432\u0435\u0442,", ",", Notes(other_script=6)),
        ("\u03bc\u03af\u03b1", "", Notes(other_script=3)),
        ("word\u00b9", "word", Notes()),
    ],
)
def test_what_has_no_spoken_form_is_counted(raw: str, cleaned: str, notes: Notes) -> None:
    text, counted = clean(raw)
    assert (text.strip(), counted) == (cleaned, notes)


@pytest.mark.parametrize(
    "text", ["***", "\u2014", "  ", "", "\U0001f642\U0001f642", "...", "?!", "()", "\u4e16", "\x00", "-----", ". . ."]
)
def test_text_without_words_says_nothing(text: str) -> None:
    assert said(text) == ""


def test_clean_again_changes_nothing_in_plain_text() -> None:
    for raw in ("Hello,", "don't", "3/14/2027", "$1,204.50", "a@b.org"):
        assert clean(raw) == (raw, Notes())
