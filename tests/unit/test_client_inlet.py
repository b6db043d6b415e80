from __future__ import annotations

import asyncio

import pytest

from worker.client_events import Gap, Inlet, SpeechEvent, TimedAudio, WorkerGone
from worker.wire.events import Cancelled, End, Mark, NeedText, Usage

END = End(reason="finished", usage=Usage(characters=0, words=0, frames=0, audio_ms=0.0, queued_ms=0.0, stalled_ms=0.0))


def audio(seq: int, gen: int = 0, payload: bytes = b"\0\0") -> TimedAudio:
    return TimedAudio(payload, seq=seq, pts=seq, gen=gen, encoding="pcm_s16le", at=float(seq))


async def read(inlet: Inlet) -> list[SpeechEvent]:
    events = []
    while (event := await inlet.get()) is not None:
        events.append(event)
    return events


async def test_events_come_out_in_order_and_the_end_is_last() -> None:
    inlet = Inlet(100)
    sent = [audio(0), NeedText(text_seq=1), audio(1)]
    inlet.put_audio(audio(0))
    inlet.put(NeedText(text_seq=1))
    inlet.put_audio(audio(1))
    inlet.end(END)
    assert await read(inlet) == [*sent, END]
    assert await inlet.get() is None, "it stays over"


async def test_a_hole_in_seq_is_a_gap_and_a_repeated_payload_is_nothing() -> None:
    inlet = Inlet(100)
    for seq in (0, 3, 2, 3, 4):
        inlet.put_audio(audio(seq))
    inlet.end(END)
    assert await read(inlet) == [audio(0), Gap(1, 2), audio(3), audio(4), END]


async def test_what_does_not_fit_is_a_gap_at_the_end_too() -> None:
    inlet = Inlet(4)
    for seq in range(4):
        inlet.put_audio(audio(seq))
    assert inlet.waiting_bytes == 4
    inlet.put(NeedText(text_seq=1))
    assert await inlet.get() == audio(0)
    assert inlet.waiting_bytes == 2
    inlet.put_audio(audio(4))
    inlet.put_audio(audio(5))
    inlet.end(END)
    assert await read(inlet) == [audio(1), NeedText(text_seq=1), Gap(2, 2), audio(4), Gap(5, 1), END]


async def test_a_new_generation_silences_the_old_one_without_a_gap() -> None:
    inlet = Inlet(4)
    inlet.put_audio(audio(0))
    inlet.put(Mark(word="Old", offset=0, start_ms=0.0, end_ms=None))
    inlet.put(NeedText(text_seq=1))
    inlet.begin(1)
    assert inlet.waiting_bytes == 0
    inlet.put_audio(audio(1, gen=0))
    inlet.put(Cancelled(gen=1, spoken="", unspoken=""))
    mark = Mark(word="New", offset=0, start_ms=80.0, end_ms=None)
    inlet.put(mark)
    inlet.put_audio(audio(2, gen=1))
    inlet.begin(1)
    inlet.end(END)
    cancelled = Cancelled(gen=1, spoken="", unspoken="")
    assert await read(inlet) == [NeedText(text_seq=1), cancelled, mark, audio(2, gen=1), END]


async def test_a_failure_comes_after_what_had_arrived() -> None:
    inlet = Inlet(100)
    inlet.put_audio(audio(0))
    inlet.fail(WorkerGone("first"))
    inlet.fail(WorkerGone("second"))
    assert await inlet.get() == audio(0)
    with pytest.raises(WorkerGone, match="first"):
        await inlet.get()


async def test_a_reader_waits_and_can_be_cancelled_without_losing_anything() -> None:
    inlet = Inlet(100)
    reader = asyncio.ensure_future(inlet.get())
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    reader = asyncio.ensure_future(inlet.get())
    await asyncio.sleep(0)
    assert not reader.done()
    inlet.put_audio(audio(0))
    assert await reader == audio(0)
