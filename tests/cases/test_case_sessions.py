"""Cases C10 to C38 as far as live sessions go: small synthetic inputs from public reports, each with the right outcome.

C14 is in ``test_live_text``, C27 in ``test_live_cancel``, what takes a recogniser (C16, C18) in ``tests/speech``.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.integration.live import House, OpenRefused, Session, eventually
from worker.session import LiveSession

pytestmark = pytest.mark.asyncio(loop_scope="module")


# --- C10: odd inputs (coqui-ai/TTS#2385, rhasspy/piper#839, QwenAudio/CosyVoice#710, RHVoice/RHVoice#121) -------------


@pytest.mark.parametrize("text", ["Guys..", "Wait... what?"])
async def test_c10_odd_punctuation_is_short_speech(home: House, text: str) -> None:
    for seed in range(3):
        session = await home.spoken(text, seed=seed)
        usage = session.events[-1].fields["usage"]
        assert usage["words"] == len(text.split())
        assert 250 < usage["audio_ms"] < 1_000 + 900 * usage["words"]


@pytest.mark.parametrize("text", ["***", "\u2014", "  ", "\U0001f642\U0001f642", "", "...", "?!", "\u200b\u00ad"])
async def test_c10_what_holds_no_word_ends_without_a_sound(home: House, text: str) -> None:
    session = await home.session({"text": text, "final": True})
    end = await session.to_end()
    assert session.kinds() == ["ready", "end"]
    assert (end["reason"], end["usage"]["frames"], end["usage"]["words"]) == ("finished", 0, 0)
    await home.empty()


@pytest.mark.parametrize("text", ["***", "\u2014", "  ", "\U0001f642\U0001f642"])
async def test_c10_the_same_in_a_stream(home: House, text: str) -> None:
    session = await home.session({})
    await session.text(0, text)
    await session.say("flush", seq=1)
    assert (await session.until("flushed")).fields["pts"] == 0
    await session.say("finish", seq=1)
    await session.to_end()
    assert session.kinds() == ["ready", "flushed", "end"]


# --- C12: where deltas meet (pipecat-ai/pipecat#3242, #3203, livekit/agents-js#895) -----------------------------------


@pytest.mark.parametrize(
    ("deltas", "same_as"),
    [
        (("Order 12345.", "Let me check."), "Order one two three four five. Let me check."),
        (("See exam", "ple.com now."), "See example.com now."),
        (("(Say when.", ")"), "Say when."),
        (("(Say when.", ") Then go."), "Say when. Then go."),
    ],
)
async def test_c12_deltas_meet_as_the_text_does(home: House, deltas: tuple[str, ...], same_as: str) -> None:
    session = await home.session({"seed": 61, "pace": "fast"})
    for seq, delta in enumerate(deltas):
        await session.text(seq, delta)
    await session.say("finish", seq=len(deltas))
    await session.to_end()
    assert session.pcm == (await home.spoken(same_as, seed=61)).pcm


# --- C16: long words and dashes (kyutai-labs/pocket-tts#38, thrashr888/alchemy#11) ------------------------------------


async def test_c16_a_word_of_600_digits_starts_at_once_and_can_be_stopped(home: House) -> None:
    digits = "0123456789abcdef" * 38
    session = await home.session({"text": digits, "final": True, "credit_ms": 1_000})
    await session.until("audio")
    await session.say("cancel")
    cancelled = (await session.until("cancelled")).fields
    assert cancelled["spoken"] + cancelled["unspoken"] == digits
    assert (await session.to_end())["usage"]["words"] < 30
    await home.empty()


async def test_c16_a_dash_does_not_stop_a_page(home: House) -> None:
    page = "Down there.\n-In the tunnels (oh)-\nIt was dark."
    session = await home.spoken(page)
    assert session.events[-1].fields["usage"]["words"] == 9


# --- C25: whose audio is whose (KoljaB/RealtimeTTS#230, remsky/Kokoro-FastAPI#222) ------------------------------------

FADE_BYTES = 2 * 24_000 // 200
"""What a cancel cuts off is led to silence in 5 ms."""
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def own_words(number: int) -> str:
    word = NUMBERS[number % len(NUMBERS)]
    return f"My number is {word}, {word}." if number < len(NUMBERS) else f"Now {word} and {word}."


async def test_c25_every_session_gets_its_own_words(home: House) -> None:
    """16 at once, half of them cancelled midway and their slots filled again: whoever ends speaks as he does alone."""
    options: list[dict[str, Any]] = [{"text": own_words(n), "final": True, "seed": 700 + n} for n in range(24)]
    sessions = [
        await home.session({**chosen, "pace": "live" if n % 4 else "fast"}) for n, chosen in enumerate(options[:16])
    ]
    stopped, kept = sessions[::2], sessions[1::2]
    await asyncio.gather(*(session.until("audio") for session in stopped))
    await asyncio.gather(*(session.say("cancel") for session in stopped))
    await asyncio.gather(*(session.to_end() for session in stopped))
    refilled = [await home.session({**chosen, "pace": "fast"}) for chosen in options[16:]]
    await asyncio.gather(*(session.to_end() for session in (*kept, *refilled)))
    for session, chosen in zip((*kept, *refilled[:4]), (*options[1:16:2], *options[16:20]), strict=True):
        session.sample_count()
        alone = await home.spoken(chosen["text"], seed=chosen["seed"])
        assert session.pcm == alone.pcm
    for session, chosen in zip(stopped[:3], options[:6:2], strict=True):
        alone = await home.spoken(chosen["text"], seed=chosen["seed"])
        assert alone.pcm.startswith(session.pcm[:-FADE_BYTES])


# --- C28: nothing stays behind (kyutai-labs/pocket-tts#238, remsky/Kokoro-FastAPI#25, #453) ---------------------------


class Leftovers:
    """What a session might leave behind in the process."""

    def __init__(self, home: House) -> None:
        gc.collect()
        bus = home.service.bus
        self.counts = {
            "subscriptions": len(bus._subscriptions),
            "watches": len(bus._watches),
            "tasks": len(asyncio.all_tasks()),
            "open files": len(os.listdir("/proc/self/fd")),
            "free slots": home.service.desk._tokens.target,
            "rows": home.service.engine.loop.active,
            "sessions": sum(type(thing) is LiveSession for thing in gc.get_objects()),
        }
        self.resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def finished(home: House) -> None:
    session = await home.session({"text": "Good morning.", "final": True, "pace": "fast"})
    await session.to_end()
    await session.deafen()


async def cancelled(home: House) -> None:
    session = await home.session({"text": "Good morning to you."})
    await session.say("cancel")
    await session.to_end()
    await session.deafen()


async def forgotten(home: House) -> None:
    session = await home.session({"text": "Good morning ", "idle_timeout_s": 0.5})
    assert (await session.to_end())["reason"] == "idle"
    await session.deafen()


async def unheard(home: House) -> None:
    session = await home.session({"text": "Good morning to you. " * 9, "final": True})
    await session.deafen()


async def interrupted(home: House) -> None:
    session = await home.session({"pace": "fast"})
    for generation in range(10):
        await session.text(0, "Good morning to you, my friend. ", gen=generation)
        await session.say("cancel", gen=generation, keep=generation < 9)
    await session.to_end()
    await session.deafen()


ENDINGS: tuple[Callable[[House], Coroutine[Any, Any, None]], ...] = (
    finished,
    cancelled,
    forgotten,
    unheard,
    interrupted,
)


async def test_c28_sessions_leave_nothing_behind(home: House) -> None:
    """60 sessions, ended in every way that a session can; some before them, so that all is loaded that ever will be."""
    await asyncio.gather(*(end(home) for end in (finished, cancelled, forgotten, interrupted) * 4))
    await home.empty()
    before = Leftovers(home)
    assert before.counts["sessions"] == before.counts["watches"] == before.counts["rows"] == 0
    assert before.counts["free slots"] == 24
    await asyncio.gather(*(end(home) for end in ENDINGS * 12))
    await home.empty()
    await eventually(lambda: Leftovers(home).counts == before.counts)
    assert Leftovers(home).resident - before.resident < 16_000_000


# --- C38: names that reach for more (devnen/Chatterbox-TTS-Server#147) ------------------------------------------------


async def test_c38_a_voice_is_a_name_in_a_list(home: House) -> None:
    """The same answer whether or not there is such a file."""
    answers = []
    for voice in (
        "../../etc/hostname",
        "../../etc/no-such-file",
        "/dev/zero",
        "/",
        ".",
        "",
        "a\r\nX: y",
        "default\x7f",
    ):
        session = Session(await home.client(), pool=home.pool)
        await session.ask({"text": "Hello.", "final": True, "voice": voice})
        event = await session.next()
        answers.append((event.kind, event.headers, event.payload))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0] == "error"
    assert b'"voice_not_found"' in answers[0][2]


@pytest.mark.parametrize(
    "name", ["a.>", "a" * 15 + ".>", "*" * 16, "a b" * 6, "tts.v1.default.out", "\r\nPUB x 0\r\n" * 2]
)
async def test_c38_a_session_id_is_a_plain_token(home: House, name: str) -> None:
    with pytest.raises(OpenRefused) as refused:
        await home.session({"text": "Hello.", "session": name})
    assert refused.value.fields["detail"] == {"field": "session"}
    assert home.service.desk.sessions == 0
