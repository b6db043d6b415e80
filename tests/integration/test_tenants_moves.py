"""Sessions of tenants in the shipped set-ups that last, fall silent, change workers, or lose their listener."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from engine.fake import FakeEngine
from scheduler.loop import LoopRules
from tests.integration.ear import Ear
from tests.integration.live import Session, eventually
from tests.integration.town import PASSWORDS, SETUPS, Town, reached, set_passwords, shipped, shortened, town
from worker.bus import Bus
from worker.connection import BusOptions
from worker.service import running
from worker.subscription import Message

WORDS = "We looked at the old map. "
THRESHOLD_S = 3.0
"""Two seconds may lie between two pings: one is due after a second, and who owes one is looked up every second."""


@pytest.fixture(autouse=True)
def _passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    set_passwords(monkeypatch)


class Responder:
    """What a session would be without pings: it answers at once, and again when told to."""

    def __init__(self) -> None:
        self.replies: list[str] = []
        self.bus: Bus | None = None

    async def start(self, place: Town) -> Bus:
        self.bus = await Bus.connect(
            BusOptions((place.url,), user="worker", password=PASSWORDS["worker"], inbox_prefix="_WORKER")
        )
        self.bus.subscribe("tts.v1.*.open.control", self._answer)
        await self.bus.barrier()
        return self.bus

    def _answer(self, message: Message) -> None:
        self.replies.append(message.reply)
        self.again()

    def again(self) -> None:
        assert self.bus is not None
        for reply in self.replies:
            self.bus.publish(reply, b"answer")


async def listening(client: Client, subject: str) -> list[Msg]:
    heard: list[Msg] = []

    async def hear(message: Msg) -> None:
        heard.append(message)

    await client.subscribe(subject, cb=hear)
    await reached(client)
    return heard


async def waiting_sessions(place: Town, pace: str) -> tuple[Session, Session, Ear]:
    """One that is heard on its reply subject, and one that is fanned out, with a listener."""
    name = secrets.token_hex(16)
    ear = await Ear(await place.tenant("acme"), tenant="acme").attend(name)
    plain = await place.session("acme", idle_timeout_s=600.0, pace=pace)
    fanned = await place.session("acme", idle_timeout_s=600.0, pace=pace, session=name, fanout=True)
    return plain, fanned, ear


async def speak(session: Session, heard: Session, first: int, texts: int) -> None:
    """From text number ``first`` on; returns when the model wants more."""
    for seq in range(first, first + texts):
        await session.text(seq, WORDS)
    while (await heard.until("need_text")).fields["text_seq"] != first + texts:
        pass


async def last_through(place: Town, *, texts: int, silence_s: float, pace: str) -> None:
    plain, fanned, ear = await waiting_sessions(place, pace)
    both = ((plain, plain), (fanned, ear))
    await asyncio.gather(*(speak(session, heard, 0, texts) for session, heard in both))
    before = [len(heard.audio) for _, heard in both]
    await asyncio.sleep(silence_s)
    assert [len(heard.audio) for _, heard in both] == before, "it was silent"
    await asyncio.gather(*(speak(session, heard, texts, texts) for session, heard in both))
    for session, heard in both:
        await session.say("finish", seq=2 * texts)
        assert (await heard.to_end())["reason"] == "finished"
        heard.sample_count()


async def lost_client_is_missed(place: Town) -> None:
    """The server forgets the way back of a reply subject that nobody hears any more, and says no 503: what tells is the
    silence of a producer that pinged, and ``idle_timeout_s`` where none did. ``fanout`` has its 503, see below."""
    client = await place.tenant("acme")
    pinging = await place.session("acme", client)
    silent = await place.session("acme", client, idle_timeout_s=0.5)
    await pinging.say("ping")
    await reached(client)
    await client.close()
    for session, reason in ((pinging, "gone"), (silent, "idle")):
        name = session.ready["session"]
        await eventually(lambda name=name: place.service.desk.find(name) is None)  # type: ignore[misc]
        assert session.count("end") == 0
        assert place.count("tts_sessions_ended", reason=reason) == 1


async def test_with_an_account_per_tenant_silence_is_outlasted_and_absence_is_noticed(tmp_path: Path) -> None:
    """The twin of the ten minutes: a threshold of seconds, and a silence that is longer than the server may take to
    notice it. A responder that says nothing in that time has lost its way back. Both kinds of silence at once, to save
    time."""
    config = await asyncio.to_thread(shortened, "accounts", f"{THRESHOLD_S:g}s")
    async with town("accounts", tmp_path, config=config) as place:
        control = Responder()
        bus = await control.start(place)
        client = await place.tenant("acme")
        answers = await listening(client, "_INBOX_acme.control")
        await client.publish("tts.v1.acme.open.control", b"", reply="_INBOX_acme.control")
        await eventually(lambda: len(answers) == 1)
        await asyncio.gather(
            last_through(place, texts=1, silence_s=2 * THRESHOLD_S + 0.5, pace="fast"), lost_client_is_missed(place)
        )
        control.again()
        await bus.barrier()
        await place.settle()
        assert len(answers) == 1
        await bus.close()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("setup", SETUPS)
async def test_ten_minutes_with_three_of_silence(setup: str, tmp_path: Path) -> None:
    async with town(setup, tmp_path, "--limits.chars-per-s", "off") as place:
        begun = asyncio.get_running_loop().time()
        # Six words of 0.32 s a text.
        texts = round(210 / (0.32 * 6))
        await last_through(place, texts=texts, silence_s=180.0, pace="live")
        assert asyncio.get_running_loop().time() - begun > 580


@pytest.mark.parametrize("setup", SETUPS)
async def test_a_worker_that_leaves_hands_its_sessions_over(setup: str, tmp_path: Path) -> None:
    """The new worker answers where the old one did, also on a subject that the server has made for the way back."""
    async with town(setup, tmp_path) as place:
        session = await place.session("acme", text=WORDS, resume=True)
        await session.until("audio")
        settings = place.service.settings
        second = settings.model_copy(update={"worker": settings.worker.model_copy(update={"id": "w2"})})
        async with running(second, load=lambda: FakeEngine(2), rules=LoopRules(headroom=100.0)):
            draining = asyncio.create_task(place.service.desk.drain(30.0))
            session.ready = (await session.until("ready")).fields
            assert session.ready["worker"] == "w2"
            assert session.ready["exact"] is True
            await session.say("finish")
            assert (await session.to_end())["reason"] == "finished"
            await draining


@pytest.mark.parametrize("setup", SETUPS)
async def test_a_listener_of_a_fanned_out_session_may_lose_its_connection(setup: str, tmp_path: Path) -> None:
    async with town(setup, tmp_path) as place:
        name = secrets.token_hex(16)
        first, producer = await place.tenant("acme"), await place.tenant("acme")
        ear = await Ear(first, tenant="acme").attend(name)
        opener = await place.session("acme", producer, text=4 * WORDS, final=True, session=name, fanout=True)
        await ear.until("audio")
        await first.close()
        live = place.service.desk.find(opener.ready["session"])
        assert live is not None
        await eventually(lambda: live.audience.absent)
        second = await Ear(await place.tenant("acme"), tenant="acme").attend(name)
        await second.until("audio")
        await opener.say("cancel")
        assert (await second.to_end())["reason"] == "cancelled"
        heard = [audio.number("Tts-Seq") for audio in (*ear.audio, *second.audio)]
        assert heard == sorted(set(heard))


def test_the_long_test_waits_for_longer_than_the_server_does() -> None:
    assert '.open.*", response_type: stream, response_threshold: "2m"' in shipped("accounts")
