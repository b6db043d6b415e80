"""Cancel and barge-in: one acknowledgement, then nothing of the old generation (case C27: pipecat-ai/pipecat#1942)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.live import JSON, MSGPACK, Heard, House, Session, house, live_settings
from worker.embedded import EmbeddedServer
from worker.sections import NatsSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "We looked at the old map together, and then we walked down to the river before the rain began."


async def heard(session: Session, frames: int) -> None:
    """Wait for some more audio."""
    for _ in range(frames):
        await session.until("audio")


def generations(session: Session) -> list[int]:
    return [event.number("Tts-Gen") for event in session.audio]


async def test_cancel_ends_the_session(home: House) -> None:
    session = await home.session({"text": TEXT, "final": True})
    await heard(session, 3)
    await session.say("cancel")
    cancelled = (await session.until("cancelled")).fields
    end = await session.next()
    assert (cancelled["gen"], end.kind, end.fields["reason"]) == (1, "end", "cancelled")
    assert cancelled["spoken"] + cancelled["unspoken"] == TEXT
    assert cancelled["unspoken"]
    assert end.fields["usage"]["characters"] == len(TEXT)
    assert end.fields["usage"]["audio_ms"] == session.sample_count() / 24
    await home.empty()
    assert session.events[-1] is end


@pytest.mark.parametrize("content", [JSON, MSGPACK])
async def test_a_barge_in_keeps_the_session(home: House, content: str) -> None:
    """New text may follow its cancel without waiting; seq and pts of the audio run on."""
    session = await home.session({"text": TEXT, "final": True, "seed": 21}, content=content)
    await heard(session, 4)
    await session.say("cancel", gen=0, keep=True)
    await session.text(0, "Never mind.", gen=1)
    await session.say("finish", seq=1, gen=1)
    end = await session.to_end()
    assert end["reason"] == "finished"
    assert session.count("cancelled") == 1
    at = next(index for index, event in enumerate(session.events) if event.kind == "cancelled")
    assert {event.number("Tts-Gen") for event in session.events[:at] if event.kind == "audio"} == {0}
    assert {event.number("Tts-Gen") for event in session.events[at:] if event.kind == "audio"} == {1}
    assert end["usage"]["characters"] == len(TEXT) + len("Never mind.")
    assert end["usage"]["audio_ms"] == session.sample_count() / 24


async def test_a_generation_does_not_depend_on_when_the_last_one_was_cancelled(home: House) -> None:
    """Before its first frame, in the middle of a word, and after a flush; and it is not the first one's twin."""
    takes = []
    for moment in ("before the first frame", "mid-word", "flushed"):
        session = await home.session({"seed": 22, "pace": "fast"})
        await session.text(0, "Good morning." if moment == "flushed" else TEXT)
        if moment == "mid-word":
            await heard(session, 5)
        elif moment == "flushed":
            await session.say("flush")
            await session.until("flushed")
        await session.say("cancel", keep=True)
        await session.text(0, "Never mind.")
        await session.say("finish")
        await session.to_end()
        takes.append(b"".join(event.payload for event in session.audio if event.number("Tts-Gen") == 1))
        if moment == "before the first frame":
            assert generations(session) == [1] * len(session.audio)
            assert session.kinds() == ["ready", "cancelled", "audio", "end"]
            cancelled = next(event for event in session.events if event.kind == "cancelled").fields
            assert (cancelled["spoken"], cancelled["unspoken"]) == ("", TEXT)
        session.sample_count()
    assert takes[0] == takes[1] == takes[2]
    assert takes[0] != (await home.spoken("Never mind.", seed=22)).pcm


async def test_a_repeated_cancel_is_acknowledged_again_and_does_nothing(home: House) -> None:
    session = await home.session({"text": TEXT, "pace": "fast"})
    await heard(session, 2)
    for _ in range(3):
        await session.say("cancel", gen=0, keep=True)
    await session.text(0, "Never mind.", gen=1)
    await session.say("cancel", gen=0)
    await session.say("finish", seq=1)
    end = await session.to_end()
    assert end["reason"] == "finished"
    cancels = [event.fields for event in session.events if event.kind == "cancelled"]
    assert len(cancels) == 4
    assert all(cancel == cancels[0] for cancel in cancels)
    assert 1 in generations(session)


async def test_ten_barge_ins_in_a_row(home: House) -> None:
    session = await home.session({"pace": "fast"})
    for generation in range(10):
        await session.text(0, "So this is how it goes. ", gen=generation)
        if generation % 3 == 0:
            await heard(session, 1)
        await session.say("cancel", gen=generation, keep=True)
    await session.text(0, "Enough.", gen=10)
    await session.say("finish", seq=1, gen=10)
    end = await session.to_end()
    assert end["reason"] == "finished"
    assert [event.fields["gen"] for event in session.events if event.kind == "cancelled"] == list(range(1, 11))
    newest = 0
    for event in session.events:
        if event.kind == "cancelled":
            newest = event.fields["gen"]
        elif event.kind == "audio":
            assert event.number("Tts-Gen") == newest
    session.sample_count()


async def test_messages_of_an_older_generation_are_ignored(home: House) -> None:
    session = await home.session({"text": TEXT, "seed": 23, "pace": "fast"})
    await session.say("cancel", keep=True)
    await session.text(0, "Old words.", gen=0)
    await session.say("flush", seq=7, gen=0)
    await session.say("finish", gen=0)
    await session.text(0, "Never mind.", gen=1)
    await session.text(1, "Old words.", gen=0)
    await session.say("finish", seq=1, gen=1)
    assert (await session.to_end())["usage"]["characters"] == len(TEXT) + len("Never mind.")
    assert {"error", "flushed"}.isdisjoint(session.kinds())


async def test_a_generation_that_is_not_there_yet_is_a_gap(home: House) -> None:
    """The cancel was lost."""
    session = await home.session({"text": "One ", "pace": "fast"})
    messages: list[dict[str, Any]] = [{"kind": "text", "text": "Two", "seq": 0}, {"kind": "cancel"}, {"kind": "finish"}]
    for message in messages:
        await session.say(gen=1, **message)
        error = (await session.until("error")).fields
        assert (error["code"], error["retryable"], error["detail"]) == ("text_gap", True, {"gen": 0})
    await session.say("finish", gen=0)
    assert (await session.to_end())["usage"]["words"] == 1


async def test_after_the_end_a_cancel_is_harmless(home: House) -> None:
    session = await home.session({"text": "Good morning."})
    await session.say("cancel")
    await session.to_end()
    events = len(session.events)
    await session.say("cancel")
    await session.say("cancel", gen=0)
    answer = await session.client.request(session.ready["input"], b'{"type":"cancel"}', timeout=10)
    assert Heard.of(answer).fields["code"] == "no_session"
    assert len(session.events) == events


@pytest.mark.parametrize("rate", [24_000, 16_000])
async def test_what_was_played_is_told_by_the_listeners_clock(home: House, rate: int) -> None:
    """``played_ms`` decides what counts as spoken; without it, what was sent does."""
    splits: list[tuple[str, str]] = []
    for played in (0.0, 700.0, 1_500.0, 1e6, None):
        options: dict[str, Any] = {"seed": 24, "format": {"encoding": "pcm_s16le", "sample_rate": rate}}
        session = await home.session({"text": TEXT, "pace": "fast", "credit_ms": 2_000, **options})
        while session.sample_count() < 1.9 * rate:
            await session.until("audio")
        told: dict[str, Any] = {} if played is None else {"played_ms": played}
        await session.say("cancel", **told)
        cancelled = (await session.until("cancelled")).fields
        await session.to_end()
        assert cancelled["spoken"] + cancelled["unspoken"] == TEXT
        splits.append((cancelled["spoken"], cancelled["unspoken"]))
    spoken = [len(before) for before, _ in splits]
    assert spoken[0] == 0 < spoken[1] < spoken[2] <= spoken[3] == spoken[4]
    assert spoken[4] < len(TEXT) / 2, "two seconds are not the half"
    for before, after in splits:
        assert before == "" or (before[-1] != " " and after[0] == " "), "at a word's end"


async def test_played_time_runs_on_through_the_session(home: House) -> None:
    """Of the second generation, nothing was heard by the time at which the first one ended."""
    session = await home.session({"text": "Good morning.", "pace": "fast"})
    await session.say("flush")
    pts = (await session.until("flushed")).fields["pts"]
    await session.say("cancel", keep=True, played_ms=pts / 24)
    assert (await session.until("cancelled")).fields["spoken"] == "Good morning."
    await session.text(0, TEXT)
    await heard(session, 12)
    await session.say("cancel", keep=True, played_ms=pts / 24)
    cancelled = (await session.until("cancelled")).fields
    assert (cancelled["spoken"], cancelled["unspoken"]) == ("", TEXT)
    await session.say("cancel")
    assert (await session.to_end())["reason"] == "cancelled"


@pytest.mark.parametrize("content", [JSON, MSGPACK])
async def test_the_text_comes_back_whole_where_a_pair_was_cut(home: House, content: str) -> None:
    session = await home.session({"text": "Hello"}, content=content)
    if content == JSON:
        await session.text(0, " \ud83d")
        await session.text(1, "\ude42 and goodbye")
    else:
        await session.client.publish(
            session.ready["input"],
            b"\x83\xa4type\xa4text\xa3seq\x00\xa4text\xa4 \xed\xa0\xbd",
            headers={"Content-Type": MSGPACK},
        )
        await session.client.publish(
            session.ready["input"],
            b"\x83\xa4type\xa4text\xa3seq\x01\xa4text\xaf\xed\xb9\x82 and goodbye",
            headers={"Content-Type": MSGPACK},
        )
    await session.say("cancel")
    cancelled = (await session.until("cancelled")).fields
    assert cancelled["spoken"] + cancelled["unspoken"] == "Hello \U0001f642 and goodbye"
    await session.to_end()


async def test_a_cancelled_text_that_no_message_can_hold_is_cut() -> None:
    """The acknowledgement comes all the same, with what would have come next."""
    async with EmbeddedServer(extra="max_payload: 16384") as server:
        settings = live_settings(nats=NatsSettings(url=(server.url,), embedded="off"))
        async with house(settings) as home:
            session = await home.session({"credit_ms": 0})
            text = ""
            for seq in range(3):
                await session.text(seq, "Good morning to you. " * 400)
                text += "Good morning to you. " * 400
            await session.say("cancel", keep=True)
            cancelled = (await session.until("cancelled")).fields
            assert cancelled["spoken"] == ""
            assert text.startswith(cancelled["unspoken"])
            assert len(cancelled["unspoken"]) > 5_000
            await session.text(0, "Never mind.", gen=1)
            await session.say("credit", ms=60_000)
            await session.say("finish")
            assert (await session.to_end())["reason"] == "finished"
