"""The load: so many slots, each of which opens a session, hears it to its end, and opens the next at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

from worker.audio.extent import samples_in
from worker.client_events import Gap, SpeechEvent, TimedAudio
from worker.errors import NoResponders, RequestTimeout, WireError, WorkerError
from worker.measure.onset import Onset
from worker.measure.player import Player
from worker.measure.record import Outcome, SessionRecord
from worker.wire.events import End, Error, NeedText
from worker.wire.requests import AudioFormat, Open

RATE = 24_000
SAMPLE_BYTES = 2
SILENT_S = 10.0
"""A worker pings every second; one that says nothing for so long is gone."""
AFTER_REFUSAL_S = 0.25
FAREWELL_S = 3.0
"""For the ``end`` of a session that is cut."""

Mode = Literal["whole", "paced"]


class Speech(Protocol):
    """``worker.client.Speech``, as far as it is needed here."""

    @property
    def opened_at(self) -> float: ...
    async def send(self, text: str) -> None: ...
    async def finish(self) -> None: ...
    async def cancel(self) -> None: ...
    def __aiter__(self) -> AsyncIterator[SpeechEvent]: ...


class Opener(Protocol):
    """``worker.client.Client``, as far as it is needed here."""

    async def open(self, request: Open) -> Speech: ...


@dataclass(frozen=True, slots=True)
class Plan:
    sessions: int
    seconds: float
    mode: Mode = "whole"
    char_ms: float = 20.0
    """Between two characters, where ``mode`` is paced."""
    format: AudioFormat = field(default_factory=AudioFormat)


@dataclass(slots=True)
class Load:
    """``run`` once. Sessions that still speak when the time is over are cancelled."""

    opener: Opener
    plan: Plan
    texts: Iterator[str]
    """Without end."""
    seeds: Iterator[int]
    records: list[SessionRecord] = field(default_factory=list)
    _deadline: float = 0.0

    async def run(self) -> list[SessionRecord]:
        self._deadline = asyncio.get_running_loop().time() + self.plan.seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(self.plan.sessions):
                group.create_task(self._slot())
        return self.records

    async def _slot(self) -> None:
        loop = asyncio.get_running_loop()
        first = True
        while loop.time() < self._deadline:
            record = SessionRecord(first_wave=first, opened_at=loop.time())
            first = False
            self.records.append(record)
            await self._session(record, next(self.texts))
            if record.outcome is Outcome.REFUSED:
                await asyncio.sleep(AFTER_REFUSAL_S)

    async def _session(self, record: SessionRecord, text: str) -> None:
        whole = self.plan.mode == "whole"
        form, seed = self.plan.format, next(self.seeds)
        request = Open(text=text, final=True, seed=seed, format=form) if whole else Open(seed=seed, format=form)
        try:
            speech = await self.opener.open(request)
        except WorkerError as error:
            record.outcome, record.code = Outcome.REFUSED, _code(error)
            return
        record.opened_at = speech.opened_at
        sender = None if whole else Sender(speech, text, self.plan.char_ms / 1000)
        typing = asyncio.create_task(sender.run()) if sender is not None else None
        try:
            await Listener(speech, record, sender, form).run(self._deadline)
        finally:
            if typing is not None:
                typing.cancel()
                await asyncio.gather(typing, return_exceptions=True)


class Sender:
    """Types a text: one character each ``every_s`` by the clock, then finishes."""

    def __init__(self, speech: Speech, text: str, every_s: float) -> None:
        self._speech, self._text, self._every_s = speech, text, every_s
        self._sent = 0

    @property
    def share(self) -> float:
        return self._sent / max(1, len(self._text))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for index, character in enumerate(self._text):
            await asyncio.sleep(began + index * self._every_s - loop.time())
            await self._speech.send(character)
            self._sent += 1
        await self._speech.finish()


class Listener:
    """Hears one session to its end, or to the end of the load."""

    def __init__(self, speech: Speech, record: SessionRecord, sender: Sender | None, form: AudioFormat) -> None:
        self._speech, self._record, self._sender, self._form = speech, record, sender, form
        self._player = record.player = Player(form.sample_rate)
        self._onset = Onset(form.sample_rate, form.encoding)
        self._events = aiter(speech)

    async def run(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                async with asyncio.timeout_at(min(deadline, loop.time() + SILENT_S)):
                    event = await anext(self._events)
                self._hear(event)
                if isinstance(event, End):
                    break
        except TimeoutError:
            await self._give_up(loop.time(), deadline)
        except StopAsyncIteration:
            self._record.code = self._record.code or "no_end"
        except WorkerError as error:
            self._record.code = _code(error)
        self._weigh()

    def _hear(self, event: SpeechEvent) -> None:
        match event:
            case TimedAudio() as audio:
                if audio.payload and self._record.first_audio_s is None:
                    self._record.first_audio_s = audio.at - self._record.opened_at
                    self._record.sent_share = None if self._sender is None else self._sender.share
                rate = self._form.sample_rate
                samples = samples_in(audio.payload, encoding=self._form.encoding, sample_rate=rate, pts=audio.pts)
                self._player.hear(audio.at, audio.pts, samples)
                self._onset.push(audio.payload, samples)
            case Gap() as gap:
                self._record.lost_messages += gap.missing
            case NeedText():
                self._record.waits += 1
                self._player.pause()
            case Error() as error:
                self._record.code = error.code
            case End() as end:
                self._player.end(round(end.usage.audio_ms * self._form.sample_rate / 1000))
                spoken = end.reason == "finished"
                self._record.outcome = Outcome.FINISHED if spoken else Outcome.FAILED
                self._record.code = "" if spoken else self._record.code or end.reason
            case _:
                pass

    async def _give_up(self, now: float, deadline: float) -> None:
        if now >= deadline:
            self._record.outcome, self._record.code = Outcome.CUT, ""
        else:
            self._record.code = "silent"
        if self._record.first_audio_s is None:
            self._record.mute_s = now - self._record.opened_at
        self._player.cut(min(now, deadline))
        await self._leave()

    async def _leave(self) -> None:
        """Cancel, and wait until the row is free again."""
        with contextlib.suppress(TimeoutError, StopAsyncIteration, WorkerError):
            async with asyncio.timeout(FAREWELL_S):
                await self._speech.cancel()
                async for event in self._speech:  # afresh: an iterator that was cancelled may be at its end
                    if isinstance(event, End):
                        break

    def _weigh(self) -> None:
        silence_s = self._onset.seconds()
        if silence_s is not None and self._record.first_audio_s is not None:
            self._record.audible_s = self._record.first_audio_s + silence_s


def _code(error: WorkerError) -> str:
    match error:
        case WireError():
            return error.code
        case NoResponders():
            return "no_responders"
        case RequestTimeout():
            return "timeout"
        case _:
            return type(error).__name__
