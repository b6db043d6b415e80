from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from engine.contract import Entry, SlotFrame
from engine.frontend.sources import SourceWord
from worker.marks import Marks
from worker.narration import LIGHT_CHARS, Narration, Opening, Outlet


@dataclass(frozen=True)
class Spoken:
    entry: Entry


@dataclass
class Source:
    """Every character is a word; 100 characters are a slice; ``x`` cannot be read."""

    given: str = ""
    done: int = 0
    said: int = 0
    ends: list[str] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        return self.done < len(self.given)

    def feed(self, delta: str) -> Sequence[Spoken]:
        assert not self.busy
        self.given += delta
        return self.advance()

    def flush(self) -> Sequence[Spoken]:
        assert not self.busy
        self.ends.append("flush")
        return []

    def finish(self) -> Sequence[Spoken]:
        assert not self.busy
        self.ends.append("finish")
        return []

    def advance(self) -> Sequence[Spoken]:
        start, self.done = self.done, min(len(self.given), self.done + 100)
        if "x" in self.given[start : self.done]:
            raise ValueError(self.given)
        return [Spoken(Entry((at + 1,))) for at in range(start, self.done)]

    def words(self) -> Sequence[SourceWord]:
        start, self.said = self.said, self.done
        return [SourceWord(self.given[at], at, at + 1, at, True) for at in range(start, self.done)]


@dataclass
class Ear:
    """Keeps what a narration tells."""

    words: list[int] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    rested: asyncio.Event = field(default_factory=asyncio.Event)

    def entries(self, entries: tuple[Entry, ...]) -> None:
        self.words += [entry.tokens[0] - 1 for entry in entries]
        self.told.append(f"{len(entries)} words")

    def idle(self) -> None:
        self.told.append("idle")
        self.rested.set()

    def failed(self) -> None:
        self.told.append("failed")
        self.rested.set()

    @property
    def outlet(self) -> Outlet:
        return Outlet(self.entries, self.idle, self.failed)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def marks() -> Marks:
    """A sample of the model is a millisecond."""
    return Marks(float)


def narration(ear: Ear, executor: ThreadPoolExecutor, light: bool = True, known: Marks | None = None) -> Narration:
    return Narration(Opening(Source, light), executor, ear.outlet, known or marks())


async def test_short_texts_are_read_at_once(executor: ThreadPoolExecutor) -> None:
    ear = Ear()
    talk = narration(ear, executor)
    talk.feed("abc")
    talk.feed("")
    talk.flush(lambda: ear.told.append("flushed"))
    talk.feed("de")
    talk.finish(lambda: ear.told.append("finished"))
    assert not talk.busy
    assert ear.words == [0, 1, 2, 3, 4]
    assert ear.told == ["3 words", "flushed", "2 words", "finished"]


async def test_a_change_of_speaker_ends_the_text_before_and_is_on_every_entry(executor: ThreadPoolExecutor) -> None:
    source = Source()
    entries: list[Entry] = []
    outlet = Outlet(entries.extend, lambda: None, lambda: None)
    talk = Narration(Opening(lambda: source, True), executor, outlet, Marks(float))
    for text, speaker in (("a", None), ("b", 0), ("c", 2), ("", 1), ("d", None), ("e", 1)):
        talk.feed(text, speaker)
    assert [(entry.tokens[0], entry.speaker) for entry in entries] == [(1, 0), (2, 0), (3, 2), (4, 1), (5, 1)]
    assert source.ends == ["flush", "flush"]


async def test_speakers_keep_their_text_where_a_long_one_is_read_elsewhere(executor: ThreadPoolExecutor) -> None:
    ear = Ear()
    entries: list[Entry] = []
    talk = Narration(Opening(Source, True), executor, Outlet(entries.extend, ear.idle, ear.failed), Marks(float))
    talk.feed("a" * (LIGHT_CHARS + 1))
    talk.feed("b", 1)
    await ear.rested.wait()
    assert [entry.speaker for entry in entries] == [0] * (LIGHT_CHARS + 1) + [1]


async def test_a_long_text_comes_in_slices_and_keeps_its_place(executor: ThreadPoolExecutor) -> None:
    ear = Ear()
    talk = narration(ear, executor)
    talk.feed("a" * (LIGHT_CHARS + 1))
    talk.feed("b")
    talk.finish(lambda: ear.told.append("finished"))
    assert ear.told == []
    assert talk.busy
    await ear.rested.wait()
    assert ear.told == ["100 words", "100 words", "57 words", "1 words", "finished", "idle"]
    assert ear.words == list(range(LIGHT_CHARS + 2))
    assert not talk.busy
    talk.feed("c")
    assert ear.words[-1] == LIGHT_CHARS + 2, "at once again"


async def test_a_source_that_takes_time_to_open_is_opened_elsewhere(executor: ThreadPoolExecutor) -> None:
    ear = Ear()
    talk = narration(ear, executor, light=False)
    talk.feed("a")
    assert ear.told == []
    await ear.rested.wait()
    assert ear.told == ["1 words", "idle"]


@pytest.mark.parametrize("text", ["axb", "a" * 500 + "x"])
async def test_a_text_that_cannot_be_read_ends_the_narration(
    executor: ThreadPoolExecutor, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    ear = Ear()
    talk = narration(ear, executor)
    with caplog.at_level(logging.ERROR):
        talk.feed(text)
        talk.finish(lambda: ear.told.append("finished"))
        await ear.rested.wait()
    assert ear.told[-1] == "failed"
    assert "finished" not in ear.told
    assert not talk.busy
    assert text not in caplog.records[0].getMessage()
    talk.feed("more")
    assert ear.told[-1] == "failed"


async def test_nothing_comes_after_close(executor: ThreadPoolExecutor) -> None:
    ear = Ear()
    talk = narration(ear, executor)
    talk.feed("a" * 1_000)
    talk.finish(lambda: ear.told.append("finished"))
    task = talk._running
    assert task is not None
    await asyncio.sleep(0)  # the first slice is being read
    talk.close()
    await task
    assert ear.told == []
    assert not talk.busy


async def test_what_was_heard_is_split_at_a_word(executor: ThreadPoolExecutor) -> None:
    ear, known = Ear(), marks()
    talk = narration(ear, executor, known=known)
    talk.feed("abcd")
    assert talk.unspoken_characters == 4
    for sample in (0, 100, 200):
        talk.word_taken(sample)
    assert talk.unspoken_characters == 1
    assert talk.split(10_000.0) == ("", "abcd"), "nothing was sent"
    known.send(SlotFrame(0, True, 1, bytes(2 * 10_000), 0, True))
    assert [mark.word for mark in known.due(10_000.0)] == ["a", "b", "c"]
    assert talk.split(0.0) == ("", "abcd")
    assert talk.split(100.0) == ("a", "bcd")
    assert talk.split(100.5) == ("ab", "cd")
    assert talk.split(10_000.0) == talk.split(None) == ("abc", "d")
    talk.word_taken(300)
    talk.word_taken(400)  # more than there are
    assert talk.unspoken_characters == 0
    assert talk.split(None) == ("abc", "d"), "the last has not been sent"
    known.due(10_000.0)
    assert talk.split(None) == ("abcd", "")


async def test_a_pair_that_two_deltas_share_is_one_character(executor: ThreadPoolExecutor) -> None:
    talk = narration(Ear(), executor)
    for delta in ("a\ud83d", "", "\ude42b", "\ud83d", "c"):
        talk.feed(delta)
    assert talk.text == "a\U0001f642b\ud83dc"
    assert talk.characters == len(talk.text)
