"""How a text is cut into deltas never shows: 500 texts under random cuts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.frontend.normaliser import Normaliser
from engine.frontend.scanner import MAX_WORD_CHARS
from engine.frontend.stream import Piece, TextStream
from engine.frontend.words import CHARSET
from tests.frontend_room import FLUSH, TOKENIZER

_NORMALISER = Normaliser()
_SETTINGS = settings(
    max_examples=500, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
_FEWER = settings(_SETTINGS, max_examples=150)
_WORDS = """
Thank you for calling. The order, however, is late! Why? Wait... so; then:
$1,204.50 -$3.50 $5-10 $2.5 billion 3/14/2027 4:05 pm p.m. a.m. 14:05 24/7 120/80 5% 1/2 2 1/4 5\u00bd
U.S. e.g. Dr. St. No. Mr. Ph.D. etc. vs. Jan. May 5, Mon-Fri IT WAS US FBI NASA A I B. PhD URLs
jo.doe@example.org https://shop.example.com/a?id=77 example.com.Then v2.0.1 10.0.0.7 4.2.1 14C BA2490
+44 20 7946 0958 (555) 123-4567 555-0100 Order 12345. 12345.Let code 804 112 x^2 < > & = 5kg km/h
don\u2019t \u201cHi\u201d caf\u00e9 &lt;ok&gt; \u2014 - -- so\u2014on
"""
_WHOLE = ['<break time="0.5s"/>', "<break", '<break time="9999s">', "</break>", "\n\n", "12:00\u202fAM", "\u4e16\u754c"]
_UNICODE = ["\U0001f642", "\U0001f44d\U0001f3fd", "\ud83d", "\ude42", "Pro\u00adnun", "can\u200bnot", "cafe\u0301"]
_LONG = ["a" * 300, "3f9a" * 120, "https://x.org/?q=" + "ab%20" * 60]
_TRICKY = st.sampled_from([*_WORDS.split(), *_WHOLE, *_UNICODE, *_LONG])
_SEPARATORS = st.sampled_from([" ", " ", " ", " ", "", ".", ", ", "\n", " - "])
_PROSE = st.lists(st.tuples(_TRICKY, _SEPARATORS), max_size=14).map(lambda parts: "".join(map("".join, parts)))
_ANYTHING = st.text(st.characters(), max_size=60)
_DENSE = st.text(
    st.sampled_from(" .,!?'\"-\u2014<>/&;:=+*#@$\u20ac%()[]_~^\\0159aAbIxX\ud83d\ude42\u0301\u200b\n"), max_size=60
)
_TEXTS = st.one_of(_PROSE, _PROSE, _ANYTHING, _DENSE)


def taken(deltas: Sequence[str | None]) -> tuple[list[Piece], TextStream]:
    text = TextStream(_NORMALISER, TOKENIZER)
    pieces: list[Piece] = []
    for delta in deltas:
        pieces += text.flush() if delta is FLUSH else text.feed(delta)
        pieces += text.rest()
    pieces += text.finish()
    return pieces + text.rest(), text


def cut(text: str, places: list[int]) -> list[str | None]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in itertools.pairwise(edges)]


@_SETTINGS
@given(_TEXTS, st.lists(st.integers(0, 10_000), max_size=12))
def test_cuts_never_show(text: str, places: list[int]) -> None:
    whole, one = taken([text])
    words = one.words()
    for deltas in (cut(text, places), list(text)):
        pieces, other = taken(deltas)
        assert pieces == whole
        assert (other.text, other.notes, other.held_chars) == (one.text, one.notes, 0)
        assert other.words() == words


@_SETTINGS
@given(_TEXTS)
def test_every_word_of_the_text_is_there_once(text: str) -> None:
    """White-space words; where a tag or too long a word cuts one, its parts. They begin where a piece does."""
    pieces, stream = taken([text])
    words = stream.words()
    if not re.search("</?break", text, re.IGNORECASE) and max(map(len, text.split()), default=0) <= MAX_WORD_CHARS:
        assert [word.text for word in words] == stream.text.split()
    assert [stream.text[word.start : word.end] for word in words] == [word.text for word in words]
    starts = [(piece.start, piece.end) for piece in pieces if piece.entry.is_word]
    last = 0
    for word in words:
        if word.first is None:
            assert not word.spoken
            continue
        assert last <= word.first
        last = word.first
        if word.spoken:
            start, end = starts[word.first]
            assert start < word.end
            assert word.start < end


@_FEWER
@given(_TEXTS, _TEXTS, st.lists(st.integers(0, 10_000), max_size=8))
def test_cuts_never_show_around_a_flush(before: str, after: str, places: list[int]) -> None:
    whole, _ = taken([before, FLUSH, after])
    pieces, _ = taken([*cut(before, places), FLUSH, *cut(after, places)])
    assert pieces == whole


@_SETTINGS
@given(_TEXTS)
def test_pieces_are_speakable_and_in_order(text: str) -> None:
    pieces, stream = taken([text])
    last = 0
    for piece in pieces:
        assert last <= piece.start <= piece.end <= len(stream.text)
        last = piece.start
        assert 0 not in piece.entry.tokens
        if piece.entry.is_word:
            assert set(piece.text) <= CHARSET - {" "}
            assert re.search("[A-Za-z]", piece.text)
            assert piece.start < piece.end
        else:
            assert 1 <= piece.entry.padding <= 125
            assert piece.text == ""
    stream.text.encode("utf-8")


@_FEWER
@given(
    st.lists(st.from_regex(r"[bcdfgh][aeiou][lmnp](?:'s|-[bcd]ale)?[,;:]?", fullmatch=True), min_size=1, max_size=40)
)
def test_ordinary_words_pass_as_they_are(words: list[str]) -> None:
    pieces, _ = taken([" ".join(words)])
    assert [piece.text for piece in pieces] == words
