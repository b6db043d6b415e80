"""What a session says is its own, whoever is there beside it (must-show 6, over the line; case C25)."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.integration.live import House, Session

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "We looked at the old map together, and then we walked down to the river before the rain began."
WORDS = ("well", "then", "the", "rain", "fell", "on", "our", "boat", "and", "nobody", "knew", "a", "way", "home")
OTHERS = 15


async def be_a_neighbour(home: House, rng: random.Random, over: asyncio.Event) -> int:
    """Open, speak, stall, flush, barge in, cancel, finish or leave, at random, until it is over; sessions opened."""
    opened = 0
    while not over.is_set():
        options = {"pace": rng.choice(["live", "fast"]), "seed": rng.getrandbits(53), "temperature": rng.random()}
        session = await home.session({**options, "text": " ".join(rng.sample(WORDS, rng.randint(0, 6))) + " "})
        opened += 1
        for _ in range(rng.randint(0, 4)):
            await act(session, rng)
        if rng.random() < 0.3:
            await session.say("finish")
        else:
            await session.say("cancel")
        await session.to_end()
        await session.deafen()
    return opened


async def act(session: Session, rng: random.Random) -> None:
    match rng.choice(["text", "text", "flush", "barge in", "listen"]):
        case "text":
            await session.client.publish(session.ready["input"], (" ".join(rng.sample(WORDS, 3)) + " ").encode())
        case "flush":
            await session.say("flush")
        case "barge in":
            await session.say("cancel", keep=True)
            await session.client.publish(session.ready["input"], b"never mind then ")
        case "listen":
            await session.until("ping", "audio", "need_text", "flushed", "cancelled")


async def test_a_session_is_the_same_alone_and_in_company(home: House) -> None:
    """Same seed, same samples: alone, and beside 15 others that join, stall, cancel and leave; live and fast."""
    alone = await home.spoken(TEXT, seed=51)
    over = asyncio.Event()
    others = [asyncio.create_task(be_a_neighbour(home, random.Random(n), over)) for n in range(OTHERS)]
    takes = [
        await home.session({"text": TEXT, "final": True, "seed": 51, "pace": pace}) for pace in ("fast", "live", "live")
    ]
    await asyncio.gather(*(session.to_end() for session in takes))
    over.set()
    opened = await asyncio.gather(*others)
    assert sum(opened) > OTHERS, "some have left and others joined"
    for session in takes:
        session.sample_count()
        assert session.kinds() == ["ready", "audio", "end"]
        assert session.pcm == alone.pcm
    await home.empty()
