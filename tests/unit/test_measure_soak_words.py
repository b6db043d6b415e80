from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.soak import HeardWord, Samples, aligned, errors_by_minute, hear, pieces
from tests.speech.scoring import WordErrors, edit_distance

WORDS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=12)
RATE = 1_000


def noise(seconds: float, *quiet_at_s: float) -> Samples:
    samples = np.random.default_rng(1).uniform(-0.5, 0.5, round(seconds * RATE)).astype(np.float32)
    for at in quiet_at_s:
        samples[round((at - 0.1) * RATE) : round((at + 0.1) * RATE)] = 0
    return samples


@given(WORDS, WORDS)
def test_an_alignment_is_as_cheap_as_the_edit_distance_to_some_beginning(said: list[str], heard: list[str]) -> None:
    steps = list(aligned(said, heard))
    best = min(edit_distance(said[:end], heard) for end in range(len(said) + 1))
    assert sum(wrong for _, _, wrong in steps) == best


def test_text_that_was_given_beyond_what_is_heard_is_no_error() -> None:
    heard = [HeardWord("one", 0), HeardWord("two", 0)]
    assert errors_by_minute(["one", "two", "three", "four"], heard) == [WordErrors(0, 2)]


def test_errors_are_counted_in_their_minute() -> None:
    minutes = ["a b c", "d x f", "g h extra i"]
    heard = [HeardWord(word, minute) for minute, said in enumerate(minutes) for word in said.split()]
    assert errors_by_minute(["a", "b", "c", "d", "e", "f", "g", "h", "i"], heard) == [
        WordErrors(0, 3),
        WordErrors(1, 3),
        WordErrors(1, 3),
    ]


def test_words_that_were_swallowed_are_counted_where_they_should_have_been() -> None:
    heard = [HeardWord("a", 0), HeardWord("b", 0), HeardWord("e", 1), HeardWord("f", 1)]
    assert sum(errors_by_minute(["a", "b", "c", "d", "e", "f"], heard), WordErrors(0, 0)) == WordErrors(2, 6)


def test_nothing_heard_is_all_wrong_only_if_something_was_due() -> None:
    assert errors_by_minute([], []) == [WordErrors(0, 0)]
    assert errors_by_minute(["a"], [HeardWord("x", 0), HeardWord("y", 0)]) == [WordErrors(2, 1)]


def test_pieces_are_cut_where_it_is_quiet_and_lose_nothing() -> None:
    samples = noise(70.0, 24.0, 47.5)
    bounds = list(pieces(samples, RATE))
    assert [start for start, _ in bounds[1:]] == [end for _, end in bounds[:-1]]
    assert (bounds[0][0], bounds[-1][1]) == (0, len(samples))
    assert [end / RATE for _, end in bounds[:-1]] == pytest.approx([24.0, 47.5], abs=0.1)


def test_a_short_recording_is_one_piece() -> None:
    assert list(pieces(noise(10.0), RATE)) == [(0, 10 * RATE)]


def test_heard_words_have_the_minute_of_their_place() -> None:
    found = hear(noise(75.0, 24.0, 48.0), lambda part, rate: "one two three four five", RATE)
    assert [word.minute for word in found].count(0) == 10 + 3
    assert {word.minute for word in found} == {0, 1}
