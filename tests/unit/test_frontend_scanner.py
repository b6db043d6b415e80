"""Where words end and what parts them."""

from __future__ import annotations

import pytest

from engine.frontend.scanner import MAX_WORD_CHARS, Scanner, Segment, Stop


def scanned(*deltas: str) -> list[str]:
    scanner = Scanner()
    for delta in deltas:
        scanner.feed(delta)
    scanner.flush()
    items = iter(scanner.next, None)
    return [item.text if isinstance(item, Segment) else "|" for item in items][:-1]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Order 12345.Let me", ["Order", "12345.", "Let", "me"]),
        ('He said "Stop."Then', ["He", "said", '"Stop."', "Then"]),
        ("Yes!No?Well", ["Yes!", "No?", "Well"]),
        ("done.I go", ["done.", "I", "go"]),
        ("e.g.The", ["e.g.", "The"]),
        ("U.S.A. U.S.Army J.Smith Ph.D.", ["U.S.A.", "U.S.", "Army", "J.", "Smith", "Ph.D."]),
        ("Node.JS ASP.NET", ["Node.JS", "ASP.NET"]),
        ("example.com/A.Bc jo.Doe@Example.Org", ["example.com/A.Bc", "jo.Doe@Example.Org"]),
        ("https://example.com.Then", ["https://example.com.", "Then"]),
        ("v2.0.1 3.14", ["v2.0.1", "3.14"]),
        ("a\u2014b c--d e \u2013 f", ["a", "|", "b", "c", "|", "d", "e", "|", "f"]),
        ("1999\u20132003 London\u2013Paris", ["1999\u20132003", "London\u2013Paris"]),
        ("so...what", ["so", "|", "what"]),
        ("one\n\ntwo\nthree\x0cfour", ["one", "|", "two", "three", "|", "four"]),
        ("x<5 <b>", ["x<5", "<b>"]),
        ("no\u00a0break\u202fhere\u2003now", ["no", "break", "here", "now"]),
    ],
)
def test_parts(text: str, parts: list[str]) -> None:
    assert scanned(text) == parts
    assert scanned(*text) == parts


def test_a_long_word_is_cut_at_the_same_places_however_it_arrives() -> None:
    word = "abcdefghij" * 100
    parts = scanned(f"{word} end")
    assert parts == scanned(*word, " end")
    assert [len(part) for part in parts] == [MAX_WORD_CHARS] * 5 + [3]
    scanner = Scanner()
    scanner.feed(word)
    items = [item for item in iter(scanner.next, None) if isinstance(item, Segment)]
    assert [item.glued for item in items] == [False, True, True, True]


def test_a_word_of_exactly_the_longest_length_is_not_cut() -> None:
    scanner = Scanner()
    scanner.feed("a" * MAX_WORD_CHARS + " b ")
    first, second = scanner.next(), scanner.next()
    assert isinstance(first, Segment)
    assert isinstance(second, Segment)
    assert (len(first.text), second.text, second.glued) == (MAX_WORD_CHARS, "b", False)


def test_position_is_where_the_next_word_begins() -> None:
    scanner = Scanner()
    scanner.feed("ab  cd")
    assert scanner.next() == Segment("ab", 0, 2)
    assert scanner.next() is None
    assert (scanner.position, scanner.taken_chars) == (4, 6)
    scanner.flush()
    assert scanner.next() == Segment("cd", 4, 6)
    assert scanner.next() == Stop(6, 6, final=True)
