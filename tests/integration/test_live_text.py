"""Text that comes in pieces: order, gaps, stalls, flush, finish, bounds."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.integration.live import House, Session, house, live_settings
from worker.sections import WorkerSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = (
    "The first train of the morning was late again, so we sat in the station and watched the rain. "
    "Nobody said a word until the bell rang, and then everyone began to talk at once about the weather."
)
CHARACTER_S = 0.02


async def test_speech_begins_before_half_of_the_text_is_there(home: House) -> None:
    """Must-show 4: one character every 20 ms; and the audio is that of the text at once."""
    session = await home.session({"seed": 11, "pace": "fast"})
    sent_at_first_audio: list[int] = []

    async def listen() -> None:
        await session.until("audio")
        sent_at_first_audio.append(sent)

    listening = asyncio.create_task(listen())
    sent = 0
    begun = asyncio.get_running_loop().time()
    for character in TEXT:
        await session.text(sent, character)
        sent += 1
        await asyncio.sleep(max(0.0, begun + sent * CHARACTER_S - asyncio.get_running_loop().time()))
    await session.say("finish", seq=sent)
    await listening
    await session.to_end()
    assert sent_at_first_audio[0] < len(TEXT) / 2
    session.sample_count()
    assert session.pcm == (await home.spoken(TEXT, seed=11)).pcm


async def test_cuts_do_not_change_the_speech(home: House) -> None:
    """Cut anywhere, also inside a surrogate pair, and with empty deltas."""
    text = "Room 214 costs $1.50, see ab.com \U0001f642 now."
    halves = text.encode("utf-16-le", "surrogatepass")
    units = [halves[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(halves), 2)]
    whole = await home.spoken(text, seed=12)
    for seed in range(3):
        rng, session, seq = random.Random(seed), await home.session({"seed": 12, "pace": "fast"}), 0
        left = list(units)
        while left:
            size = rng.choice([0, 1, 1, 2, 3, 5, 8])
            await session.text(seq, "".join(left[:size]))
            left, seq = left[size:], seq + 1
        await session.say("finish", seq=seq)
        await session.to_end()
        assert session.pcm == whole.pcm


async def test_plain_text_on_the_input_subject_is_the_next_delta(home: House) -> None:
    session = await home.session({"seed": 13, "pace": "fast"})
    for delta in (b"Good ", b"morn", b"ing."):
        await session.client.publish(session.ready["input"], delta)
    await session.say("finish", seq=3)
    await session.to_end()
    assert session.pcm == (await home.spoken("Good morning.", seed=13)).pcm


async def test_need_text_comes_once_a_stall_and_never_before_the_first_text(home: House) -> None:
    """Case C14 (livekit/agents#3798): the sentence is spoken up to the look-ahead word, then text is asked for."""
    session = await home.session({})
    await session.until("ping")  # after a second of silence
    assert session.kinds() == ["ready"]
    await session.text(0, "Yes, it is ready.")
    assert (await session.until("need_text")).fields["text_seq"] == 1
    heard = len(session.audio)
    assert heard > 0
    assert (await session.until("ping")).fields["text_seq"] == 1
    assert session.count("need_text") == 1
    assert len(session.audio) == heard
    await session.text(1, " Please ")
    assert (await session.until("need_text")).fields["text_seq"] == 2
    assert len(session.audio) > heard
    await session.say("finish", seq=2)
    usage = (await session.to_end())["usage"]
    assert session.count("need_text") == 2
    assert usage["words"] == 5
    assert usage["stalled_ms"] > 900
    session.sample_count()


async def test_text_that_holds_no_word_yet_does_not_end_a_stall(home: House) -> None:
    session = await home.session({})
    await session.text(0, "Good morning to")
    await session.until("need_text")
    await session.text(1, " ")  # "to" is whole, but its look-ahead word is missing
    assert (await session.until("need_text")).fields["text_seq"] == 2
    await session.text(2, "12")  # held: it may go on
    await session.say("ping")
    assert (await session.until("ping", "audio")).kind == "ping"
    await session.text(3, "0 people. And ")
    await session.until("audio")
    await session.say("finish", seq=4)
    await session.to_end()


@pytest.mark.parametrize("message", ["flush", "finish"])
async def test_flush_and_finish_start_the_tail_at_once(home: House, message: str) -> None:
    """Case C14: nothing else has to come, neither text nor time."""
    session = await home.session({})
    await session.text(0, "Yes, it is ready.")
    await session.until("need_text")
    await session.say(message, seq=1)
    assert (await session.next()).kind == "audio"
    done = await session.until("flushed" if message == "flush" else "end")
    if message == "flush":
        await session.say("finish", seq=1)
        done = await session.until("end")
    assert done.fields["usage"]["words"] == 4


async def test_flushed_tells_how_much_was_sent(home: House) -> None:
    firsts = []
    for rate in (24_000, 16_000):
        options = {"pace": "fast", "seed": 18, "format": {"encoding": "pcm_s16le", "sample_rate": rate}}
        session = await home.session(options)
        await session.text(0, "Good morning.")
        await session.say("flush", seq=1)
        flushed = await session.until("flushed")
        assert flushed.fields == {"type": "flushed", "text_seq": 1, "pts": session.sample_count()}
        firsts.append(session.sample_count())
        if rate == 24_000:
            await session.say("cancel")
            await session.to_end()
    first = firsts[1]
    assert first == round(firsts[0] * 16 / 24) > 8_000, "the resampler's tail is out too"
    await session.text(1, "And good evening.")
    await session.say("flush", seq=2)
    await session.say("flush", seq=2)  # nothing is left to speak
    for _ in range(2):
        flushed = await session.until("flushed")
        assert flushed.fields == {"type": "flushed", "text_seq": 2, "pts": session.sample_count()}
    assert session.sample_count() > first
    await session.say("finish", seq=2)
    end = await session.to_end()
    assert end["usage"]["words"] == 5
    assert end["usage"]["audio_ms"] == session.sample_count() / 16


async def test_text_after_a_flush_waits_its_turn(home: House) -> None:
    """All at once: what comes out does not depend on when it came in."""
    takes = []
    for at_once in (True, False):
        session = await home.session({"pace": "fast", "seed": 14})
        for seq, delta in enumerate(("One moment.", "Here it is.")):
            await session.text(seq, delta)
            await session.say("flush", seq=seq + 1)
            if not at_once:
                await session.until("flushed")
        await session.say("finish", seq=2)
        await session.to_end()
        assert session.count("flushed") == 2
        takes.append(session.pcm)
    assert takes[0] == takes[1]


async def test_a_gap_is_told_once_and_mended_by_sending_again(home: House) -> None:
    deltas = ["One ", "two ", "three ", "four."]
    session = await home.session({"seed": 15, "pace": "fast"})
    await session.text(0, deltas[0])
    await session.text(2, deltas[2])
    error = (await session.until("error")).fields
    assert (error["code"], error["retryable"], error["detail"]) == ("text_gap", True, {"expected": 1})
    await session.text(3, deltas[3])
    await session.say("flush", seq=4)
    await session.say("finish", seq=4)
    await session.say("ping")
    assert (await session.until("ping")).fields["text_seq"] == 1
    assert session.count("error") == 1
    for seq in (1, 2, 3):
        await session.text(seq, deltas[seq])
    await session.say("finish", seq=4)
    await session.to_end()
    assert session.pcm == (await home.spoken("".join(deltas), seed=15)).pcm
    assert session.count("error") == 1
    assert session.count("flushed") == 0


async def test_a_lost_last_delta_is_seen_by_finish(home: House) -> None:
    session = await home.session({"pace": "fast"})
    await session.text(0, "One ")
    await session.say("finish", seq=2)
    assert (await session.until("error")).fields["detail"] == {"expected": 1}
    await session.text(1, "two.")
    await session.say("finish", seq=2)
    assert (await session.to_end())["usage"]["words"] == 2


async def test_duplicates_are_ignored(home: House) -> None:
    session = await home.session({"seed": 16, "pace": "fast"})
    for seq in (0, 0, 1, 0, 1, 2, 1):
        await session.text(seq, ["One ", "two ", "three."][seq])
    await session.say("finish", seq=3)
    await session.to_end()
    assert session.pcm == (await home.spoken("One two three.", seed=16)).pcm
    assert session.count("error") == 0


async def test_text_of_the_open_takes_no_number(home: House) -> None:
    session = await home.session({"seed": 17, "text": "One ", "pace": "fast"})
    await session.text(0, "two.")
    await session.say("finish", seq=1)
    await session.to_end()
    assert session.pcm == (await home.spoken("One two.", seed=17)).pcm


async def test_text_after_finish_is_refused(home: House) -> None:
    session = await home.session({"text": "One moment, please, I will look.", "final": True})
    await session.text(0, " And more.")
    assert (await session.until("error")).fields["code"] == "bad_request"
    end = await session.to_end()
    assert end["reason"] == "finished"
    assert end["usage"]["words"] == 6


async def test_text_beyond_the_buffer_is_not_taken_and_may_come_again() -> None:
    settings = live_settings(worker=WorkerSettings(buffer_chars=60, text_chars=40))
    async with house(settings) as home:
        session = await home.session({"credit_ms": 0, "pace": "fast"})
        assert session.ready["limits"]["buffer_chars"] == 60
        assert session.ready["limits"]["text_chars"] == 40
        for seq in range(2):
            await session.text(seq, "We had some rain there. ")
        await session.text(2, "We had some rain there. ")
        error = (await session.until("error")).fields
        assert (error["code"], error["retryable"]) == ("too_large", True)
        assert error["detail"] == {"field": "text", "limit": 60}
        await session.text(3, "later")
        assert (await session.until("error")).fields["detail"] == {"expected": 2}
        await session.text(2, "x" * 41)
        error = (await session.until("error")).fields
        assert (error["code"], error["retryable"]) == ("too_large", False)
        await session.say("credit", ms=60_000)
        assert (await session.until("need_text")).fields["text_seq"] == 2
        await session.text(2, "We had some rain there. ")
        await session.say("finish", seq=3)
        assert (await session.to_end())["usage"]["words"] == 15


async def test_a_session_takes_more_text_than_its_buffer_holds_at_once() -> None:
    async with house(live_settings(worker=WorkerSettings(buffer_chars=60))) as home:
        session: Session = await home.session({"pace": "fast"})
        refused = 0
        for seq in range(6):
            while True:
                seen = session.count("error")
                await session.text(seq, "Good morning to you. ")
                await session.say("ping")
                await session.until("ping")
                if session.count("error") == seen:
                    break
                refused += 1
        await session.say("finish", seq=6)
        usage = (await session.to_end())["usage"]
        assert refused > 0
        assert usage["words"] == 24
        assert usage["characters"] == 6 * len("Good morning to you. ")
