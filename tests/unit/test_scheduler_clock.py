from __future__ import annotations

import math
import threading

import pytest

from scheduler.clock import Beat, FakeClock, SystemClock


def test_booked_calls_happen_in_order_at_their_times() -> None:
    clock = FakeClock(10.0)
    seen: list[tuple[str, float]] = []
    clock.at(12.0, lambda: seen.append(("late", clock.now())))
    clock.at(11.0, lambda: seen.append(("early", clock.now())))
    clock.at(11.0, lambda: seen.append(("early too", clock.now())))
    clock.advance(1.5)
    assert seen == [("early", 11.0), ("early too", 11.0)]
    assert clock.now() == 11.5
    clock.advance(1.5)
    assert seen[-1] == ("late", 12.0)


def test_waiting_on_the_fake_clock_jumps_to_the_time_or_stops_at_the_event() -> None:
    clock, event = FakeClock(), threading.Event()
    clock.wait(event, 3.0)
    assert clock.now() == 3.0
    clock.at(4.0, event.set)
    clock.wait(event, 9.0)
    assert clock.now() == 4.0
    clock.wait(event, 9.0)
    assert clock.now() == 4.0, "an event that is set ends the wait at once"


def test_waiting_without_a_time_limit_needs_something_to_wait_for() -> None:
    clock, event = FakeClock(), threading.Event()
    with pytest.raises(RuntimeError):
        clock.wait(event, math.inf)
    clock.at(5.0, event.set)
    clock.wait(event, math.inf)
    assert clock.now() == 5.0


def test_the_system_clock_wakes_at_the_event_and_does_not_wait_for_the_past() -> None:
    clock, event = SystemClock(), threading.Event()
    clock.wait(event, clock.now() - 1.0)
    threading.Thread(target=event.set).start()
    clock.wait(event, math.inf)
    assert event.is_set()


def test_beats_bracket_every_time() -> None:
    beat = Beat(1000.3, 0.08)
    for index in (0, 1, 7, 12_345, 10_000_000):
        on = beat.at(index)
        assert beat.index(on) == index
        assert beat.ceil(on) == on
        assert beat.after(on) == beat.at(index + 1)
        assert beat.index(on + 0.079) == index
        assert beat.ceil(on + 0.001) == beat.at(index + 1)
        assert beat.index(on - 0.001) == index - 1


def test_a_divided_beat_shares_the_beats_of_the_whole() -> None:
    beat = Beat(3.0, 0.08)
    assert beat.divided(4).at(8) == pytest.approx(beat.at(2))
    assert beat.divided(2).after(beat.at(2)) == pytest.approx(beat.at(2) + 0.04)
