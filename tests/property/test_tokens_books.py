"""The books of the slot tokens balance under any order of opens, refusals and changes of the target."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.bus import Handler, Message
from worker.connection import Hook
from worker.tokens import FLOOD_WINDOW_S, SPARE_LIMIT, SlotTokens

OPEN = Message("tts.v1.default.open.std", "_INBOX.a", b"", {})


class FakeToken:
    def __init__(self, deliver: Handler) -> None:
        self.deliver = deliver
        self.drained = asyncio.Event()
        self.draining = False

    async def drain(self) -> None:
        self.draining = True
        await self.drained.wait()


class FakeBus:
    """Tokens that deliver when told, and drain when told."""

    def __init__(self) -> None:
        self.tokens: list[FakeToken] = []
        self.hooks: list[Hook] = []

    def subscribe(self, subject: str, handler: Handler, *, queue: str = "", once: bool = False) -> FakeToken:
        assert once
        assert queue
        self.tokens.append(FakeToken(handler))
        return self.tokens[-1]

    def on_online(self, hook: Hook) -> None:
        self.hooks.append(hook)

    def deliver(self, which: int) -> bool:
        """To a token that is still there, draining ones too."""
        if not self.tokens:
            return False
        token = self.tokens.pop(which % len(self.tokens))
        token.drained.set()
        token.deliver(OPEN)
        return True


Verdict = Literal["take", "refuse", "late", "crash"]
Step = tuple[Verdict, int] | tuple[Literal["target"], int]
verdicts: st.SearchStrategy[Verdict] = st.sampled_from(["take", "refuse", "late", "crash"])
steps = st.lists(
    st.tuples(verdicts, st.integers(0, 1000)) | st.tuples(st.just("target"), st.integers(-2, 20)), max_size=40
)


class Ledger:
    def __init__(self, bus: FakeBus) -> None:
        self.now = 0.0
        self.bus = bus
        self.verdict: Verdict = "take"
        self.expected = 0
        self.refused = 0
        self.tokens = SlotTokens(bus, "tts.v1.*.open.std", "tts", self.on_open, clock=lambda: self.now)

    def on_open(self, _: Message) -> None:
        actions: dict[Verdict, Callable[[], None]] = {
            "take": lambda: None,
            "refuse": self.tokens.refuse,
            "late": self.tokens.give_back,
            "crash": self.crash,
        }
        self.refused += self.verdict == "refuse"
        actions[self.verdict]()

    def crash(self) -> None:
        raise RuntimeError

    def apply(self, step: Step) -> None:
        kind, number = step
        if kind == "target":
            self.expected = number
            self.tokens.set_target(number)
            return
        self.verdict = kind
        try:
            delivered = self.bus.deliver(number)
        except RuntimeError:
            return
        self.expected -= delivered and kind == "take"


@settings(deadline=None)
@given(steps)
def test_the_books_balance(sequence: list[Step]) -> None:
    async def run() -> None:
        ledger = Ledger(FakeBus())
        for step in sequence:
            ledger.apply(step)
            await asyncio.sleep(0)  # lets drains begin
            free = max(0, ledger.expected)
            assert ledger.tokens.target == free
            spare = min(SPARE_LIMIT, max(0, ledger.refused - 1)) if free else 0
            assert ledger.tokens.armed == free + spare
            assert ledger.tokens.armed == sum(not token.draining for token in ledger.bus.tokens)
        closing = asyncio.create_task(ledger.tokens.aclose())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert all(token.draining for token in ledger.bus.tokens)
        assert closing.done() == (not ledger.bus.tokens)
        for token in ledger.bus.tokens:
            token.drained.set()
        await closing
        ledger.tokens.set_target(5)
        assert ledger.tokens.armed == 0

    asyncio.run(run())


@pytest.mark.parametrize("bad", [1, 2, 10, 100])
async def test_spare_tokens_cover_a_flood_and_go_with_it(bad: int) -> None:
    ledger = Ledger(FakeBus())
    ledger.tokens.set_target(1)
    for _ in range(bad):
        ledger.apply(("refuse", 0))
    assert ledger.tokens.armed == 1 + min(SPARE_LIMIT, bad - 1)
    ledger.apply(("take", 0))
    assert ledger.tokens.armed == 0, "no slot, no tokens, flood or not"
    ledger.tokens.set_target(1)
    assert ledger.tokens.armed == 1 + min(SPARE_LIMIT, bad - 1)
    ledger.now += FLOOD_WINDOW_S
    async with asyncio.timeout(10):
        while ledger.tokens.armed > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    for token in ledger.bus.tokens:
        token.drained.set()
    await ledger.tokens.aclose()


async def test_a_refused_request_has_its_token_back_before_it_is_answered() -> None:
    bus = FakeBus()
    seen: list[int] = []

    def on_open(_: Message) -> None:
        seen.append(tokens.armed)
        tokens.refuse()
        seen.append(tokens.armed)

    tokens = SlotTokens(bus, "s", "q", on_open)
    tokens.set_target(2)
    bus.deliver(0)
    assert seen == [1, 2]
    for token in bus.tokens:
        token.drained.set()
    await tokens.aclose()
