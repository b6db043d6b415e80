from __future__ import annotations

import asyncio

import pytest

from worker.measure.control import ControlProcess
from worker.measure.stalls import BINS, KEPT_STALLS, Phase, Queue, Stall, Tally, as_line


def tallied(*late_s: float, queued_s: float = 0.0) -> Phase:
    tally = Tally(began=100.0)
    for index, late in enumerate(late_s):
        due = 100.0 + 0.5 * index
        tally.add(due, due + late, queued_s)
    return tally.close(100.0 + 0.5 * len(late_s), queued_known=True)


def test_percentiles_are_the_upper_edges_of_bins_of_a_tenth_of_a_millisecond() -> None:
    phase = tallied(*[0.000_25] * 98, 0.004_11, 0.030)
    assert phase.wakes == 100
    assert phase.p50_s == pytest.approx(0.000_3)
    assert phase.p99_s == pytest.approx(0.004_2)
    assert phase.max_s == pytest.approx(0.030)


def test_what_lies_beyond_the_histogram_is_the_maximum() -> None:
    phase = tallied(0.5, 0.7)
    assert phase.p50_s == phase.p99_s == phase.max_s == pytest.approx(0.7)


def test_early_is_not_late() -> None:
    assert tallied(-0.001).max_s == 0.0


def test_nothing_measured_is_no_error() -> None:
    phase = tallied()
    assert (phase.wakes, phase.p50_s, phase.max_s, phase.stalls) == (0, 0.0, 0.0, ())


def test_the_worst_of_each_second_is_kept() -> None:
    assert tallied(0.001, 0.002, 0.0, 0.0, 0.003).worst_by_second_s == pytest.approx((0.002, 0.0, 0.003))


def test_stalls_over_five_milliseconds_are_kept_with_their_times() -> None:
    phase = tallied(0.001, 0.020, queued_s=0.015)
    assert phase.over_5ms == 1
    (stall,) = phase.stalls
    assert (stall.due, stall.woke) == pytest.approx((100.5, 100.52))
    assert stall.host_s == pytest.approx(0.005)
    assert phase.host_max_s == pytest.approx(0.005)


def test_waiting_for_a_core_that_we_hold_is_not_the_host_s_fault() -> None:
    assert Stall(1.0, 1.1, queued_s=0.2).host_s == 0.0


def test_the_host_s_share_of_an_interval() -> None:
    phase = tallied(0.0, 0.100, 0.200)  # due at 100.5 and 101.0
    assert phase.host_between(100.0, 102.0) == pytest.approx(0.300)
    assert phase.host_between(100.55, 101.05) == pytest.approx(0.100)
    assert phase.host_between(90.0, 95.0) == 0.0


def test_a_phase_does_not_grow_with_its_wakes() -> None:
    tally = Tally(began=0.0)
    for index in range(KEPT_STALLS + 500):
        tally.add(0.001 * index, 0.001 * index + 0.006, 0.0)
    assert tally.over == KEPT_STALLS + 500
    assert len(tally.stalls) == KEPT_STALLS
    assert len(tally.histogram) == BINS + 1


def test_a_phase_survives_its_line() -> None:
    phase = tallied(0.001, 0.040, queued_s=0.010)
    assert Phase.parse(as_line(phase).encode()) == phase


def test_the_queue_counts_up_or_is_unknown() -> None:
    queue = Queue()
    first = queue.seconds()
    assert 0.0 <= first <= queue.seconds()


async def test_the_control_process_counts_its_wakes_phase_by_phase() -> None:
    async with ControlProcess() as control:
        phase = await control.lap()
        while not phase.wakes:
            await asyncio.sleep(0.02)  # something to sleep through, however long it takes
            phase = await control.lap()
        assert phase.p50_s <= phase.p99_s <= phase.max_s <= phase.seconds
