"""The loop on its own thread and the machine's clock."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from engine.fake import FakeEngine
from scheduler.clock import SystemClock
from scheduler.loop import StepLoop
from scheduler.messages import Cancel, Cancelled, Ended, Event, Finish, Frame, Open, Pace, Push, StepReport
from tests.scheduler_room import WORD, options


class Listener:
    """Collects events; whoever waits for a session's last one sleeps on a condition."""

    def __init__(self) -> None:
        self.events: dict[str, list[Event]] = {}
        self._changed = threading.Condition()

    def deliver(self, events: Sequence[Event]) -> None:
        with self._changed:
            for event in events:
                if not isinstance(event, StepReport):
                    self.events.setdefault(event.session, []).append(event)
            self._changed.notify_all()

    def wait_for_last(self, session: str, kind: type[Event]) -> list[Event]:
        with self._changed:
            assert self._changed.wait_for(lambda: isinstance(self.events.get(session, [None])[-1], kind), timeout=60)
            return self.events[session]

    def wait_for_any(self, session: str, kind: type[Event]) -> None:
        with self._changed:
            assert self._changed.wait_for(
                lambda: any(isinstance(event, kind) for event in self.events.get(session, [])), timeout=60
            )


@pytest.fixture(params=[0, 1])
def running(request: pytest.FixtureRequest) -> Iterator[tuple[StepLoop, Listener]]:
    listener = Listener()
    loop = StepLoop(FakeEngine(64, run_ahead=request.param), SystemClock(), listener.deliver)
    thread = threading.Thread(target=loop.run)
    thread.start()
    yield loop, listener
    loop.stop()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert loop.active == 0


def test_sessions_from_several_threads_are_all_spoken(running: tuple[StepLoop, Listener]) -> None:
    loop, listener = running

    def caller(number: int) -> None:
        for turn in range(4):
            name = f"{number}.{turn}"
            loop.submit(Open(name, options(seed=number), Pace.FAST))
            for _ in range(5):
                loop.submit(Push(name, 0, (WORD,)))
            loop.submit(Finish(name, 0))
            assert loop.limit >= 1

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(8):
        for turn in range(4):
            events = listener.wait_for_last(f"{number}.{turn}", Ended)
            frames = [event.frame for event in events if isinstance(event, Frame)]
            assert [frame.step for frame in frames] == list(range(1, len(frames) + 1))
            assert sum(frame.word for frame in frames) == 5


def test_a_sleeping_loop_wakes_for_a_command(running: tuple[StepLoop, Listener]) -> None:
    loop, listener = running
    for name in ("a", "b"):
        loop.submit(Open(name, options()))
        loop.submit(Push(name, 0, (WORD,) * 50))
        listener.wait_for_any(name, Frame)
        loop.submit(Cancel(name))
        assert listener.wait_for_last(name, Cancelled)


def test_a_live_session_is_paced_by_the_clock(running: tuple[StepLoop, Listener]) -> None:
    """Twelve frames and more cannot all be out before the twelfth minus the lead is due."""
    loop, listener = running
    clock = SystemClock()
    loop.submit(Open("a", options(), lead_ms=240.0))
    loop.submit(Push("a", 0, (WORD,) * 2))
    loop.submit(Finish("a", 0))
    start = clock.now()
    events = listener.wait_for_last("a", Ended)
    audio = sum(bool(event.frame.pcm) for event in events if isinstance(event, Frame))
    assert clock.now() - start >= 0.080 * audio - 0.240
