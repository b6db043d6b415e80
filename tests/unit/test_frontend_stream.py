"""When pieces come out, what they carry and how much text is held."""

from __future__ import annotations

import pytest

from engine.contract import Entry
from engine.frontend.normaliser import Normaliser
from engine.frontend.stream import SLICE_WORDS, TextStream
from tests.frontend_room import FLUSH, TOKENIZER, pieces_of, said, spoken, stream


def test_a_plain_word_comes_with_the_white_space_after_it() -> None:
    text = stream()
    assert text.feed("Hel") == []
    assert text.feed("lo") == []
    assert spoken(text.feed(" ")) == "Hello"
    assert text.held_chars == 0


@pytest.mark.parametrize(
    ("held", "released_by"),
    [
        ("$2.5 ", "million down "),
        ("$5 ", "for it "),
        ("St. ", "Mary "),
        ("US ", "team "),
        ("4:05 ", "pm. "),
        ("Wait... ", "what "),
    ],
)
def test_other_words_wait_for_two_more_at_most(held: str, released_by: str) -> None:
    text = stream()
    assert text.feed("It was ") != []
    assert text.feed(held) == []
    assert text.held_chars == len(held)
    assert text.feed(released_by) != []


@pytest.mark.parametrize("end", ["$5. ", "FBI! ", "4:05? ", "$5\n\n", '$5<break time="1s"/>', "$5 - "])
def test_the_end_of_a_sentence_releases_what_waits(end: str) -> None:
    text = stream()
    assert text.feed(end) != []
    assert text.held_chars == 0


def test_a_finished_sentence_waits_for_white_space_flush_or_finish() -> None:
    text = stream()
    assert spoken(text.feed("Yes, it is ready.")) == "Yes, it is"
    assert text.held_chars == len("ready.")
    assert spoken(text.flush()) == "ready."
    assert spoken(text.feed("Go") + text.finish()) == "Go"


def test_a_flush_ends_a_word_and_a_number() -> None:
    assert said("exam", "ple.com") == "example dot com"
    assert said("wonder", FLUSH, "ful") == "wonder ful"
    assert said("$1", "2.50") == "twelve dollars and fifty cents"
    assert said("$1", FLUSH, "2.50") == "one dollar two point five zero"


def test_ranges_point_into_the_text() -> None:
    text = stream()
    whole = "Pay $3.50 now, Dr. Lee."
    pieces = pieces_of([whole[:7], whole[7:]], text)
    assert text.text == whole
    assert [(piece.text, whole[piece.start : piece.end]) for piece in pieces] == [
        ("Pay", "Pay"),
        ("three", "$3.50"),
        ("dollars", "$3.50"),
        ("and", "$3.50"),
        ("fifty", "$3.50"),
        ("cents", "$3.50"),
        ("now,", "now,"),
        ("Doctor", "Dr."),
        ("Lee.", "Lee."),
    ]


def test_an_expression_of_several_words_is_one_range() -> None:
    pieces = pieces_of(["At 4:05 pm"])
    assert [(piece.start, piece.end) for piece in pieces] == [(0, 2), *[(3, 10)] * 5]


def test_parts_of_one_word_have_ranges_of_their_own() -> None:
    pieces = pieces_of(["Yes.Then\u2014go"])
    assert [(piece.text, piece.start, piece.end) for piece in pieces] == [
        ("Yes.", 0, 4),
        ("Then", 4, 8),
        ("", 9, 9),
        ("go", 9, 11),
    ]


def test_surrogate_halves_join_and_lone_ones_are_dropped_with_a_note() -> None:
    text = stream()
    pieces = pieces_of(["hi\ud83d", "\ude42 the\udc00re\ud800"], text)
    assert spoken(pieces) == "hi there"
    assert text.text == "hi\U0001f642 the\ufffdre\ufffd"
    assert (text.notes.emoji, text.notes.lone_surrogates) == (1, 2)
    assert text.text[pieces[1].start : pieces[1].end] == "the\ufffdre\ufffd"
    text.text.encode("utf-8")


def test_a_word_is_encoded_by_itself_with_its_punctuation() -> None:
    pieces = pieces_of(["Thank you, sir."])
    assert [piece.entry for piece in pieces] == [Entry(TOKENIZER.encode(word)) for word in ("Thank", "you,", "sir.")]


def test_padding_between_words_counts_from_the_last_token() -> None:
    text = TextStream(Normaliser(), TOKENIZER, padding_between=2)
    for piece in text.feed("Extraordinary bread ") + text.finish():
        assert piece.entry.padding == 2 + len(piece.entry.tokens) - 1


def test_a_dash_between_two_words_is_a_pause_and_elsewhere_silent() -> None:
    assert said("\u2014 Wait \u2014 what? \u2014 Yes - no \u2014") == "Wait [3] what? Yes [3] no"
    assert said("Title\n\nText.\n\nMore") == "Title [6] Text. More"


def test_a_long_delta_is_worked_on_in_slices() -> None:
    text = stream()
    words = "again and " * (10 * SLICE_WORDS)
    pieces = text.feed(words)
    assert text.busy
    slices = 1
    while text.busy:
        more = text.advance()
        assert len(more) <= SLICE_WORDS
        pieces += more
        slices += 1
    assert slices >= 10
    assert spoken(pieces) == words.strip()
    assert text.held_chars == 0


def test_flush_and_finish_keep_their_place_behind_a_long_delta() -> None:
    text = stream()
    pieces = text.feed("so on " * (10 * SLICE_WORDS) + "wonder")
    pieces += text.flush() + text.feed("ful") + text.finish() + text.rest()
    assert spoken(pieces[-2:]) == "wonder ful"
    assert not text.busy


def test_notes_count_what_is_left_out() -> None:
    text = stream()
    assert spoken(pieces_of(["Hi \U0001f642\U0001f642 \u4e16\u754c \u2603\ufe0e \u262d ok"], text)) == "Hi ok"
    assert text.notes.other_script == 2
    assert text.notes.emoji >= 2
    assert text.notes.emoji + text.notes.symbols == 4


def test_nothing_may_follow_the_end() -> None:
    text = stream()
    text.finish()
    with pytest.raises(AssertionError):
        text.feed("more")
