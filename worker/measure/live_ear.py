"""All that reaches a session's subject, as it reaches it: nothing is put in order, dropped or forgiven.

The client hides what is doubled, and what comes after a cancel; here both are looked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from worker.audio.extent import SAMPLE_BYTES
from worker.measure.load import RATE
from worker.measure.player import GRACE_S, Player
from worker.wire.events import Audio, Cancelled, ControlEvent, End, NeedText

PCM = SAMPLE_BYTES["pcm_s16le"]


@dataclass(slots=True)
class Utterance:
    """The audio of one generation. Times of the event loop's clock."""

    base: int
    """Index in the session of its first sample."""
    player: Player = field(default_factory=lambda: Player(RATE))
    first_at: float | None = None

    @property
    def last_at(self) -> float | None:
        return self.player.last

    def played_ms(self, now: float) -> float:
        """Session media time that an ideal player has played."""
        played_s = 0.0 if self.first_at is None else now - self.first_at - GRACE_S
        return 1000 * (self.base / RATE + min(max(played_s, 0.0), self.player.audio_s))


class Ear:
    """Hears one session in pcm_s16le at 24 kHz; one task may wait for what it hears."""

    def __init__(self) -> None:
        self.utterances: dict[int, Utterance] = {}
        self.cancelled_at: dict[int, float] = {}
        """By the generation that each ``cancelled`` begins."""
        self.resumed_at: list[float] = []
        """First audio after each ``need_text``."""
        self.starved = False
        """The model waits for text."""
        self.lost = self.doubled = self.stale = 0
        """Audio messages: missing by their numbers, come again, come after the ``cancelled`` of their generation."""
        self.end: End | None = None
        self._gen = self._seq = self._samples = 0
        self._failure: Exception | None = None
        self._news = asyncio.Event()

    @property
    def misplaced(self) -> int:
        """Messages whose samples were there already, by their times."""
        return sum(utterance.player.misplaced for utterance in self.utterances.values())

    @property
    def lost_samples(self) -> int:
        return sum(utterance.player.lost_samples for utterance in self.utterances.values())

    def heard(self, gen: int) -> bool:
        utterance = self.utterances.get(gen)
        return utterance is not None and utterance.first_at is not None

    def answered(self, gen: int) -> bool:
        """The ``cancelled`` that begins the generation has come, and its first audio."""
        return gen in self.cancelled_at and self.heard(gen)

    def hear(self, event: ControlEvent | Audio, at: float) -> None:
        match event:
            case Audio() if event.payload:
                self._hear_audio(event, at)
            case NeedText():
                self.starved = True
                if self._gen in self.utterances:
                    self.utterances[self._gen].player.pause()
            case Cancelled():
                self._gen = max(self._gen, event.gen)
                self.starved = False
                self.cancelled_at.setdefault(event.gen, at)
            case End():
                self.end = event
                self._close(round(event.usage.audio_ms * RATE / 1000))
            case _:
                pass
        self._news.set()

    def fail(self, error: Exception) -> None:
        """Who waits gets the error."""
        self._failure = self._failure or error
        self._news.set()

    async def until(self, heard: Callable[[], bool]) -> None:
        """Raises the failure; EOFError if the session ends before."""
        while not heard():
            if self._failure is not None:
                raise self._failure
            if self.end is not None:
                raise EOFError("the session ended")
            self._news.clear()
            await self._news.wait()

    def _hear_audio(self, audio: Audio, at: float) -> None:
        if audio.seq < self._seq:
            self.doubled += 1
            return
        self.lost += audio.seq - self._seq
        self._seq = audio.seq + 1
        self.stale += audio.gen < self._gen
        if self.starved:
            self.starved = False
            self.resumed_at.append(at)
        utterance = self.utterances.setdefault(audio.gen, Utterance(self._samples))
        if utterance.first_at is None:
            utterance.first_at = at
        samples = len(audio.payload) // PCM
        utterance.player.hear(at, audio.pts - utterance.base, samples)
        self._samples = max(self._samples, audio.pts + samples)

    def _close(self, total: int) -> None:
        """``total``: samples that were sent in all."""
        if self.utterances:
            last = self.utterances[max(self.utterances)]
            last.player.end(total - last.base)
