"""Marks of one generation, with a millisecond a sample of the model, so that times are easy to read."""

from __future__ import annotations

from engine.contract import SlotFrame
from engine.frontend.sources import SourceWord
from worker.marks import Marks
from worker.playhead import Playhead
from worker.wire.events import Mark


def spoken(*words: str, first: int = 0) -> list[SourceWord]:
    """Words of two characters."""
    return [SourceWord(word, 3 * at, 3 * at + 2, first + at, True) for at, word in enumerate(words)]


def silent(word: str, start: int, first: int | None) -> SourceWord:
    return SourceWord(word, start, start + len(word), first, False)


def sound(marks: Marks, start: int, samples: int) -> None:
    marks.send(SlotFrame(0, True, 1, bytes(2 * samples), start, False))


def told(marks: list[Mark]) -> list[tuple[str, float, float | None]]:
    return [(mark.word, mark.start_ms, mark.end_ms) for mark in marks]


def test_a_mark_is_due_with_the_audio_that_holds_its_beginning() -> None:
    marks = Marks(float)
    marks.read(spoken("aa", "bb"))
    marks.take(80)
    sound(marks, 0, 80)
    assert marks.due(80.0) == []
    marks.take(160)
    sound(marks, 80, 80)
    assert marks.due(160.0) == [Mark(word="aa", offset=0, start_ms=80.0, end_ms=160.0)]
    assert marks.due(160.0) == []
    assert told(marks.due(240.0)) == [("bb", 160.0, None)], "its end is not known"


def test_a_word_ends_where_a_break_begins() -> None:
    marks = Marks(float)
    marks.read(spoken("aa", "bb", "cc"))
    marks.take(0)
    marks.pause(80)
    marks.pause(160)
    sound(marks, 0, 80)
    assert told(marks.due(80.0)) == [("aa", 0.0, 80.0)], "before it is known when the next one begins"
    for sample in (1_000, 1_080):
        marks.take(sample)
    sound(marks, 80, 2_000)
    assert told(marks.due(2_000.0)) == [("bb", 1_000.0, 1_080.0), ("cc", 1_080.0, None)]


def test_a_break_inside_a_word_does_not_end_it() -> None:
    marks = Marks(float)
    marks.read([SourceWord("so\u2014on", 0, 5, 0, True), SourceWord("ok", 6, 8, 2, True)])
    marks.take(0)
    marks.pause(100)
    marks.take(300)
    marks.take(400)
    sound(marks, 0, 500)
    assert told(marks.due(100.0)) == [("so\u2014on", 0.0, 400.0)]


def test_several_spoken_words_are_one_mark_and_several_written_ones_may_share_a_spoken_one() -> None:
    marks = Marks(float)
    marks.read(
        [SourceWord("$12.50", 0, 6, 0, True), SourceWord("p.", 7, 9, 5, True), SourceWord("m.", 10, 12, 5, True)]
    )
    for sample in range(0, 600, 100):
        marks.take(sample)
    sound(marks, 0, 600)
    assert told(marks.due(600.0)) == [("$12.50", 0.0, 500.0), ("p.", 500.0, 500.0), ("m.", 500.0, None)]


def test_a_word_that_speaks_nothing_stands_where_the_next_one_begins() -> None:
    marks = Marks(float)
    marks.read([*spoken("aa"), silent("*", 3, 1), SourceWord("bb", 5, 7, 1, True)])
    marks.take(0)
    sound(marks, 0, 400)
    assert told(marks.due(400.0)) == [("aa", 0.0, None)]
    marks.take(400)
    assert marks.due(400.0) == [], "not before the next one"
    assert (marks.cut(None), marks.cut(400.0)) == (2, 2)
    sound(marks, 400, 100)
    assert told(marks.due(500.0)) == [("*", 400.0, 400.0), ("bb", 400.0, None)]
    assert (marks.cut(None), marks.cut(400.1), marks.cut(400.0), marks.cut(399.9)) == (7, 7, 4, 2)


def test_a_word_that_speaks_nothing_before_a_flush_stands_where_the_audio_ends() -> None:
    marks = Marks(float)
    marks.read([*spoken("aa"), silent("*", 3, None), SourceWord("bb", 5, 7, 1, True)])
    marks.take(0)
    sound(marks, 0, 300)
    assert told(marks.due(300.0)) == [("aa", 0.0, None)]
    assert (marks.cut(None), marks.cut(1e6)) == (2, 2)
    assert told(marks.rest(300.0)) == [("*", 300.0, 300.0)]
    assert (marks.cut(None), marks.cut(300.0), marks.cut(299.0)) == (4, 4, 2)
    assert marks.rest(300.0) == [], "the rest belongs to the next utterance"


def test_a_text_of_nothing_to_speak_is_told_at_its_end() -> None:
    marks = Marks(float)
    marks.read([silent("*", 0, None), silent("-", 2, None)])
    assert marks.due(0.0) == []
    assert told(marks.rest(0.0)) == [("*", 0.0, 0.0), ("-", 0.0, 0.0)]
    assert marks.cut(None) == 3


def test_while_the_beginning_is_not_known_nothing_is_due() -> None:
    """Leading silence is being taken off."""
    known = False
    marks = Marks(lambda sample: max(0.0, sample - 90.0) if known else None)
    marks.read(spoken("aa", "bb"))
    marks.take(80)
    marks.take(160)
    sound(marks, 0, 200)
    assert marks.due(1_000.0) == []
    known = True
    assert told(marks.due(110.0)) == [("aa", 0.0, 70.0), ("bb", 70.0, None)]


def test_what_never_began_to_sound_is_told_at_the_end() -> None:
    marks = Marks(lambda sample: None)
    marks.read(spoken("aa"))
    marks.take(80)
    assert told(marks.rest(0.0)) == [("aa", 0.0, None)]


def test_what_a_flush_leaves_out_is_left_out_of_the_times() -> None:
    marks = Marks(float)
    marks.read(spoken("aa", "bb"))
    marks.take(80)
    sound(marks, 0, 400)
    assert told(marks.due(400.0)) == [("aa", 80.0, None)]
    marks.take(960)
    sound(marks, 900, 80)  # 500 samples are not sent
    assert told(marks.due(480.0)) == [("bb", 460.0, None)]


def test_the_place_of_a_sample_among_those_that_are_sent() -> None:
    head = Playhead()
    assert head.place(50) == 0
    for start, samples in ((0, 100), (100, 100), (300, 100)):
        head.send(SlotFrame(0, True, 1, bytes(2 * samples), start, False))
    places = {0: 0, 150: 150, 199: 199, 200: 200, 250: 200, 300: 200, 350: 250, 500: 400}
    assert {sample: head.place(sample) for sample in places} == places
