"""Malformed requests by the hundred, floods of them, and a live session beside them that notices nothing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

import msgpack
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.integration.live import JSON, MSGPACK, Heard, House, OpenRefused, Session, eventually, house, live_settings
from tests.property.malformed import Malformed, malformed_inputs, malformed_opens
from worker.errors import ERROR_CODES

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "We looked at the old map together, and then we walked down to the river before the rain began."
OPENS, INPUTS = 320, 180
TYPED = frozenset(ERROR_CODES) - {"internal", "no_capacity", "model_failure", "over_limit", "text_gap", "no_session"}
"""What is wrong with a malformed request; the others are faults of ours."""
FLOOD_S = 3.0
BATCH, EVERY_S = 10, 0.01
RETRIES, OPEN_TIMEOUT_S = 2, 0.3

T = TypeVar("T")

HUGE = [
    Malformed({}, b"a" * 1_000_000),
    Malformed({}, b"word " * 200_000),
    Malformed({"Content-Type": MSGPACK}, msgpack.packb({"text": "a" * 1_040_000})),
    Malformed({"Content-Type": JSON}, b'{"text":"' + b"\\u00e9" * 170_000 + b'"}'),
    Malformed({"Content-Type": JSON}, b'{"session":"' + b"x" * 1_000_000 + b'"}'),
    Malformed({"Content-Type": JSON}, b"[" * 1_040_000),
    Malformed({"Content-Type": MSGPACK}, b"\x81" * 1_040_000),
    Malformed({"Content-Type": "x" * 3_000}, b'{"text":"a"}'),
]
"""Close to what the server lets through: 1 MiB with the headers."""


def examples(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """The same ones in every run."""
    found: list[T] = []

    @settings(
        max_examples=count,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found


async def all_refused(home: House, opens: Sequence[Malformed]) -> Counter[str]:
    """Send each to ``open`` with an inbox of its own, which must get one ``error`` and nothing else."""
    client = await home.client()
    codes: Counter[str] = Counter()
    answered: list[Session] = []
    for malformed in opens:
        session = Session(client, pool=home.pool)
        while True:
            await session.ask(malformed.body, malformed.headers)
            first = await session.next()
            if first.kind != "status 503":
                break
            await session.deafen()
            session = Session(client, pool=home.pool)
            await asyncio.sleep(0.01)
        assert first.kind == "error", malformed
        codes[first.fields["code"]] += 1
        answered.append(session)
    await home.spoken("Good morning.")  # whatever was to come after the errors has come
    for session in answered:
        assert len(session.events) == 1
        await session.deafen()
    return codes


async def all_errors(home: House, inputs: Sequence[Malformed]) -> Counter[str]:
    """Send each to a live session, which must get one ``error`` for each and go on."""
    session = await home.session({"text": "Good "})
    codes: Counter[str] = Counter()
    for malformed in inputs:
        await session.client.publish(session.ready["input"], malformed.body, headers=malformed.headers or None)
        await session.say("ping")
        codes[(await session.until("error")).fields["code"]] += 1
        assert (await session.until("ping")).fields["text_seq"] == 0
        assert session.count("error") == codes.total(), malformed
    await session.text(0, "morning.")
    await session.say("finish", seq=1)
    usage = (await session.to_end())["usage"]
    assert (usage["characters"], usage["words"]) == (len("Good morning."), 2)
    return codes


async def test_malformed_requests_get_one_typed_error_each_and_harm_nobody(home: House) -> None:
    """Must-show 8."""
    undisturbed = await home.spoken(TEXT, seed=41)
    opens, inputs = [*examples(malformed_opens(), OPENS), *HUGE], examples(malformed_inputs(), INPUTS)
    assert len(opens) + len(inputs) >= 500
    over = asyncio.Event()

    async def speak_on() -> list[Session]:
        beside = []
        while not over.is_set():
            session = await home.session({"text": TEXT, "final": True, "seed": 41})
            await session.to_end()
            beside.append(session)
        return beside

    beside = asyncio.create_task(speak_on())
    codes = await all_refused(home, opens) + await all_errors(home, inputs)
    over.set()
    assert set(codes) <= TYPED, codes
    assert {"bad_request", "unknown_field", "too_large", "unsupported_format"} <= set(codes)
    for session in await beside:
        assert session.kinds() == ["ready", "audio", "end"]
        session.sample_count()
        assert session.pcm == undisturbed.pcm
    await home.empty()


async def test_every_kind_of_huge_body_is_refused_on_a_sessions_subject_too(home: House) -> None:
    codes = await all_errors(home, HUGE)
    assert set(codes) <= {"bad_request", "too_large", "unknown_field"}


async def test_good_opens_are_served_beside_a_flood_of_bad_ones() -> None:
    """Must-show 10: one slot, a thousand bad opens a second. A good open that finds no token tries again, at most
    twice and after a random while, as the wire contract's clients do."""
    async with house(live_settings(slots=1)) as home:
        bad = [malformed for malformed in examples(malformed_opens(), 40) if len(malformed.body) < 1_000]
        flood = Flood(await home.client(), f"tts.v1.default.open.{home.pool}", bad)
        flooding = asyncio.create_task(flood.run())
        client, attempts = await home.client(), Counter[int]()
        begun = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() - begun < FLOOD_S:
            attempts[await served(home, client)] += 1
        flood.over.set()
        await flooding
        await eventually(lambda: flood.answers.total() == flood.sent)
        assert set(flood.answers) <= {"error", "status 503"}, flood.answers
        assert flood.answers["error"] > 100
        assert attempts.total() > 1
        assert max(attempts) <= 1 + RETRIES, attempts
        await home.spoken("Good morning.")


class Flood:
    """Bad opens, a thousand a second, until it is ``over``."""

    def __init__(self, client: Client, subject: str, bad: Sequence[Malformed]) -> None:
        self._client, self._subject, self._bad = client, subject, bad
        self.over = asyncio.Event()
        self.sent = 0
        self.answers: Counter[str] = Counter()

    async def run(self) -> None:
        inbox, loop = self._client.new_inbox(), asyncio.get_running_loop()
        await self._client.subscribe(inbox, cb=self._count)
        begun = loop.time()
        while not self.over.is_set():
            for malformed in (self._bad[(self.sent + n) % len(self._bad)] for n in range(BATCH)):
                await self._client.publish(self._subject, malformed.body, inbox, malformed.headers or None)
            self.sent += BATCH
            await asyncio.sleep(max(0.0, begun + self.sent / BATCH * EVERY_S - loop.time()))

    async def _count(self, message: Msg) -> None:
        self.answers[Heard.of(message).kind] += 1


async def served(home: House, client: Client) -> int:
    """Open, speak and end one session; the number of attempts it took."""
    rng = random.Random(0)
    for attempt in range(1, 10):
        session = Session(client, pool=home.pool)
        with suppress(OpenRefused):
            await session.open({"text": "Yes.", "final": True, "pace": "fast"})
            assert (await session.to_end())["reason"] == "finished"
            await session.deafen()
            await home.empty()
            return attempt
        await session.deafen()
        await asyncio.sleep(rng.uniform(0.05, OPEN_TIMEOUT_S))
    return 10
