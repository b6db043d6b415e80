"""What a client makes of a session that another worker has taken over, and when it asks for that."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from worker import client_resume
from worker.client_events import Inlet, TimedAudio, WorkerGone
from worker.client_outbox import Outbox
from worker.client_resume import Resumption
from worker.wire.requests import Cancel, Finish, Flush, Text


def outbox() -> Outbox:
    box = Outbox()
    for text in ("a", "b", "c"):
        box.text(text)
    return box


def test_text_goes_on_under_the_new_number_from_where_the_worker_is() -> None:
    box = outbox()
    box.finish()
    assert box.adopt(4, 0, 1)
    assert list(box.pending()) == [Text(seq=1, text="b", gen=4), Text(seq=2, text="c", gen=4), Finish(seq=3, gen=4)]
    assert (box.gen, box.next_seq) == (4, 3)


def test_a_cancel_that_was_not_heard_is_for_the_generation_under_its_new_number() -> None:
    box = outbox()
    box.cancel(120.0, keep=True)
    box.text("new")
    box.flush()
    assert box.adopt(2, 0, 3)
    assert list(box.pending()) == [
        Cancel(gen=2, played_ms=120.0, keep=True),
        Text(seq=0, text="new", gen=3),
        Flush(seq=1, gen=3),
    ]
    assert box.cancelled(3)
    assert [message.gen for message in box.pending()] == [3, 3], "nothing of the new generation is void"


def test_a_cancel_that_was_heard_is_said_again_as_it_was() -> None:
    box = outbox()
    box.cancel(None, keep=True)
    box.text("new")
    assert box.adopt(2, 1, 0)
    assert list(box.pending()) == [Cancel(gen=0, keep=True), Text(seq=0, text="new", gen=2)]
    assert box.cancelled(1)
    assert list(box.pending()) == [Text(seq=0, text="new", gen=2)]


def test_a_worker_that_misses_confirmed_text_cannot_go_on() -> None:
    box = outbox()
    box.taken(2)
    assert not box.adopt(1, 0, 1)


def audio(seq: int, gen: int) -> TimedAudio:
    return TimedAudio(bytes([seq, gen]), seq, 10 * seq, gen, "pcm_s16le", 0.0)


async def heard(inlet: Inlet) -> list[bytes]:
    payloads = []
    while inlet.waiting_bytes:
        event = await inlet.get()
        assert isinstance(event, TimedAudio), "there is no hole"
        payloads.append(event.payload)
    return payloads


async def test_what_comes_twice_is_heard_once_and_the_old_worker_no_more() -> None:
    inlet = Inlet(1000)
    for seq in range(3):
        inlet.put_audio(audio(seq, 0))
    inlet.moved(1)
    inlet.put_audio(audio(2, 1))
    inlet.put_audio(audio(5, 0))
    inlet.put_audio(audio(3, 1))
    assert await heard(inlet) == [b"\0\0", b"\1\0", b"\2\0", b"\3\1"]


async def test_the_first_audio_of_a_generation_may_have_a_number_of_the_one_that_was_cut() -> None:
    inlet = Inlet(1000)
    for seq in range(3):
        inlet.put_audio(audio(seq, 0))
    inlet.moved(1)
    inlet.begin(2)
    inlet.put_audio(audio(1, 2))
    inlet.put_audio(audio(2, 2))
    assert await heard(inlet) == [b"\1\2", b"\2\2"]


class Calls:
    def __init__(self) -> None:
        self.pings = self.opens = 0
        self.asked, self.lost = asyncio.Event(), asyncio.Event()

    def ping(self) -> None:
        self.pings += 1

    def reopen(self) -> None:
        self.opens += 1
        self.asked.set()

    def give_up(self, error: WorkerGone) -> None:
        self.lost.set()


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest_asyncio.fixture
async def resumption(calls: Calls) -> Resumption:
    return Resumption(ping=calls.ping, reopen=calls.reopen, give_up=calls.give_up)


async def test_one_503_is_not_enough(resumption: Resumption, calls: Calls) -> None:
    resumption.unheard()
    resumption.heard()
    resumption.quiet(0.5)
    assert (calls.opens, calls.pings) == (0, 1)


async def test_503_again_and_again_is(resumption: Resumption, calls: Calls) -> None:
    async with asyncio.timeout(5):
        while not calls.asked.is_set():
            resumption.unheard()
            await asyncio.sleep(0.05)
    assert resumption.asking
    resumption.done()
    assert not resumption.asking


async def test_silence_is(resumption: Resumption, calls: Calls) -> None:
    resumption.quiet(client_resume.SILENCE_S)
    assert (calls.opens, calls.pings) == (0, 1)
    resumption.quiet(client_resume.SILENCE_S + 0.5)
    assert calls.opens == 1
    resumption.close()


async def test_it_asks_until_somebody_has_room(resumption: Resumption, calls: Calls) -> None:
    resumption.ask()
    calls.asked.clear()
    resumption.unheard()
    async with asyncio.timeout(5):
        await calls.asked.wait()
    assert calls.opens == 2
    resumption.close()
