"""Text that comes in pieces, by name: where a delta may end, what a flush speaks, what a stall costs.

The real voice where the sound matters, an engine without one where steps are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from engine.contract import SlotFrame
from engine.fake import FakeEngine
from tests.integration.live import House, house, live_settings

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Counted(FakeEngine):
    """Tells steps that did something from those that found no word."""

    def __init__(self) -> None:
        super().__init__(4)
        self.committed = 0

    def collect(self, ticket: object) -> Sequence[SlotFrame]:
        frames = super().collect(ticket)
        self.committed += sum(frame.committed for frame in frames)
        return frames


CUTS = {
    "word": ("Good mor", "ning."),
    "number": ("Order 12", "345 now."),
    "money": ("Pay $1", "2.50 now."),
    "thousands": ("Pay $1,", "204.50 now."),
    "date": ("On 3/14", "/2027 then."),
    "expression": ("Pay $2.5 ", "million now."),
    "abbreviation": ("Ask D", "r. Lee."),
    "address": ("See exam", "ple.com now."),
    "tag": ("Wait <bre", 'ak time="0.3s"/> here.'),
    "attribute": ('Wait <break time="0.', '3s"/> here.'),
    "pair": ("Yes \ud83d", "\ude42 please."),
    "accent": ("The cafe", "\u0301 is open."),
    "ellipsis": ("Wait..", ". what?"),
    "sentence": ("Order 12.", "Let me see."),
    "line": ("One.\r", "\nTwo."),
}


@pytest.fixture(scope="module")
def engine() -> Counted:
    return Counted()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def counted(engine: Counted) -> AsyncIterator[House]:
    async with house(live_settings(), load=lambda: engine) as one:
        yield one


@pytest.mark.parametrize("deltas", CUTS.values(), ids=CUTS)
async def test_a_delta_may_end_inside_anything(home: House, deltas: tuple[str, str]) -> None:
    """The speech is that of the text, and so are the figures; an empty delta is one too."""
    text = "".join(deltas).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    session = await home.session({"pace": "fast", "seed": 51, "text": deltas[0]})
    await session.text(0, "")
    await session.text(1, deltas[1])
    await session.say("finish", seq=2)
    whole, end = await asyncio.gather(home.spoken(text, seed=51), session.to_end())
    usage = end["usage"]
    assert session.pcm == whole.pcm
    assert usage["characters"] == len(text)
    assert usage["words"] == whole.events[-1].fields["usage"]["words"]


async def test_a_flush_speaks_to_the_last_sample_and_then_waits(home: House) -> None:
    """The look-ahead word and the delayed tail: byte for byte what the end of the text would have given."""
    for text in ("Yes, it is ready.", "Ready"):
        whole = await home.spoken(text, seed=52)
        session = await home.session({"pace": "fast", "seed": 52, "text": text})
        await session.say("flush")
        assert (await session.until("flushed")).fields["pts"] == whole.sample_count()
        assert session.pcm == whole.pcm
        await session.say("ping")
        await session.until("ping")
        assert session.kinds()[-1] == "flushed", "neither audio nor need_text"
        await session.say("flush")
        assert (await session.until("flushed")).fields["pts"] == whole.sample_count(), "nothing was left"
        await session.say("finish")
        usage = (await session.to_end())["usage"]
        assert session.pcm == whole.pcm
        assert usage["words"] == len(text.split())


async def test_a_stall_costs_no_step_and_changes_no_byte(counted: House, engine: Counted) -> None:
    """Each word comes when the one before it has run out: need_text once, no step meanwhile, and the same audio."""
    text = ["Nobody ", "said ", "a ", "word ", "until ", "then."]
    before = engine.committed
    whole = await counted.spoken("".join(text), seed=53)
    cost = engine.committed - before
    session = await counted.session({"pace": "fast", "seed": 53})
    before = engine.committed
    for seq, word in enumerate(text):
        await session.text(seq, word)
        if seq < len(text) - 1:
            assert (await session.until("need_text")).fields["text_seq"] == seq + 1
            at_rest = len(engine.stepped)
            for _ in range(3):
                await session.say("ping")
                await session.until("ping")
            assert len(engine.stepped) == at_rest, "the step that found no word was the last"
    await session.say("finish", seq=len(text))
    usage = (await session.to_end())["usage"]
    assert session.count("need_text") == len(text) - 1
    assert engine.committed - before == cost
    assert session.pcm == whole.pcm
    assert (usage["words"], usage["characters"]) == (len(text), len("".join(text)))


async def test_case_c16_a_word_of_600_digits_is_spoken_to_its_end(counted: House) -> None:
    """devnen/Chatterbox-TTS-Server#144: every digit once; marks part by part, in order."""
    digits = "0123456789abcdef" * 37 + "0a1b2c3d"
    session = await counted.session({"text": digits, "final": True, "pace": "fast", "marks": True})
    usage = (await session.to_end())["usage"]
    assert (usage["words"], usage["characters"]) == (600, 600)
    marks = [event.fields for event in session.events if event.kind == "mark"]
    assert "".join(mark["word"] for mark in marks) == digits
    assert [mark["offset"] for mark in marks] == [0, 200, 400]
    # The engine without a voice begins a word every four frames.
    assert [mark["start_ms"] for mark in marks] == [80.0, 80.0 + 200 * 320, 80.0 + 400 * 320]


async def test_case_c16_commas_only(counted: House) -> None:
    """kyutai-labs/pocket-tts#38: 120 words, each once and in its place."""
    text = ", ".join(f"clause {name}" for name in ("one", "two", "three", "four") * 15)
    session = await counted.session({"text": text, "final": True, "pace": "fast", "marks": True})
    assert (await session.to_end())["usage"]["words"] == 120
    marks = [event.fields for event in session.events if event.kind == "mark"]
    assert " ".join(mark["word"] for mark in marks) == text
    assert [mark["start_ms"] for mark in marks] == [80.0 + 320 * number for number in range(120)]


@pytest.mark.long
async def test_case_c16_the_voice_speaks_600_digits_to_their_end(home: House) -> None:
    session = await home.spoken("0123456789abcdef" * 37 + "0a1b2c3d", seed=54)
    usage = session.events[-1].fields["usage"]
    assert usage["words"] == 600
    assert 600 * 160 < usage["audio_ms"] < 600 * 720
