"""When a session is held, what waits meanwhile, and when it is given up. Time is a fake clock's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from scheduler.clock import FakeClock
from tests.stage import ClockedLoop
from worker.audience import ASK_EVERY_S, GONE_AFTER_S, OFFLINE_FOR_S, Audience
from worker.bus import Bus, ReplyWatch
from worker.connection import Hook
from worker.route import KEPT_BYTES, Route
from worker.wire.codec import Packet


class Lines(Bus):
    """A bus whose server is a list, and whose callers are the test."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.here = True
        self.ears: dict[str, Hook] = {}
        self.questions: list[Hook] = []

    @property
    def connected(self) -> bool:
        return self.here

    def publish(self, subject: str, payload: bytes = b"", **options: Any) -> bool:
        self.said.append(payload.decode() + ("?" if options.get("reply") else ""))
        return True

    def watch(self, unheard: Hook, *, went: Hook = lambda: None, came: Hook = lambda: None) -> ReplyWatch:
        self.ears = {"unheard": unheard, "went": went, "came": came}
        self._inbox, self._watches = "inbox", {}
        return ReplyWatch(self, "1", unheard, went, came)

    def confirm(self, hook: Hook) -> None:
        self.questions.append(hook)


class Play:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.bus = Lines()
        self.route = Route(self.bus, "out")
        self.told: list[str] = []
        self.audience = Audience(
            self.route,
            hold=lambda: self.told.append("hold"),
            resume=lambda: self.told.append("resume"),
            probe=lambda answered: self.route.ask(Packet(b"ping", {}), answered),
            gone=lambda: self.told.append("gone"),
        )
        self.audience.attend()

    def say(self, text: str, *, droppable: bool = False) -> bool:
        return self.route.send(Packet(text.encode(), {}), droppable=droppable)

    def answer(self, *, unheard: bool = False) -> None:
        """To the oldest question."""
        if unheard:
            self.bus.ears["unheard"]()
        self.bus.questions.pop(0)()

    def lose_server(self) -> None:
        self.bus.here = False
        self.bus.ears["went"]()
        self.bus.questions.clear()

    def find_server(self) -> None:
        self.bus.here = True
        self.bus.ears["came"]()

    async def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def perform(play: Callable[[Play], Coroutine[Any, Any, None]]) -> None:
    clock = FakeClock(100.0)

    async def run() -> None:
        await play(Play(clock))

    with asyncio.Runner(loop_factory=lambda: ClockedLoop(clock)) as runner:
        runner.run(run())


def test_what_nobody_hears_waits_and_comes_in_order() -> None:
    async def play(one: Play) -> None:
        one.say("a")
        one.bus.ears["unheard"]()
        assert one.told == ["hold"]
        one.say("b")
        one.say("c", droppable=True)
        await one.wait(ASK_EVERY_S)
        one.answer(unheard=True)
        await one.wait(ASK_EVERY_S)
        assert one.bus.said == ["a", "ping?", "ping?"]
        one.answer()
        one.say("d")
        assert one.bus.said == ["a", "ping?", "ping?", "b", "c", "d"]
        assert one.told == ["hold", "resume"]

    perform(play)


def test_it_is_given_up_when_nobody_comes() -> None:
    async def play(one: Play) -> None:
        one.bus.ears["unheard"]()
        asked = 0
        while "gone" not in one.told:
            await one.wait(ASK_EVERY_S)
            one.answer(unheard=True)
            asked += 1
        assert asked == GONE_AFTER_S / ASK_EVERY_S
        one.say("end")
        one.audience.leave()
        assert one.bus.said[-1] == "end", "somebody may keep it"

    perform(play)


def test_a_503_that_comes_late_counts_for_the_question_it_answers() -> None:
    async def play(one: Play) -> None:
        one.bus.ears["unheard"]()
        one.bus.ears["unheard"]()
        await one.wait(ASK_EVERY_S)
        await one.wait(10 * ASK_EVERY_S)
        assert len(one.bus.questions) == 1, "one at a time"
        one.answer()
        assert one.told == ["hold", "resume"]

    perform(play)


def test_the_server_is_lost_and_comes_back() -> None:
    """Listeners may take longer to come back than we do."""

    async def play(one: Play) -> None:
        one.bus.here = False
        assert one.say("before anybody was told")
        one.lose_server()
        assert one.audience.offline
        await one.wait(OFFLINE_FOR_S - 1.0)
        one.say("meanwhile")
        one.find_server()
        assert one.bus.said == ["ping?"]
        one.answer(unheard=True)
        await one.wait(ASK_EVERY_S)
        one.answer()
        assert one.bus.said == ["ping?", "ping?", "before anybody was told", "meanwhile"]
        assert one.told == ["hold", "resume"]

    perform(play)


def test_without_a_server_it_is_given_up_at_last() -> None:
    async def play(one: Play) -> None:
        one.lose_server()
        await one.wait(OFFLINE_FOR_S)
        assert one.told == ["hold", "gone"]
        one.find_server()
        assert one.bus.said == []

    perform(play)


def test_the_last_words_are_kept_for_who_comes_back() -> None:
    async def play(one: Play) -> None:
        one.lose_server()
        one.say("end")
        one.audience.leave()
        one.find_server()
        one.answer(unheard=True)
        await one.wait(ASK_EVERY_S)
        assert one.bus.said == ["ping?", "ping?"]
        one.answer()
        assert one.bus.said[-1] == "end"
        assert one.told == ["hold"], "its row is not there any more"

    perform(play)


def test_a_question_that_was_lost_with_the_server_answers_nothing() -> None:
    async def play(one: Play) -> None:
        one.bus.ears["unheard"]()
        await one.wait(ASK_EVERY_S)
        stale = one.bus.questions[0]
        one.lose_server()
        stale()
        assert one.audience.offline
        one.find_server()
        one.answer()
        assert one.told == ["hold", "resume"]

    perform(play)


def test_audio_that_waits_is_bounded_and_words_are_not() -> None:
    async def play(one: Play) -> None:
        one.bus.ears["unheard"]()
        frame = "x" * (KEPT_BYTES // 2)
        assert [one.say(frame, droppable=True) for _ in range(3)] == [True, True, False]
        assert one.say("end")
        await one.wait(ASK_EVERY_S)
        one.answer()
        assert one.bus.said == ["ping?", frame, frame, "end"]
        one.bus.ears["unheard"]()
        assert one.say(frame, droppable=True), "there is room again"

    perform(play)


def test_a_full_socket_holds_it_too_and_does_not_let_it_go_while_nobody_hears() -> None:
    async def play(one: Play) -> None:
        one.audience.hold()
        one.bus.ears["unheard"]()
        one.audience.resume()
        assert one.told == ["hold"]
        await one.wait(ASK_EVERY_S)
        one.answer()
        assert one.told == ["hold", "resume"]

    perform(play)
