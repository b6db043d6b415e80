from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.jobs.segments import CAP, NEAR, Segment, content_key, cut, recipe, segment_seed
from worker.wire.jobs import Chapter

WORDS = ["the", "of", "and", "house", "river", "Mr.", "walked", "slowly", "over", "bridge;", "when,", "light", "fell"]
WORDS += ["upon", "Dr.", "Brown", "water", "\U0001f600", "caf\u00e9"]
GAPS = [" ", " ", "\n", "  ", "\n\n", "\r\n\r\n", "\u2029", "\t"]
PIECES = st.one_of(
    st.sampled_from([*WORDS, ".", "!", "?", "\u2026", '."', "\ud800", "\udc00", "x" * 500, "U.S.A.", "3.14", "a.b"]),
    st.sampled_from(GAPS),
    st.text(max_size=6),
)
TEXTS = st.one_of(
    st.lists(PIECES, max_size=300).map("".join),
    st.lists(st.sampled_from(["Yes. ", "No!\n\n", "word ", "one, two. "]), min_size=40, max_size=400).map("".join),
)
FAST = settings(max_examples=60, deadline=None)


def whole(text: str) -> list[Segment]:
    return cut(text, [Chapter(start=0, end=len(text))] if text else [], 7)


def length(segment: Segment) -> int:
    return len(" ".join(segment.text.split()))


def sentence(dice: random.Random) -> str:
    words = " ".join(dice.choice(WORDS) for _ in range(dice.randint(3, 25)))
    return words[:1].upper() + words[1:] + " end" + dice.choice(".!?")


def paragraphs(dice: random.Random, count: int, most: int = 9) -> list[list[str]]:
    return [[sentence(dice) for _ in range(dice.randint(1, most))] for _ in range(count)]


def book(parts: list[list[str]]) -> str:
    return "\n\n".join(" ".join(part) for part in parts)


@FAST
@given(TEXTS)
def test_spans_cover_every_word_once_whole_and_in_order(text: str) -> None:
    segments = whole(text)
    assert all(segment.text == text[segment.start : segment.end] for segment in segments)
    assert [word for segment in segments for word in segment.text.split()] == text.split()
    at = 0
    for segment in segments:
        assert not text[at : segment.start].strip()
        assert segment.start >= at
        at = segment.end
    assert not text[at:].strip()
    assert [segment.index for segment in segments] == list(range(len(segments)))


@FAST
@given(TEXTS)
def test_only_a_single_word_is_longer_than_the_cap(text: str) -> None:
    for segment in whole(text):
        assert length(segment) <= CAP or len(segment.text.split()) == 1


@FAST
@given(st.integers(0, 2**32), st.integers(1, 9))
def test_sentences_below_the_cap_are_whole_and_segments_long_enough(seed: int, most: int) -> None:
    parts = paragraphs(random.Random(seed), 30, most)
    text = book(parts)
    ends = {match.end() for match in re.finditer(r" end[.!?]", text)}
    segments = whole(text)
    assert {segment.end for segment in segments} <= ends
    short = sum(length(segment) < NEAR // 2 for segment in segments)
    assert short <= max(1, len(segments) // 20)


@FAST
@given(st.integers(0, 2**32))
def test_a_changed_sentence_changes_only_the_segments_around_it(seed: int) -> None:
    dice = random.Random(seed)
    parts = paragraphs(dice, 60)
    shaping = recipe(model="m", voice="v", options={})
    before = [content_key(segment, shaping) for segment in whole(book(parts))]
    part = dice.choice(parts)
    part[dice.randrange(len(part))] = "Altogether " + sentence(dice)
    after = [content_key(segment, shaping) for segment in whole(book(parts))]
    head = next(number for number, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
    tail = next(n for n, (old, new) in enumerate(zip(before[::-1], after[::-1], strict=False)) if old != new)
    assert len(after) - head - tail <= 12


@FAST
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_chapters_are_cut_as_if_alone(texts: list[str]) -> None:
    chapters, at = [], 0
    for text in texts:
        chapters.append(Chapter(start=at, end=at + len(text) + 1))
        at += len(text) + 1
    together = cut("\n".join(texts) + "\n", chapters, 7)
    for number, text in enumerate(texts):
        alone = whole(text)
        mine = [segment for segment in together if segment.chapter == number]
        assert [(s.index, s.text, s.seed) for s in mine] == [(s.index, s.text, s.seed) for s in alone]


def test_what_lies_in_no_chapter_is_not_spoken() -> None:
    text = "Imprint. One is here. Notes. Two is there. Index."
    one, two = text.index("One"), text.index("Two")
    chapters = [Chapter(start=one, end=one + 12), Chapter(start=two, end=two + 13)]
    found = [(segment.chapter, segment.index, segment.text) for segment in cut(text, chapters, 1)]
    assert found == [(0, 0, "One is here."), (1, 0, "Two is there.")]


def test_a_paragraph_is_preferred_to_a_sentence() -> None:
    plain = "This is one plain sentence of some length here. "
    text = (plain * 5).strip() + "\n\n" + (plain * 5).strip()
    assert [segment.text.count("plain") for segment in whole(text)] == [5, 5]


def test_a_sentence_above_the_cap_is_cut_at_a_clause_and_else_at_white_space() -> None:
    clauses = whole("and so it went along the long river, " * 30)
    assert all(segment.text.endswith(",") for segment in clauses)
    words = whole("word " * 400)
    assert len(words) > 1
    assert all(set(segment.text.split()) == {"word"} for segment in words)
    assert [segment.text for segment in whole("x" * 5000)] == ["x" * 5000]


@pytest.mark.parametrize(
    "text",
    [
        *("\n" * 1_000_000, " " * 1_000_000, "." * 300_000, "a\n\n" * 20_000, "! " * 50_000, "\ud800 " * 50_000),
        *("\U0001f600" * 300_000, "\U0001f600 " * 50_000, "word " * 50_000, "Same one here. " * 10_000),
        "(\"'" * 100_000,
    ],
    ids=str.__len__,
)
def test_hostile_texts_are_cut_too(text: str) -> None:
    """Each takes well under a second; at the square of its length it would meet the suite's time limit."""
    segments = whole(text)
    assert sum(len(segment.text.split()) for segment in segments) == len(text.split())
    assert all(length(segment) <= CAP or len(segment.text.split()) == 1 for segment in segments)


@pytest.mark.long
def test_two_megabytes_are_cut() -> None:
    text = book(paragraphs(random.Random(1), 3_500))
    assert sum(len(segment.text.split()) for segment in whole(text * 2)) == len((text * 2).split())


def test_what_must_not_share_audio_does_not_share_a_key() -> None:
    """Case C33: one word, the voice, the seed, an option, the model, a neighbour to be primed by."""
    base = Segment(0, 0, 0, 9, "One here.", 5)
    model = {"model": "m", "voice": "v"}
    shaping = recipe(**model, options={"cfg": 1.0})
    others = [
        recipe(**model, options={"cfg": 2.0}),
        recipe(model="n", voice="v", options={"cfg": 1.0}),
        recipe(model="m", voice="w", options={"cfg": 1.0}),
        recipe(model="mv", voice="", options={"cfg": 1.0}),
        recipe(**model, options={"cfg": 1.0}, language="fr"),
        recipe(**model, options={"cfg": 1.0}, engine="2"),
    ]
    keys = [
        content_key(base, shaping),
        *(content_key(base, other) for other in others),
        content_key(Segment(0, 1, 0, 9, "One here.", 5), shaping),
        content_key(Segment(0, 0, 0, 9, "One hers.", 5), shaping),
        content_key(Segment(0, 0, 0, 10, "One  here.", 5), shaping),
        content_key(Segment(0, 0, 0, 9, "One here.", 6), shaping),
    ]
    assert len(set(keys)) == len(keys)


def test_the_place_of_a_segment_is_not_in_its_key() -> None:
    shaping = recipe(model="m", voice="v", options={})
    here, there = Segment(0, 1, 0, 4, "One.", 5), Segment(3, 9, 70, 74, "One.", 5)
    assert content_key(here, shaping) == content_key(there, shaping)


def test_seeds_keys_and_cuts_never_change() -> None:
    """Audio is found again by them: if this fails, running jobs would be cut or spoken otherwise after an upgrade."""
    assert segment_seed(7, "One here.") == 11400083773811194080
    assert len({segment_seed(7, "a"), segment_seed(8, "a"), segment_seed(7, "b"), segment_seed(7, "a", 1)}) == 4
    key = content_key(Segment(0, 1, 0, 9, "One here.", 5), recipe(model="m", voice="v", options={"cfg": 1.0}))
    assert key == "61e8f557b4c0c18911a9759cf4743ab95e1998afa8368d7b38f8bcc03fc2a939"
    cuts = [(segment.start, segment.end) for segment in whole(book(paragraphs(random.Random(3), 6)))]
    assert cuts == [(0, 293), (295, 493), (494, 786), (788, 1190), (1191, 1417), (1419, 1740), (1741, 1936)]
