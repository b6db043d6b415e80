"""Credit, silence, absent listeners and producers, time limits; and who may speak to whom."""

from __future__ import annotations

import asyncio
import json

import pytest
from nats.errors import NoRespondersError

from tests.integration.live import Heard, House, OpenRefused, Session, eventually, house, live_settings
from worker.sections import WorkerSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "We looked at the old map together, and then we walked down to the river before the rain began."
FRAME_MS = 80


def metric(home: House, name: str) -> float:
    registry = home.service.telemetry.registry
    assert registry is not None
    return registry.get_sample_value(name, {"pool": home.pool}) or 0.0


# --- credit and silence -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pace", "rounds"), [("live", 2), ("fast", 1)])
async def test_audio_never_goes_beyond_the_credit(home: House, pace: str, rounds: int) -> None:
    session = await home.session({"text": TEXT[:60], "final": True, "pace": pace, "credit_ms": 400})
    granted = 400.0
    for _ in range(rounds):
        await session.until("ping")  # silent for a second
        sent_ms = session.sample_count() / 24
        assert granted - FRAME_MS < sent_ms <= granted
        await session.say("credit", ms=240)
        granted += 240
    await session.say("credit", ms=60_000)
    await session.to_end()
    assert session.sample_count() / 24 > granted


async def test_credit_does_not_change_the_speech(home: House) -> None:
    session = await home.session({"text": "Good morning.", "final": True, "seed": 31, "credit_ms": 0})
    while session.kinds()[-1] != "end":
        await session.say("credit", ms=80)
        await session.next()
    assert session.pcm == (await home.spoken("Good morning.", seed=31)).pcm


async def test_a_ping_is_answered_with_what_is_expected_next(home: House) -> None:
    session = await home.session({"text": "One "})
    for seq in range(3):
        await session.say("ping")
        assert (await session.until("ping")).fields == {"type": "ping", "text_seq": seq}
        await session.text(seq, "more ")
    await session.say("cancel")
    await session.to_end()


# --- the ends that time brings ----------------------------------------------------------------------------------------


async def test_sessions_end_when_nobody_speaks_or_listens(home: House) -> None:
    """All at once, for each takes seconds: idle, too long, no listener (before and in mid-speech), a producer that
    pinged and stopped."""
    idle = await home.session({"idle_timeout_s": 0.5})
    stalled = await home.session({"text": "Well then, ", "idle_timeout_s": 0.5})
    held = await home.session({"text": "It was 12", "idle_timeout_s": 0.5})
    flushed = await home.session({"text": "Good morning. \U0001f642", "idle_timeout_s": 0.5})
    await flushed.say("flush")
    endless = await home.session({"text": TEXT, "max_session_s": 1.0})
    silent = await home.session({})
    await silent.say("ping")
    deaf, mute = await home.session({"text": TEXT * 3, "final": True}), await home.session({})
    spoke = await deaf.until("audio")
    await deaf.deafen()
    await mute.deafen()
    assert {spoke.kind, *deaf.kinds()} == {"ready", "audio"}
    ends = await asyncio.gather(*(session.to_end() for session in (idle, stalled, held, flushed, endless, silent)))
    assert [end["reason"] for end in ends] == ["idle", "idle", "idle", "idle", "limit", "gone"]
    assert flushed.count("flushed") == 1
    await home.empty()
    gone = home.service.telemetry.registry
    assert gone is not None
    assert gone.get_sample_value("tts_sessions_ended_total", {"pool": home.pool, "reason": "gone"}) == 3.0


async def test_a_session_without_a_listener_pauses_and_goes_on_when_he_is_back(home: House) -> None:
    text = TEXT[:60]
    session = await home.session({"text": text, "final": True, "seed": 33})
    await session.until("audio")
    await session.deafen()
    live = next(iter(home.service.desk._sessions.values()))
    await eventually(lambda: live.audience.held)
    missed = live.egress.seq
    await session.client.subscribe(session.inbox, cb=session._hear)
    await session.to_end()
    after = [event for event in session.audio if event.number("Tts-Seq") >= missed]
    assert after[0].number("Tts-Seq") - missed <= 2, "what was under way before the pause is lost, nothing after it"
    whole = await home.spoken(text, seed=33)
    start = after[0].number("Tts-Pts")
    assert b"".join(event.payload for event in after) == whole.pcm[2 * start :]


async def test_limits_of_the_worker_cap_those_of_the_open() -> None:
    settings = live_settings(worker=WorkerSettings(idle_timeout_s=0.4, max_session_s=60.0))
    async with house(settings) as home:
        session = await home.session({"idle_timeout_s": 500.0, "max_session_s": 500.0})
        assert session.ready["idle_timeout_s"] == session.ready["limits"]["idle_s"] == 0.4
        assert session.ready["max_session_s"] == session.ready["limits"]["session_s"] == 60.0
        assert (await session.to_end())["reason"] == "idle"


# --- who may speak to whom --------------------------------------------------------------------------------------------


async def test_a_message_to_no_session_is_answered_if_it_can_be(home: House) -> None:
    client = await home.client()
    worker = home.service.settings.worker.id
    for name, code in (("0123456789abcdef", "no_session"), ("short", "bad_request"), ("a" * 64, "no_session")):
        answer = await client.request(f"tts.v1.default.in.{worker}.{name}", b"Hello", timeout=10)
        assert Heard.of(answer).fields["code"] == code
    with pytest.raises(NoRespondersError):
        await client.request("tts.v1.default.in.another.0123456789abcdef", b"Hello", timeout=10)


async def test_another_tenant_cannot_speak_for_a_session(home: House) -> None:
    session = await home.session({"text": "One ", "seed": 34}, tenant="acme")
    worker, name = session.ready["worker"], session.ready["session"]
    assert session.ready["input"] == f"tts.v1.acme.in.{worker}.{name}"
    for tenant, inbox in (("evil", "_INBOX_evil."), ("default", "_INBOX.")):
        replies = await session.client.subscribe(f"{inbox}x")
        for body in (b'{"type":"text","seq":0,"text":"Mine."}', b'{"type":"cancel"}', b"plain"):
            await session.client.publish(f"tts.v1.{tenant}.in.{worker}.{name}", body, reply=f"{inbox}x")
            assert Heard.of(await replies.next_msg(10)).fields["code"] == "no_session"
        await session.client.publish(f"tts.v1.{tenant}.in.{worker}.{name}", b'{"type":"finish"}')
        await replies.unsubscribe()
    await session.say("ping")
    assert (await session.until("ping")).fields["text_seq"] == 0
    await session.text(0, "two.")
    await session.say("finish", seq=1)
    assert (await session.to_end())["usage"]["characters"] == len("One two.")
    assert {"error", "cancelled"}.isdisjoint(session.kinds())


@pytest.mark.parametrize(
    ("tenant", "reply"),
    [
        ("evil", "_INBOX.victim"),
        ("evil", "_INBOX_acme.victim"),
        ("default", "_INBOX_acme.victim"),
        ("evil", "tts.v1.acme.out.victim"),
        ("default", "tts.v1.default.in.somebody.victim"),
        ("default", "$JS.API.STREAM.LIST"),
    ],
)
async def test_a_reply_subject_of_somebody_else_is_not_answered(home: House, tenant: str, reply: str) -> None:
    client = await home.client()
    overheard = await client.subscribe(reply)
    before = metric(home, "tts_replies_dropped_total")
    bodies = (b"Hello there.", b'{"voice":"nobody"}', b"\xff")
    for body in bodies:
        await client.publish(f"tts.v1.{tenant}.open.{home.pool}", body, reply=reply)
    await client.publish(f"tts.v1.{tenant}.info.{home.pool}", b"", reply=reply)
    await client.publish(f"tts.v1.{tenant}.in.{home.service.settings.worker.id}.nobody0123456789", b"x", reply=reply)
    await eventually(lambda: metric(home, "tts_replies_dropped_total") == before + len(bodies) + 2)
    assert home.service.desk.sessions == 0
    await client.flush()
    assert overheard.pending_msgs == 0


async def test_an_open_without_a_reply_subject_takes_no_slot(home: House) -> None:
    client = await home.client()
    before = metric(home, "tts_replies_dropped_total")
    await client.publish(f"tts.v1.default.open.{home.pool}", b"Hello there.")
    await eventually(lambda: metric(home, "tts_replies_dropped_total") == before + 1)
    assert home.service.desk.sessions == 0
    assert (await home.spoken("Good morning.")).count("end") == 1


async def test_tenants_that_are_not_served_are_refused() -> None:
    async with house(live_settings(worker=WorkerSettings(tenants=("acme",)))) as home:
        session = await home.session({"text": "Good morning.", "final": True}, tenant="acme")
        await session.to_end()
        with pytest.raises(OpenRefused, match="forbidden"):
            await home.session({"text": "Good morning.", "final": True})
        answer = await session.client.request(f"tts.v1.default.info.{home.pool}", b"", timeout=10)
        assert json.loads(answer.data)["code"] == "forbidden"
        stranger = Session(await home.client(), tenant="not.one", pool=home.pool)
        await stranger.ask({"text": "Hello."})
        assert (await stranger.next()).kind == "status 503"
