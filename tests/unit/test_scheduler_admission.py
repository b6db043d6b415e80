from __future__ import annotations

import pytest

from engine.fake import FakeEngine
from scheduler.admission import Admission, warm_up
from scheduler.clock import FakeClock
from scheduler.costs import StepCosts, size_classes
from tests.scheduler_room import Room


def seeded(base: float, slope: float, capacity: int = 64) -> StepCosts:
    costs = StepCosts(capacity)
    for rows in size_classes(capacity):
        costs.frame.seed(rows, base + slope * rows)
        costs.text.seed(rows, 0.001)
    costs.refresh(0.0)
    return costs


@pytest.mark.parametrize(
    ("costs", "limit"),
    [
        (seeded(0.003, 0.0015), 35),  # 3 + 1.5 n <= 56
        (seeded(0.001, 0.0001), 64),  # the rows end first
        (seeded(0.100, 0.001), 1),  # too slow for one, and yet one is let in, or nothing would ever be measured
    ],
)
def test_as_many_live_sessions_as_fit_into_the_headroom(costs: StepCosts, limit: int) -> None:
    assert Admission(costs, 0.080, 0.7).limit() == limit


def warmed(base: float, slope: float, capacity: int) -> tuple[FakeEngine, StepCosts]:
    clock = FakeClock()

    def spend(text_rows: int, frame_rows: int) -> None:
        clock.advance(0.0005 * text_rows + (base + slope * frame_rows if frame_rows else 0.0))

    engine, costs = FakeEngine(capacity, spend=spend), StepCosts(capacity)
    warm_up(engine, clock, costs)
    return engine, costs


def test_warm_up_finds_the_true_costs_and_leaves_the_slots_empty() -> None:
    engine, costs = warmed(0.003, 0.0015, 32)
    for rows in range(1, 33):
        assert costs.frame.cost(rows) == pytest.approx(0.003 + 0.0015 * rows, rel=0.02)
        assert costs.text.cost(rows) == pytest.approx(0.0005 * rows, rel=0.02)
    assert engine.open_slots == []


def test_warm_up_does_not_go_where_admission_never_will() -> None:
    engine, costs = warmed(0.010, 0.010, 256)
    assert max(len(slots) for slots in engine.stepped) < 32
    assert costs.frame.cost(256) == pytest.approx(2.57, rel=0.02)


def test_warm_up_of_an_engine_without_delay_measures_frames_alone() -> None:
    engine, costs = FakeEngine(2, delay=0), StepCosts(2)
    warm_up(engine, FakeClock(), costs)
    assert costs.text.cost(2) == 0.0


def test_the_limit_of_a_loop_is_measured_at_warm_up() -> None:
    room = Room(64, frame_s=lambda rows: 0.003 + 0.0015 * rows, text_s=lambda rows: 0.002)
    assert room.loop.limit == 64
    room.loop.warm_up()
    assert room.loop.limit == 35


def test_the_limit_falls_when_steps_become_slow_and_rises_again_afterwards() -> None:
    room = Room(32, frame_s=lambda rows: 0.003 + 0.001 * rows, warm=True)
    before = room.loop.limit
    assert before == 32
    for number in range(6):
        room.open(f"{number}", words=2000, finish=True)
    room.run(2.0)
    assert room.loop.limit == before
    room.frame_s = lambda rows: 3 * (0.003 + 0.001 * rows)
    room.run(10.0)
    assert 6 < room.loop.limit < 20
    assert room.reports()[-1].limit == room.loop.limit
    room.frame_s = lambda rows: 0.003 + 0.001 * rows
    room.run(40.0)
    assert room.loop.limit == before


def test_a_slow_moment_does_not_close_the_door_for_ever() -> None:
    room = Room(32, frame_s=lambda rows: 0.5, warm=True)
    assert room.loop.limit == 1
    room.frame_s = lambda rows: 0.002
    room.open("alone", words=2000, finish=True)
    room.run(20.0)
    assert room.loop.limit > 20, "all sizes follow the one that is stepped"


def test_isolated_stalls_of_the_host_leave_the_limit_alone() -> None:
    steps = iter(range(1_000_000))
    room = Room(32, frame_s=lambda rows: 0.003 + 0.001 * rows, warm=True)
    room.frame_s = lambda rows: 0.003 + 0.001 * rows + (0.15 if next(steps) % 100 == 99 else 0.0)
    for number in range(6):
        room.open(f"{number}", words=2000, finish=True)
    room.run(30.0)
    assert {report.limit for report in room.reports()} == {32}
