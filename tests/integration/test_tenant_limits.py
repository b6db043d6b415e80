"""What one tenant may take of a worker, and that it cannot take what the others need."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.integration.live import PATIENCE_S, Heard, OpenRefused, Session, eventually
from tests.integration.town import PASSWORDS, Town, set_passwords, town
from worker.client import Client as OwnClient
from worker.connection import BusOptions
from worker.errors import WireError
from worker.wire.requests import Open

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOTS, MOST = 4, 2
RATE, BURST = 400.0, 50
OVERRIDES = f"acme.sessions={MOST},acme.chars_per_s={RATE:g},acme.burst_chars={BURST},globex.chars_per_s=off"
TEXT = "We looked at the old map. "
FLOOD_S = 1.5
EVERY_S = 0.01
RETRIES = 2
"""Of an open that finds no token, as in the wire contract."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    with pytest.MonkeyPatch.context() as patch:
        set_passwords(patch)
        store = Path(tmp_path_factory.mktemp("journal"))
        async with town("one-account", store, "--limits.overrides", OVERRIDES, slots=SLOTS) as one:
            yield one


@pytest_asyncio.fixture(loop_scope="module")
async def place(whole: Town) -> AsyncIterator[Town]:
    """Without sessions, and with acme's burst whole."""
    limits = whole.service.desk._porter._limits
    limits._buckets.clear()
    yield whole
    for client in whole.clients:
        await client.close()
    whole.clients.clear()
    for session in list(whole.service.desk._sessions.values()):
        session.close("cancelled")
    await eventually(lambda: whole.service.desk.sessions == 0)


async def refused(place: Town, tenant: str, **fields: object) -> OpenRefused:
    with pytest.raises(OpenRefused) as caught:
        await place.session(tenant, **fields)  # type: ignore[arg-type]
    return caught.value


# --- sessions -----------------------------------------------------------------------------------------------------


async def test_a_tenant_at_its_limit_is_told_at_once_and_others_are_served(place: Town) -> None:
    mine = [await place.session("acme") for _ in range(MOST)]
    error = await refused(place, "acme")
    assert error.code == "over_limit"
    assert error.fields["retryable"] is True
    assert error.fields["detail"] == {"limit": "sessions", "most": MOST, "retry_after_ms": 1000}
    assert place.count("tts_opens_refused", code="over_limit") == 1
    theirs = [await place.session("globex") for _ in range(SLOTS - MOST)]
    assert (await refused(place, "globex")).code == "503", "room for nobody"
    await theirs[0].say("cancel")
    await theirs[0].to_end()
    await eventually(lambda: place.service.desk.sessions == SLOTS - 1)
    assert (await refused(place, "acme")).code == "over_limit", "room, but not for acme"
    await mine[0].say("cancel")
    await mine[0].to_end()
    await place.session("acme", text=TEXT, final=True)


async def test_a_session_that_has_ended_makes_room_at_once(place: Town) -> None:
    """Its row may still be on its way back."""
    await place.session("acme")
    for _ in range(10):
        session = await place.session("acme")
        await session.say("cancel")
        await session.to_end()


async def test_a_resumable_session_counts_too_and_is_not_in_its_own_way(place: Town) -> None:
    name = secrets.token_hex(16)
    await place.session("acme", resume=True)
    session = await place.session("acme", resume=True, session=name, text=TEXT)
    assert (await refused(place, "acme", resume=True, session=secrets.token_hex(16))).code == "over_limit"
    again = await place.session("acme", session=name, resume=True)
    assert again.ready["gen"] > 0
    assert again.ready["session"] == session.ready["session"]


async def test_several_at_once_that_the_journal_is_asked_about_share_the_limit(place: Town) -> None:
    askers = [Session(await place.tenant("acme"), tenant="acme") for _ in range(SLOTS)]
    await asyncio.gather(*(each.ask({"resume": True, "session": secrets.token_hex(16)}) for each in askers))
    answers = [await each.next() for each in askers]
    codes = Counter(each.fields["code"] if each.kind == "error" else each.kind for each in answers)
    assert codes["ready"] == MOST
    assert codes["over_limit"] >= 1
    assert set(codes) <= {"ready", "over_limit", "status 503"}


# --- characters ---------------------------------------------------------------------------------------------------


async def test_text_beyond_the_rate_is_not_taken_and_nothing_is_lost(place: Town) -> None:
    session = await place.session("acme", pace="fast")
    first = "x" * (BURST + 40)
    await session.text(0, f"{first} ")
    await session.text(1, "one ")
    error = (await session.until("error")).fields
    assert (error["code"], error["retryable"], error["detail"]["limit"]) == ("over_limit", True, "chars_per_s")
    await session.text(2, "two ")
    assert (await session.until("error")).fields["detail"] == {"expected": 1}
    for seq, text in ((1, "one "), (1, "one "), (2, "two ")):  # what was taken already is not counted twice
        await asyncio.sleep(error["detail"]["retry_after_ms"] / 1000)
        await session.text(seq, text)
    await session.say("finish", seq=3)
    end = await session.to_end()
    assert end["reason"] == "finished"
    assert end["usage"]["characters"] == len(first) + 9
    assert session.count("error") == 2
    session.sample_count()


async def test_what_is_not_taken_is_not_counted(place: Town) -> None:
    session = await place.session("acme")
    await session.text(0, "x" * (BURST - 1))
    for _ in range(20):
        await session.text(0, "again and again")
        await session.text(9, "behind a gap")
        await session.text(0, "of a generation to come", gen=1)
    kinds = {(await session.until("error")).fields["code"] for _ in range(21)}
    assert kinds == {"text_gap"}
    await session.text(1, "taken")
    await session.say("ping")
    assert (await session.until("ping", "error")).kind == "ping"


async def test_an_open_with_text_beyond_the_rate_is_refused_and_takes_no_slot(place: Town) -> None:
    first = await place.session("acme", text="x" * (BURST + 40))
    error = await refused(place, "acme", text="more")
    assert error.code == "over_limit"
    assert error.fields["detail"]["limit"] == "chars_per_s"
    assert place.service.desk.sessions == 1
    await place.session("acme")  # without text there is nothing to count
    await place.session("globex", text="x" * 10 * BURST)
    assert first.count("error") == 0


async def test_all_sessions_of_a_tenant_share_its_rate(place: Town) -> None:
    first, second = [await place.session("acme") for _ in range(2)]
    await first.text(0, "x" * (BURST + 40))
    await first.say("ping")
    await first.until("ping")
    await second.text(0, "y")
    assert (await second.until("error")).fields["code"] == "over_limit"


async def test_the_projects_own_client_waits_and_says_it_again(place: Town) -> None:
    options = BusOptions((place.url,), user="acme", password=PASSWORDS["acme"])
    texts = [f"{number} {TEXT}" for number in range(10)]
    before = place.count("tts_texts_refused")
    async with await OwnClient.connect(options, tenant="acme") as client:
        speech = await client.open(Open(pace="fast"), timeout_s=PATIENCE_S)
        for text in texts:
            await speech.send(text)
        await speech.finish()
        assert [audio.seq async for audio in speech.audio()]
        assert speech.usage is not None
        assert (speech.usage.characters, speech.usage.words) == (sum(map(len, texts)), 7 * len(texts))
        assert place.count("tts_texts_refused") > before
        others = [await client.open(Open(), timeout_s=PATIENCE_S) for _ in range(MOST)]
        with pytest.raises(WireError, match="over_limit"):
            await client.open(Open(), timeout_s=PATIENCE_S)
        assert len(others) == MOST


# --- floods -------------------------------------------------------------------------------------------------------


class Flood:
    """A batch of messages every hundredth of a second, until it is told to stop."""

    def __init__(self, client: Client, subject: str, bodies: list[bytes], batch: int) -> None:
        self._client, self._subject, self._bodies, self._batch = client, subject, bodies, batch
        self.over = asyncio.Event()
        self.sent = 0
        self.answers: Counter[str] = Counter()

    async def run(self) -> None:
        inbox, loop = f"_INBOX_acme.{secrets.token_hex(8)}", asyncio.get_running_loop()
        await self._client.subscribe(inbox, cb=self._count)
        begun = loop.time()
        while not self.over.is_set():
            for number in range(self._batch):
                body = self._bodies[(self.sent + number) % len(self._bodies)]
                await self._client.publish(self._subject, body, inbox, {"Content-Type": "application/json"})
            self.sent += self._batch
            await asyncio.sleep(max(0.0, begun + self.sent / self._batch * EVERY_S - loop.time()))

    async def _count(self, message: Msg) -> None:
        event = Heard.of(message)
        self.answers[event.fields["code"] if event.kind == "error" else event.kind] += 1


async def served(place: Town, client: Client) -> int:
    """One session of globex's from the open to the end; the number of attempts it took."""
    for attempt in range(1, 10):
        session = Session(client, tenant="globex")
        with suppress(OpenRefused):
            await session.open({"text": "Yes.", "final": True, "pace": "fast"})
            assert (await session.to_end())["reason"] == "finished"
            return attempt
        await asyncio.sleep(0.1)
    return 10


async def test_a_flood_of_one_tenants_opens_does_not_starve_anothers(place: Town) -> None:
    """Acme has all it may have, and a single slot is left; a thousand opens a second come for it. What each open of
    globex's needs is one of the few tokens, and most often it is there at the first try. How often not is chance, and
    more where the machine is busy; one of acme's that meets a token at its end may go unanswered (its client's limit
    of time is for that), one of a thousand at most."""
    for _ in range(MOST):
        await place.session("acme")
    await place.session("globex")
    flood = Flood(await place.tenant("acme"), "tts.v1.acme.open.std", [b'{"text": "Mine."}'], batch=10)
    flooding = asyncio.create_task(flood.run())
    client, attempts = await place.tenant("globex"), Counter[int]()
    begun = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - begun < FLOOD_S or attempts.total() < 5:
        attempts[await served(place, client)] += 1
        await eventually(lambda: place.service.desk.sessions == MOST + 1)
    flood.over.set()
    await flooding
    await eventually(lambda: flood.answers.total() >= flood.sent - flood.sent // 1000)
    assert flood.answers.total() <= flood.sent
    assert set(flood.answers) <= {"over_limit", "no_capacity", "status 503"}, flood.answers
    assert flood.answers["over_limit"] > 100
    tries = sum(count * number for count, number in attempts.items())
    assert max(attempts) < 10, attempts
    assert tries <= 2 * attempts.total() + RETRIES, attempts


async def test_a_flood_of_one_tenants_text_does_not_reach_anothers_speech(place: Town) -> None:
    """Thousands of texts a second: those within the rate are taken, the others told so, and globex's sessions sound as
    they always do."""
    undisturbed = await place.session("globex", text=4 * TEXT, final=True, pace="fast", seed=3)
    await undisturbed.to_end()
    mine = await place.session("acme", pace="fast")
    bodies = [b'{"type": "text", "seq": null, "text": "ten chars "}', b'{"type": "flush"}', b'{"type": "ping"}']
    flood = Flood(await place.tenant("acme"), mine.ready["input"], bodies, batch=40)
    begun = asyncio.get_running_loop().time()
    flooding = asyncio.create_task(flood.run())
    client, heard = await place.tenant("globex"), 0
    while asyncio.get_running_loop().time() - begun < FLOOD_S or heard < 2:
        session = await place.session("globex", client, pace="fast", seed=3)
        for seq in range(4):
            await session.text(seq, TEXT)
        await session.say("finish", seq=4)
        assert (await session.to_end())["reason"] == "finished"
        assert session.pcm == undisturbed.pcm
        heard += 1
        await eventually(lambda: place.service.desk.sessions == 1)
    flood.over.set()
    await flooding
    await mine.say("cancel")
    end = await mine.to_end()
    lasted = asyncio.get_running_loop().time() - begun
    assert end["reason"] == "cancelled", "it is not ended for its flood"
    assert BURST <= end["usage"]["characters"] <= BURST + RATE * lasted + 10
    assert mine.count("error") > 100
    assert {event.fields["code"] for event in mine.events if event.kind == "error"} == {"over_limit"}
