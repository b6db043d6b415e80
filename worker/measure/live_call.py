"""One call: a session opened, fed word by word, and heard by its client and by an ear of the measurement's own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

from worker.bus import Bus, Message
from worker.client import Client, Speech
from worker.connection import BusOptions
from worker.errors import WireError, WorkerError
from worker.measure.live_ear import Ear
from worker.measure.live_record import CallRecord
from worker.measure.record import Outcome
from worker.wire.codec import decode_event
from worker.wire.events import EndReason
from worker.wire.requests import Open
from worker.wire.subjects import out_subject

TENANT = "default"
OPEN_S = 5.0
PATIENCE_S = 20.0
"""For anything that a call waits for: with more, a session is lost."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What all calls of a measurement share."""

    client: Client
    bus: Bus
    """A connection of its own for the ears."""
    options: BusOptions
    pool: str
    texts: Iterator[str]
    """Without end."""
    seeds: Iterator[int]
    rng: random.Random
    token_s: float


class Call:
    def __init__(self, exchange: Exchange, speech: Speech, record: CallRecord) -> None:
        self.exchange, self.speech, self.record = exchange, speech, record
        self.subject = out_subject(TENANT, speech.ready.session)
        self._began: float = speech.opened_at

    @property
    def ear(self) -> Ear:
        return self.record.ear

    async def type(self, text: str) -> None:
        """The words of a text, one each ``token_s`` by the clock."""
        await self.type_words(words_of(text))

    async def type_words(self, words: Sequence[str]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for index, word in enumerate(words):
            await asyncio.sleep(began + index * self.exchange.token_s - loop.time())
            await self.speech.send(word)

    async def until(self, heard: Callable[[], bool]) -> None:
        """Raises TimeoutError, EOFError (the session ended before), WorkerError."""
        async with asyncio.timeout(PATIENCE_S):
            await self.ear.until(heard)

    async def over(self, reason: EndReason = "finished") -> None:
        await self.until(lambda: self.ear.end is not None)
        assert self.ear.end is not None
        as_asked = self.ear.end.reason == reason
        self.record.outcome = Outcome.FINISHED if as_asked else Outcome.FAILED
        self.record.code = "" if as_asked else self.ear.end.reason

    def note_first_audio(self) -> None:
        first = self.ear.utterances.get(0)
        if first is not None and first.first_at is not None:
            self.record.first_audio_s = first.first_at - self._began


@contextlib.asynccontextmanager
async def placed(exchange: Exchange, record: CallRecord, text: str | None = None) -> AsyncIterator[Call]:
    """A call, opened with all of a text, or with none yet. Raises WorkerError."""
    session = secrets.token_hex(16)
    request = Open(session=session, fanout=True, seed=next(exchange.seeds), text=text, final=text is not None)
    subscription = exchange.bus.subscribe(out_subject(TENANT, session), hearing(record.ear))
    try:
        await exchange.bus.barrier()
        speech = await exchange.client.open(request, timeout_s=OPEN_S)
        reading = asyncio.create_task(_read(speech, record.ear))
        call = Call(exchange, speech, record)
        try:
            yield call
        finally:
            call.note_first_audio()
            await speech.cancel()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    finally:
        subscription.close()


@contextlib.contextmanager
def noted(record: CallRecord) -> Iterator[None]:
    """What ends a call early is part of the measurement."""
    try:
        yield
    except WireError as error:
        record.code = error.code
        if error.code == "no_capacity":
            record.outcome = Outcome.REFUSED
    except (TimeoutError, EOFError, ConnectionError, WorkerError) as error:
        early = record.ear.end
        record.code = type(error).__name__ if early is None else early.reason


def hearing(ear: Ear) -> Callable[[Message], None]:
    loop = asyncio.get_running_loop()

    def hear(message: Message) -> None:
        at = loop.time()
        if not message.no_responders:
            ear.hear(decode_event(message.headers, message.payload), at)

    return hear


def words_of(text: str) -> list[str]:
    """Each with the space before it, as language models cut them; together exactly the text."""
    return re.findall(r"\s*\S+|\s+$", text)


def parts_of(words: Sequence[str], count: int) -> list[Sequence[str]]:
    """About equal ones, none of them empty: fewer than ``count`` of fewer words."""
    bounds = [index * len(words) // count for index in range(count + 1)]
    return [words[start:stop] for start, stop in itertools.pairwise(bounds) if stop > start]


async def _read(speech: Speech, ear: Ear) -> None:
    """The client's own listener: what it loses, the ear is told."""
    try:
        async for _ in speech:
            pass
    except WorkerError as error:
        ear.fail(error)
