"""A pool for the load to open sessions at: each plays a script of events, without a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from worker.client_events import SpeechEvent, TimedAudio
from worker.errors import WorkerError
from worker.wire.events import Cancelled, End, EndReason, Usage
from worker.wire.requests import Open

RATE = 24_000
FRAME = 1_920


@dataclass(frozen=True, slots=True)
class AudioAfter:
    """An audio message ``seconds`` after the open."""

    seconds: float
    index: int
    """Of the frame."""
    payload: bytes = b"\x00\x40" * FRAME


@dataclass(frozen=True, slots=True)
class HearMore:
    """Wait until so many characters have been sent."""

    characters: int


Step = AudioAfter | HearMore | SpeechEvent | WorkerError
Script = Sequence[Step]


def frames(count: int, *, first_s: float = 0.1, every_s: float = 0.08) -> list[Step]:
    return [AudioAfter(first_s + every_s * index, index) for index in range(count)]


def end(frame_count: int, reason: EndReason = "finished") -> End:
    usage = Usage(characters=1, words=1, frames=frame_count, audio_ms=80.0 * frame_count, queued_ms=0.0, stalled_ms=0.0)
    return End(reason=reason, usage=usage)


class ScriptedSpeech:
    """After its script it says nothing until it is cancelled."""

    def __init__(self, script: Script, opened_at: float) -> None:
        self.opened_at = opened_at
        self.sent = ""
        self.sent_at: list[float] = []
        self.finished = False
        self.cancelled = False
        self._changed = asyncio.Event()
        self._events = self._play(script)

    async def send(self, text: str) -> None:
        self.sent += text
        self.sent_at.append(asyncio.get_running_loop().time())
        self._changed.set()

    async def finish(self) -> None:
        self.finished = True

    async def cancel(self) -> None:
        self.cancelled = True
        self._events = self._farewell()

    def __aiter__(self) -> AsyncIterator[SpeechEvent]:
        return self._events

    async def _play(self, script: Script) -> AsyncIterator[SpeechEvent]:
        for step in script:
            match step:
                case AudioAfter():
                    at = self.opened_at + step.seconds
                    yield TimedAudio(step.payload, step.index, step.index * FRAME, 0, "pcm_s16le", at)
                case HearMore():
                    while len(self.sent) < step.characters:
                        self._changed.clear()
                        await self._changed.wait()
                case WorkerError():
                    raise step
                case _:
                    yield step
        if not script or not isinstance(script[-1], End):
            await asyncio.Event().wait()

    async def _farewell(self) -> AsyncIterator[SpeechEvent]:
        yield Cancelled(gen=1, spoken="", unspoken="")
        yield end(0, "cancelled")


@dataclass(slots=True)
class ScriptedPool:
    """A script an open, in order; then scripts that never say anything."""

    scripts: list[Script | WorkerError]
    requests: list[Open] = field(default_factory=list)
    speeches: list[ScriptedSpeech] = field(default_factory=list)

    async def open(self, request: Open) -> ScriptedSpeech:
        self.requests.append(request)
        script = self.scripts.pop(0) if self.scripts else []
        if isinstance(script, WorkerError):
            raise script
        speech = ScriptedSpeech(script, asyncio.get_running_loop().time())
        self.speeches.append(speech)
        return speech
