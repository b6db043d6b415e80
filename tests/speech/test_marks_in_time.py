"""Marks against what is heard: whisper's word times over 20 sentences, and the energy of the samples themselves.

Measured over the whole line, marks against whisper: the difference of starts has a median of 10 to 20 ms, its size a
p50 of 40 ms and a p95 of 120 to 134 ms; over all 40 sentences of the word-error test the mean is 5 ms, that p95 160 ms.
A mark is exact to a frame of 80 ms, whisper to 20 ms, and its errors are the larger part (it begins a word after a
pause where the pause begins). Where sound follows silence, which takes no recogniser, it sets in 30 ms before the mark
at the earliest and 25 ms after it at the latest.

So the model's own word times need no correction, and the tolerances are those figures with half a frame's margin to a
frame's and a half. A shift of all marks by one frame would break them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.integration.live import House, Session
from tests.speech.recogniser import Recogniser, TimedWord
from tests.speech.scoring import words

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.speech, pytest.mark.timeout(300)]

RATE = 24_000
FRAME_MS = 80.0
BIAS_MS = FRAME_MS / 2
P50_MS = FRAME_MS
P95_MS = 3 * FRAME_MS
ONSET_MS = 60.0
TOGETHER = 4
"""Sentences a session: whisper hears half a minute at once, for the price of one word."""
MATCHED = 0.85
"""Of the words, those that the recogniser hears right and can be compared."""
LOUD = 0.01
"""-40 dBFS: what follows silence is a word from there on."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Of the differences in start, ms."""

    differences: npt.NDArray[np.float64]

    @property
    def fits(self) -> bool:
        sizes = np.abs(self.differences)
        p50, p95 = np.percentile(sizes, [50, 95])
        bias = abs(float(np.median(self.differences)))
        return bool(bias <= BIAS_MS and p50 <= P50_MS and p95 <= P95_MS)

    def __str__(self) -> str:
        p5, p50, p95 = np.percentile(self.differences, [5, 50, 95])
        sizes = np.percentile(np.abs(self.differences), [50, 95])
        return f"n {len(self.differences)}, p5 {p5:.0f}, median {p50:.0f}, p95 {p95:.0f}, size p50, p95 {sizes.round()}"


def differences(marks: list[dict[str, Any]], heard: list[TimedWord]) -> list[float]:
    """Whisper's start less the mark's, for every word that both have. The first word is left out: whisper begins it
    with the audio."""
    ours = [(part, mark["start_ms"]) for mark in marks for part in words(mark["word"])[:1]]
    theirs = [(part, word.start_ms) for word in heard for part in words(word.text)[:1]]
    matcher = SequenceMatcher(None, [word for word, _ in ours], [word for word, _ in theirs], autojunk=False)
    return [
        theirs[block.b + at][1] - ours[block.a + at][1]
        for block in matcher.get_matching_blocks()
        for at in range(block.size)
        if block.a + at > 0
    ]


def marks_of(session: Session) -> list[dict[str, Any]]:
    return [event.fields for event in session.events if event.kind == "mark"]


async def marked(home: House, *deltas: str, seed: int) -> Session:
    """Flushed after each delta."""
    session = await home.session({"marks": True, "pace": "fast", "seed": seed})
    for seq, delta in enumerate(deltas):
        await session.text(seq, delta)
        await session.say("flush", seq=seq + 1)
    await session.say("finish", seq=len(deltas))
    await session.to_end()
    return session


async def test_marks_stand_where_whisper_hears_the_words(
    home: House, recogniser: Recogniser, sentences: list[str]
) -> None:
    texts = sentences[::2]
    talks = [texts[at : at + TOGETHER] for at in range(0, len(texts), TOGETHER)]
    sessions = await asyncio.gather(*(marked(home, *talk, seed=seed) for seed, talk in enumerate(talks)))
    heard = [recogniser.align(session.samples, RATE) for session in sessions]
    found = [
        one for session, times in zip(sessions, heard, strict=True) for one in differences(marks_of(session), times)
    ]
    said = sum(len(text.split()) for text in texts)
    spread = Spread(np.array(found))
    assert len(found) >= MATCHED * said, (len(found), said)
    assert spread.fits, str(spread)
    assert not Spread(spread.differences + FRAME_MS).fits, "a frame late would be seen"
    assert not Spread(spread.differences - FRAME_MS).fits, "a frame early would be seen"


async def test_marks_stand_where_sound_follows_silence(home: House, sentences: list[str]) -> None:
    """At the beginning, and behind a flush, where frames were left out; to a frame."""
    texts = [text.split(",")[0] for text in sentences[:6]]
    sessions = await asyncio.gather(*(marked(home, text, "And then?", seed=seed) for seed, text in enumerate(texts)))
    found: list[float] = []
    for session in sessions:
        marks, samples = marks_of(session), session.samples
        flushed = next(event.fields["pts"] for event in session.events if event.kind == "flushed")
        for mark, begin in ((marks[0], 0), (marks[-2], flushed)):
            found.append(onset_ms(samples, begin) - mark["start_ms"])
    assert max(map(abs, found)) <= ONSET_MS, found


def onset_ms(samples: npt.NDArray[np.float32], begin: int) -> float:
    """Where the first window of 5 ms from a sample on is loud."""
    window = RATE // 200
    rest = samples[begin:]
    energy = np.square(rest[: len(rest) // window * window].reshape(-1, window)).mean(axis=1)
    return 1000.0 * (begin + int(np.flatnonzero(energy > LOUD**2)[0]) * window) / RATE
