"""The break tag: which spellings are one, how long it is, and that anything else stays text."""

from __future__ import annotations

import pytest

from tests.frontend_room import pieces_of, said, spoken, stream


@pytest.mark.parametrize(
    ("tag", "frames"),
    [
        ('<break time="0.5s"/>', 6),
        ('<break time="0.5s">', 6),
        ("<break time='250ms' />", 3),
        ("<break time=2s/>", 25),
        ('<BREAK TIME="1S"/>', 12),
        ('<break\n time = "1s" />', 12),
        ('<break time="1s" strength="weak"/>', 12),
        ('<break strength="strong"/>', 9),
        ("<break/>", 5),
        ('<break time="1s"></break>', 12),
        ('<break time="999999s"/>', 125),
        ('<break time="' + "9" * 90 + 's"/>', 125),
    ],
)
def test_break(tag: str, frames: int) -> None:
    pieces = pieces_of([f"Wait {tag} now."])
    assert spoken(pieces) == f"Wait [{frames}] now."
    assert pieces[1].entry.tokens == ()


@pytest.mark.parametrize("tag", ['<break time="0s"/>', '<break strength="none"/>', "</break>"])
def test_break_of_no_length(tag: str) -> None:
    assert said(f"Wait{tag}now.") == "Wait now."


def test_break_inside_a_word_parts_it() -> None:
    assert said('so<break time="1s"/>long') == "so [12] long"


def test_break_cut_anywhere() -> None:
    text = 'Wait <break time="0.5s"/>now.'
    for cut in range(len(text)):
        assert said(text[:cut], text[cut:]) == "Wait [6] now."
    assert said(*text) == "Wait [6] now."


def test_breaks_in_a_row_are_capped_together() -> None:
    text = stream()
    assert (
        spoken(pieces_of(['a<break time="8s"/>' * 3 + 'so<break time="8s"/>'], text))
        == "a [100] a [100] a [100] so [100]"
    )
    assert text.notes.capped_breaks == 0
    text = stream()
    assert spoken(pieces_of(['So <break time="8s"/>' + '<break time="10s"/> ' * 5 + "on"], text)) == "So [100] [25] on"
    assert text.notes.capped_breaks == 5


@pytest.mark.parametrize(
    ("malformed", "way"),
    [
        ('<break time="abc"/>', "less than break time equals abc greater than"),
        ('<break tim="1s"/>', "less than break tim equals one second greater than"),
        ('<break time="-1s"/>', "less than break time equals minus one second greater than"),
        ("<breakfast>", "less than breakfast greater than"),
        ("<brea", "less than brea"),
        ('<break time="1s"', "less than break time equals one second"),
        ('&lt;break time="1s"/&gt;', "less than break time equals one second greater than"),
    ],
)
def test_anything_else_is_text(malformed: str, way: str) -> None:
    assert said(f"Say {malformed} now.") == f"Say {way} now."


def test_an_unfinished_tag_ends_at_a_flush() -> None:
    text = stream()
    assert spoken(text.feed("So <break ")) == "So"
    assert spoken(text.flush()) == "less than break"
