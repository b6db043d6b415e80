"""One long session at ``pace: fast``, and the worker's memory meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from worker.client_events import SpeechEvent, TimedAudio
from worker.measure.load import RATE, SAMPLE_BYTES, SILENT_S, Opener, Speech
from worker.measure.memory import Samples
from worker.measure.player import Player
from worker.measure.processes import resident_bytes
from worker.wire.events import End, Error, NeedText
from worker.wire.requests import Open

AHEAD_CHARS = 1_500
"""Text given beyond what has been spoken, at least: a minute and a half."""
CHARS_A_SECOND = 22.0
"""Faster than any voice speaks, so that text is never short; where it is, ``need_text`` says so."""
SAMPLE_EVERY_S = 2.0
"""Of audio."""
SESSION_S = 86_400.0


class SoakFailed(Exception):
    """The session did not come to its end; ``str()`` says how it ended."""


@dataclass(slots=True)
class Soak:
    """``run`` once. Memory of our own: nothing grows but two numbers a sample."""

    opener: Opener
    worker_pid: int
    minutes: float
    texts: Iterator[str]
    seed: int = 0
    on_text: Callable[[str], None] = lambda text: None
    on_audio: Callable[[bytes], None] = lambda pcm: None
    samples: Samples = field(default_factory=Samples)
    player: Player = field(default_factory=lambda: Player(RATE))
    seconds: float = 0.0
    """How long it took."""
    waits: int = 0
    """Times that the model had no text."""
    _sent_chars: int = 0

    async def run(self) -> None:
        """Raises SoakFailed, WorkerError."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        speech = await self.opener.open(Open(pace="fast", seed=self.seed, max_session_s=SESSION_S))
        await self._feed(speech, AHEAD_CHARS)
        sampled_s = 0.0
        async for event in _events(speech):
            match event:
                case TimedAudio() as audio:
                    self.player.hear(audio.at, audio.pts, len(audio.payload) // SAMPLE_BYTES)
                    self.on_audio(audio.payload)
                    if self.player.audio_s >= 60 * self.minutes:
                        break
                    if self.player.audio_s - sampled_s >= SAMPLE_EVERY_S:
                        sampled_s = self.player.audio_s
                        await self._sample()
                        await self._feed(speech, round(sampled_s * CHARS_A_SECOND) + AHEAD_CHARS)
                case NeedText():
                    self.waits += 1
                    await self._feed(speech, self._sent_chars + AHEAD_CHARS)
                case Error() as error:
                    raise SoakFailed(f"error {error.code}")
                case End() as end:
                    raise SoakFailed(f"the session ended: {end.reason}")
                case _:
                    pass
        self.seconds = loop.time() - began
        await speech.cancel()

    async def _feed(self, speech: Speech, until_chars: int) -> None:
        while self._sent_chars < until_chars:
            text = next(self.texts) + " "
            await speech.send(text)
            self.on_text(text)
            self._sent_chars += len(text)

    async def _sample(self) -> None:
        resident = await asyncio.to_thread(resident_bytes, self.worker_pid)
        if resident is not None:
            self.samples.add(self.player.audio_s / 60, resident)


async def _events(speech: Speech) -> AsyncIterator[SpeechEvent]:
    """Raises SoakFailed if nothing comes for too long, or the events end without an ``end``."""
    events = aiter(speech)
    while True:
        try:
            async with asyncio.timeout(SILENT_S):
                event = await anext(events)
        except TimeoutError:
            raise SoakFailed(f"no event for {SILENT_S:g} s") from None
        except StopAsyncIteration:
            raise SoakFailed("the events ended without an end") from None
        yield event
