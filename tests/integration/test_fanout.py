"""A session on a subject of its own: any number of listeners, early, late, slow or gone."""

from __future__ import annotations

import asyncio
import base64
import io
import secrets
import wave
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import soundfile

from engine.fake import FakeEngine
from tests.integration.ear import Ear
from tests.integration.live import Fields, House, OpenRefused, Session, eventually, house, live_settings

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "We looked at the old map together, and then we walked down to the river before the rain began."
LONG = f"{TEXT} {TEXT}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def home() -> AsyncIterator[House]:
    async with house(live_settings(), load=lambda: FakeEngine(24)) as one:
        yield one


def name() -> str:
    return secrets.token_hex(16)


async def ears(home: House, session: str, count: int = 1) -> list[Ear]:
    return [await Ear(await home.client()).attend(session) for _ in range(count)]


async def fanned(home: House, session: str, text: str = TEXT, **fields: object) -> Session:
    opening: Fields = {"text": text, "final": True, "fanout": True, "session": session, "seed": 41, **fields}
    return await home.session(opening)


async def test_every_listener_hears_all_of_it_and_the_opener_the_answer_alone(home: House) -> None:
    session = name()
    listeners = await ears(home, session, 3)
    opener = await fanned(home, session, pace="fast", marks=True)
    ends = [await listener.to_end() for listener in listeners]
    assert opener.kinds() == ["ready"]
    assert ends[0]["reason"] == "finished"
    assert listeners[0].events[0].fields == opener.ready
    first = listeners[0].said
    assert [event.kind for event in first if event.kind not in ("audio", "mark")] == ["end"]
    assert [(event.kind, event.payload) for event in first] == [
        (event.kind, event.payload) for event in listeners[1].said
    ]
    assert [event.headers for event in first] == [event.headers for event in listeners[2].said]
    listeners[0].sample_count()
    assert listeners[0].pcm == (await home.spoken(TEXT, seed=41)).pcm


async def test_an_open_that_fails_is_answered_to_its_opener_alone(home: House) -> None:
    session = name()
    (listener,) = await ears(home, session)
    with pytest.raises(OpenRefused, match="voice_not_found"):
        await fanned(home, session, voice="nobody")
    await listener.client.flush()
    assert listener.events == []


async def test_what_goes_wrong_later_is_told_to_all(home: House) -> None:
    session = name()
    (listener,) = await ears(home, session)
    opener = await fanned(home, session, text="Well, ", final=False)
    await opener.text(7, "lost")
    assert (await listener.until("error")).fields["code"] == "text_gap"
    await opener.say("cancel")
    assert (await listener.to_end())["reason"] == "cancelled"
    assert opener.kinds() == ["ready"]


async def test_ready_is_said_again_with_what_is_expected_next(home: House) -> None:
    """Every 2 s, in silence and in speech."""
    session = name()
    (listener,) = await ears(home, session)
    opener = await fanned(home, session, text="Well, ", final=False, pace="live")
    assert (await listener.until("ready")).fields["text_seq"] == 0
    await opener.text(0, "all ")
    assert (await listener.until("ready")).fields["text_seq"] == 1
    await opener.text(1, f"the same. {LONG}")
    await listener.until("audio")
    assert (await listener.until("ready")).fields["text_seq"] == 2
    readies = [event.fields for event in listener.events if event.kind == "ready"]
    assert all({**fields, "text_seq": 0} == opener.ready for fields in readies)
    await opener.say("cancel")
    await listener.to_end()


async def test_who_joins_late_can_decode(home: House) -> None:
    await asyncio.gather(joins_late(home, "wav"), joins_late(home, "opus"))


async def joins_late(home: House, encoding: str) -> None:
    session = name()
    (early,) = await ears(home, session)
    await fanned(home, session, format={"encoding": encoding, "sample_rate": 24_000})
    for _ in range(3):
        await early.until("audio")
    (late,) = await ears(home, session)
    header = base64.b64decode((await late.until("ready")).fields["header"])
    await asyncio.gather(early.to_end(), late.to_end())
    assert late.numbers == early.numbers[late.numbers[0] :]
    assert late.numbers[0] > 0
    assert early.pcm.startswith(header)
    assert early.pcm.endswith(late.pcm)
    if encoding == "wav":
        with wave.open(io.BytesIO(header + late.pcm)) as opened:
            assert opened.getframerate() == 24_000
    else:
        samples, rate = soundfile.read(io.BytesIO(header + late.pcm))
        whole_samples, _ = soundfile.read(io.BytesIO(early.pcm))
        assert rate == 24_000 or rate == 48_000
        assert 0 < len(samples) < len(whole_samples)
        assert abs(samples).max() > 0.01


async def test_a_session_without_a_listener_waits_for_one_and_has_lost_nothing(home: House) -> None:
    """The opener cannot know the name in advance, if the worker chooses it."""
    opener = await home.session({"text": TEXT[:40], "final": True, "fanout": True, "seed": 41})
    live = home.service.desk._sessions[opener.ready["session"]]
    await eventually(lambda: live.audience.absent)
    (listener,) = await ears(home, opener.ready["session"])
    assert (await listener.to_end())["reason"] == "finished"
    listener.sample_count()


async def test_the_session_that_nobody_hears_any_more_is_paused_and_then_ended(home: House) -> None:
    session = name()
    leaving, staying = await ears(home, session, 2)
    opener = await fanned(home, session, text=LONG)
    live = home.service.desk._sessions[session]
    await leaving.until("audio")
    await leaving.deafen()
    for _ in range(14):
        await staying.until("audio")  # past the next probe
    assert not live.audience.held, "one is left"
    await staying.deafen()
    await staying.client.flush()
    await eventually(lambda: live.audience.held)
    paused = live.egress.seq
    await eventually(lambda: live.over)
    assert live.egress.seq - paused <= 3, "what was under way"
    assert opener.kinds() == ["ready"]
    await home.empty()
    registry = home.service.telemetry.registry
    assert registry is not None
    assert registry.get_sample_value("tts_sessions_ended_total", {"pool": home.pool, "reason": "gone"}) == 1.0


async def test_another_tenant_does_not_hear_it(home: House) -> None:
    session = name()
    stranger = await Ear(await home.client(), tenant="evil").attend(session)
    (listener,) = await ears(home, session)
    await fanned(home, session, text="Good morning.", pace="fast")
    await listener.to_end()
    await stranger.client.flush()
    assert stranger.events == []
