"""Two tenants, one worker, the shipped files: neither can reach the other, through the server or through the worker."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.integration.ear import Ear
from tests.integration.live import PATIENCE_S, Heard, OpenRefused, Session, eventually
from tests.integration.town import PASSWORDS, SETUPS, SLOTS, Town, reached, set_passwords, town
from worker.bus import Bus
from worker.client import Client as OwnClient
from worker.connection import BusOptions
from worker.errors import BusUnavailable
from worker.wire.requests import Open

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "We looked at the old map together. "
NAMES = ("acme", "globex")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SETUPS)
async def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    with pytest.MonkeyPatch.context() as patch:
        set_passwords(patch)
        store = Path(tmp_path_factory.mktemp("journal"))
        async with town(request.param, store, "--limits.sessions", "off", "--limits.overrides", "") as one:
            yield one


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def between_tests(place: Town, caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """Whatever tenants do, the worker itself never asks for what the server does not allow it."""
    yield
    assert not [record for record in caplog.records if "permissions violation" in record.getMessage()]
    for client in place.clients:
        await client.close()
    place.clients.clear()
    place.complaints.clear()
    for session in list(place.service.desk._sessions.values()):
        session.close("cancelled")
    await eventually(lambda: place.service.desk.sessions == 0)


class Tap:
    """Hears all that a client may hear of some subjects."""

    def __init__(self) -> None:
        self.heard: list[Msg] = []

    async def on(self, client: Client, *subjects: str) -> Tap:
        async def hear(message: Msg) -> None:
            self.heard.append(message)

        for subject in subjects:
            await client.subscribe(subject, cb=hear)
        await reached(client)
        return self


async def spoken(session: Session) -> None:
    assert (await session.to_end())["reason"] == "finished"
    session.sample_count()


async def open_victim(place: Town, **fields: Any) -> Session:
    """A session of globex's that waits for more text."""
    return await place.session("globex", text=TEXT, pace="fast", **fields)


# --- each for itself ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tenant", NAMES)
async def test_a_tenant_speaks_and_hears(place: Town, tenant: str) -> None:
    session = await place.session(tenant, text=TEXT, pace="fast")
    assert session.ready["input"] == f"tts.v1.{tenant}.in.w1.{session.ready['session']}"
    await session.text(0, TEXT)
    await session.say("finish", seq=1)
    await spoken(session)
    assert place.complaints == []


@pytest.mark.parametrize("tenant", NAMES)
async def test_info_comes_across(place: Town, tenant: str) -> None:
    client = await place.tenant(tenant, inbox=f"_INBOX_{tenant}")
    info = json.loads((await client.request(f"tts.v1.{tenant}.info.std", b"{}", timeout=PATIENCE_S)).data)
    assert info["worker"] == "w1"
    assert "resume" in info["options"], "the worker may use its journal"


async def test_fan_out_comes_across_to_every_listener_of_the_tenant_alone(place: Town) -> None:
    name = secrets.token_hex(16)
    listeners = [await Ear(await place.tenant("globex"), tenant="globex").attend(name) for _ in range(2)]
    spy = await Tap().on(await place.tenant("acme"), f"tts.v1.globex.out.{name}", "tts.v1.*.out.*")
    opener = await open_victim(place, session=name, fanout=True, final=True)
    for listener in listeners:
        await spoken(listener)
    assert opener.kinds() == ["ready"]
    assert spy.heard == []


async def test_the_projects_own_client_needs_no_more_than_a_password(place: Town) -> None:
    options = BusOptions((place.url,), user="acme", password=PASSWORDS["acme"])
    async with await OwnClient.connect(options, tenant="acme") as client:
        assert (await client.info()).pool == "std"
        speech = await client.open(Open(text=TEXT, final=True, pace="fast"), timeout_s=PATIENCE_S)
        assert [audio.seq async for audio in speech.audio()]
        assert speech.end is not None
        assert speech.end.reason == "finished"


async def test_a_resumable_session_is_kept_in_the_workers_journal(place: Town) -> None:
    session = await place.session("acme", text=TEXT, final=True, resume=True, pace="fast")
    await spoken(session)


# --- tokens -------------------------------------------------------------------------------------------------------


async def test_tokens_and_refusals_come_across(place: Town) -> None:
    """Both tenants at once, four times as many opens as slots: each slot is taken once, and everybody else hears so at
    once, from the server."""
    clients = [await place.tenant(tenant) for tenant in NAMES]
    askers = [Session(clients[index % 2], tenant=NAMES[index % 2]) for index in range(4 * SLOTS)]
    await asyncio.gather(*(asker.ask({}) for asker in askers))
    answers = Counter([(await asker.next()).kind for asker in askers])
    assert answers["ready"] == SLOTS, answers
    assert answers["ready"] + answers["status 503"] + answers["error"] == 4 * SLOTS
    assert answers["status 503"] > 0


# --- attacks ------------------------------------------------------------------------------------------------------


async def test_a_tenant_cannot_open_for_another(place: Town) -> None:
    acme = await place.tenant("acme")
    own = await Tap().on(acme, "_INBOX_acme.>")
    await acme.publish("tts.v1.globex.open.std", b"{}", reply="_INBOX_acme.x")
    await acme.publish("tts.v1.globex.info.std", b"{}", reply="_INBOX_acme.y")
    await place.settle()
    assert place.service.desk.sessions == 0
    assert {Heard.of(message).kind for message in own.heard} <= {"status 503"}
    if place.setup == "one-account":
        assert sum('permissions violation for publish to "tts.v1.globex' in said for said in place.complaints) == 2


async def test_a_tenant_can_neither_feed_nor_cancel_anothers_session(place: Town) -> None:
    victim = await open_victim(place)
    acme = await place.tenant("acme")
    for kind in ('{"type":"text","seq":0,"text":"Evil. "}', '{"type":"cancel"}', '{"type":"finish"}'):
        await acme.publish(victim.ready["input"], kind.encode())
    await place.settle()
    await victim.text(0, TEXT)  # still number 0, still alive
    await victim.say("finish", seq=1)
    end = await victim.to_end()
    assert end["reason"] == "finished"
    assert end["usage"]["characters"] == 2 * len(TEXT)
    assert victim.count("cancelled") == 0


async def test_the_worker_knows_a_session_only_by_its_own_tenant(place: Town) -> None:
    """The tenant's own subject, the other's session: allowed by the server, refused by the worker."""
    victim = await open_victim(place)
    acme = await place.tenant("acme", inbox="_INBOX_acme")
    for kind in ("cancel", "finish"):
        body = json.dumps({"type": kind}).encode()
        subject = f"tts.v1.acme.in.w1.{victim.ready['session']}"
        answer = Heard.of(await acme.request(subject, body, timeout=PATIENCE_S))
        assert answer.fields["code"] == "no_session"
    await victim.say("finish")
    await spoken(victim)


async def test_a_tenant_cannot_hear_another(place: Town) -> None:
    acme = await place.tenant("acme")
    spy = Tap()
    for subject in ("_INBOX_globex.>", "_R_.>", ">", "*.*.globex.>", "_WORKER.>", "$JS.>", "tts.journal.v1.>"):
        await spy.on(acme, subject)
    victim = await open_victim(place, final=True, resume=True)
    await spoken(victim)
    await place.settle()
    assert [message.subject for message in spy.heard] == []


async def test_a_tenant_cannot_take_anothers_session_over(place: Town) -> None:
    victim = await open_victim(place, resume=True)
    name = victim.ready["session"]
    with pytest.raises(OpenRefused, match="bad_request"):
        await place.session("acme", session=name, resume=True)
    await victim.say("finish")
    await spoken(victim)


REPLIES = (
    "_INBOX_globex.victim",
    "tts.v1.globex.out.0123456789abcdef",
    "tts.v1.globex.in.w1.{session}",
    "_WORKER.x.1",
    "$JS.API.STREAM.PURGE.TTS_JOURNAL",
    "tts.journal.v1.s.globex.0123456789abcdef",
    "_INBOX.x",
    "_R_.forged.1",
)
HANDED_OVER = {"Tts-Handover": "w1-0123456789ab"}


@pytest.mark.parametrize("headers", [{}, HANDED_OVER], ids=["plain", "as if a worker left"])
async def test_a_tenant_cannot_make_the_worker_speak_to_another(place: Town, headers: dict[str, str]) -> None:
    victim = await open_victim(place, resume=True)
    globex = await place.tenant("globex")
    heard = await Tap().on(globex, "_INBOX_globex.victim", "tts.v1.globex.out.*")
    acme = await place.tenant("acme")
    own = await Tap().on(acme, "_INBOX_acme.>")
    before, opened = place.count("tts_replies_dropped"), place.count("tts_sessions_opened")
    bodies = [
        ("open", b'{"text": "Evil.", "final": true}', headers),
        ("open", b'{"text": "Evil.", "final": true, "resume": true, "session": "0123456789abcdef"}', headers),
        ("open", b"no request", headers),
        ("info", b"{}", {}),
    ]
    for reply in REPLIES:
        for kind, body, given in bodies:
            subject = reply.format(session=victim.ready["session"])
            await acme.publish(f"tts.v1.acme.{kind}.std", body, reply=subject, headers=given or None)
        await place.settle()
    await eventually(lambda: place.service.desk.sessions <= 1 + (place.setup == "accounts") * len(REPLIES))
    assert heard.heard == []
    assert own.heard == []
    await victim.say("finish")
    await spoken(victim)
    assert victim.count("error") == 0
    if place.setup == "one-account":
        kinds = 1 if headers else len(bodies)
        assert place.count("tts_replies_dropped") - before == kinds * (len(REPLIES) - 1), (
            "the server itself stops the forged _R_"
        )
        assert place.count("tts_sessions_opened") == opened


async def test_jetstream_is_the_workers_alone(place: Town) -> None:
    acme = await place.tenant("acme")
    own = await Tap().on(acme, "_INBOX_acme.>")
    stream = await place.service.bus.request("$JS.API.STREAM.INFO.TTS_JOURNAL", b"")
    before = json.loads(stream.payload)["state"]["last_seq"]
    for subject in ("$JS.API.INFO", "$JS.API.STREAM.INFO.TTS_JOURNAL", "$JS.API.STREAM.DELETE.TTS_JOURNAL"):
        await acme.publish(subject, b"", reply="_INBOX_acme.x")
    await acme.publish("tts.journal.v1.s.globex.0123456789abcdef", b"forged", reply="_INBOX_acme.x")
    await acme.publish("tts.journal.v1.f.w1-0123456789ab", b"forged", reply="_INBOX_acme.x")
    await place.settle()
    stream = await place.service.bus.request("$JS.API.STREAM.INFO.TTS_JOURNAL", b"")
    assert json.loads(stream.payload)["state"]["last_seq"] == before
    for message in own.heard:
        assert Heard.of(message).kind == "status 503" or "error" in json.loads(message.data)


async def test_the_worker_itself_may_speak_and_listen_nowhere_else(place: Town) -> None:
    said: list[str] = []

    async def complain(error: Exception) -> None:
        said.append(str(error))

    worker = await nats.connect(place.url, user="worker", password=PASSWORDS["worker"], error_cb=complain)
    place.clients.append(worker)
    refused = ("tts.v1.acme.in.w1.0123456789abcdef", "tts.v1.acme.info.std", "_INBOX.x", "anything", "$SYS.REQ.x")
    for subject in refused:
        await worker.publish(subject, b"x")
    for subject in (">", "_INBOX_acme.>", "tts.v1.*.out.*", "$JS.>"):
        await worker.subscribe(subject)
    await reached(worker)
    assert len([one for one in said if "publish" in one]) == len(refused), said
    assert len([one for one in said if "subscription" in one]) == 4, said


async def test_a_wrong_password_is_no_tenant(place: Town) -> None:
    with pytest.raises(BusUnavailable):
        await Bus.connect(BusOptions((place.url,), user="acme", password=PASSWORDS["globex"]), timeout_s=0.2)
