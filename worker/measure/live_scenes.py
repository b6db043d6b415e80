"""What callers do, one function each: from the open to the end of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from worker.bus import Bus, Message
from worker.errors import RequestTimeout, WireError
from worker.measure.live_call import PATIENCE_S, TENANT, Call, Exchange, hearing, parts_of, placed, words_of
from worker.measure.live_laggard import Laggard
from worker.measure.live_record import BargeIn, CallRecord, Scene
from worker.measure.record import Outcome
from worker.wire.codec import ContentType, decode_event, encode
from worker.wire.events import Error, Ready
from worker.wire.requests import Open, Ping
from worker.wire.subjects import pool_subject

BARGE_INS = 5
"""In one call."""
STALLS = 3
"""In one call, at most."""
WORDS_BETWEEN = 4
"""A voice that reads a word ahead has something to say of so many."""
SPOKEN_S = (0.1, 1.2)
"""How long an utterance is heard before it is interrupted or hung up on."""
THOUGHT_S = (0.2, 0.8)
"""How long a language model says nothing more once the voice waits for it."""
ASK_EVERY_S = 0.05

Performance = Callable[[Exchange, CallRecord], Awaitable[None]]


async def typed(exchange: Exchange, record: CallRecord) -> None:
    async with placed(exchange, record) as call:
        await _speak_to_the_end(call)


async def stalled(exchange: Exchange, record: CallRecord) -> None:
    async with placed(exchange, record) as call:
        words = words_of(next(exchange.texts))
        parts = parts_of(words, max(2, min(STALLS + 1, len(words) // WORDS_BETWEEN)))
        await call.type_words(parts[0])
        for part in parts[1:]:
            await _keep_waiting(call)
            before, given_at = len(call.ear.resumed_at), asyncio.get_running_loop().time()
            await call.type_words(part)
            await call.until(lambda before=before: len(call.ear.resumed_at) > before)  # type: ignore[misc]
            record.resumed_s.append(call.ear.resumed_at[before] - given_at)
        await call.speech.finish()
        await call.over()


async def interrupted(exchange: Exchange, record: CallRecord) -> None:
    async with placed(exchange, record) as call:
        typing = asyncio.create_task(call.type(next(exchange.texts)))
        try:
            for gen in range(BARGE_INS):
                await call.until(lambda gen=gen: call.ear.heard(gen))  # type: ignore[misc]
                await asyncio.sleep(exchange.rng.uniform(*SPOKEN_S))
                typing.cancel()
                await asyncio.gather(typing, return_exceptions=True)
                at = await _cut_in(call, gen)
                typing = asyncio.create_task(call.type(next(exchange.texts)))
                await call.until(lambda gen=gen: call.ear.answered(gen + 1))  # type: ignore[misc]
                _note_barge_in(call, gen, at)
            await typing
            await call.speech.finish()
            await call.over()
        finally:
            typing.cancel()


async def beside_a_slow_listener(exchange: Exchange, record: CallRecord) -> None:
    async with placed(exchange, record) as call, Laggard(exchange.options.servers[0], call.subject):
        await _speak_to_the_end(call)


async def hung_up(exchange: Exchange, record: CallRecord) -> None:
    """A connection of its own, which closes: nobody hears the session, and nobody has said that it is over."""
    loop = asyncio.get_running_loop()
    bus = await Bus.connect(exchange.options)
    try:
        ready, opened_at = await _open_alone(bus, exchange, record)
        async with asyncio.timeout(PATIENCE_S):
            await record.ear.until(lambda: record.ear.heard(0))
        record.first_audio_s = (record.ear.utterances[0].first_at or 0.0) - opened_at
        await asyncio.sleep(exchange.rng.uniform(*SPOKEN_S))
    finally:
        await bus.close()
    closed_at = loop.time()
    async with asyncio.timeout(PATIENCE_S):
        await _until_forgotten(exchange.bus, ready.input)
    record.freed_s = loop.time() - closed_at
    record.outcome = Outcome.FINISHED


async def joined(exchange: Exchange, record: CallRecord) -> None:
    """The text comes with the open; who has spoken first is cancelled, for what is measured is the join."""
    async with placed(exchange, record, next(exchange.texts)) as call:
        await call.until(lambda: call.ear.heard(0))
        await call.speech.cancel()
        await call.over("cancelled")


PERFORMANCES: dict[Scene, Performance] = {
    Scene.TYPED: typed,
    Scene.STALLED: stalled,
    Scene.INTERRUPTED: interrupted,
    Scene.SLOW_LISTENER: beside_a_slow_listener,
    Scene.HUNG_UP: hung_up,
    Scene.JOINED: joined,
}


async def _speak_to_the_end(call: Call) -> None:
    await call.type(next(call.exchange.texts))
    await call.speech.finish()
    await call.over()


async def _keep_waiting(call: Call) -> None:
    """Until the voice has nothing to say, and on for a while; words on their way as it ran dry are no stall."""
    await call.until(lambda: call.ear.starved)
    await asyncio.sleep(call.exchange.rng.uniform(*THOUGHT_S))
    if not call.ear.starved:
        await _keep_waiting(call)


async def _cut_in(call: Call, gen: int) -> float:
    """When."""
    now = asyncio.get_running_loop().time()
    await call.speech.cancel(played_ms=call.ear.utterances[gen].played_ms(now), keep=True, gen=gen)
    return now


def _note_barge_in(call: Call, gen: int, at: float) -> None:
    old, new = call.ear.utterances[gen], call.ear.utterances[gen + 1]
    assert old.last_at is not None
    assert new.first_at is not None
    cancelled_s = call.ear.cancelled_at[gen + 1] - at
    call.record.barge_ins.append(BargeIn(max(0.0, old.last_at - at), cancelled_s, new.first_at - at))


async def _open_alone(bus: Bus, exchange: Exchange, record: CallRecord) -> tuple[Ready, float]:
    """An open by the wire contract alone: the client, when it is closed, cancels. Raises WorkerError."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[Ready] = loop.create_future()
    inbox, hear = bus.new_inbox(), hearing(record.ear)

    def answered(message: Message) -> None:
        if ready.done():
            hear(message)
        elif message.no_responders:
            ready.set_exception(WireError("no_capacity", "no worker has room"))
        else:
            event = decode_event(message.headers, message.payload)
            if isinstance(event, Ready):
                ready.set_result(event)
            elif isinstance(event, Error):
                ready.set_exception(event.as_exception())

    bus.subscribe(inbox, answered)
    await bus.barrier()
    packet = encode(Open(text=next(exchange.texts), seed=next(exchange.seeds)), ContentType.MSGPACK)
    opened_at = loop.time()
    subject = pool_subject("open", TENANT, exchange.pool)
    bus.publish(subject, packet.payload, headers=packet.headers, reply=inbox)
    async with asyncio.timeout(PATIENCE_S):
        return await ready, opened_at


async def _until_forgotten(bus: Bus, subject: str) -> None:
    """A live session's answer to a ping goes to its listeners, of whom there are none; about one that is over, the
    worker tells whoever asks."""
    packet = encode(Ping(), ContentType.MSGPACK)
    while True:
        try:
            answer = await bus.request(subject, packet.payload, headers=packet.headers, timeout_s=ASK_EVERY_S)
        except RequestTimeout:
            continue
        if isinstance(decode_event(answer.headers, answer.payload), Error):
            return
