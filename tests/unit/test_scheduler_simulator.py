"""The simulator against what queueing theory and common sense say."""

from __future__ import annotations

import pytest

from scheduler.messages import Pace
from scheduler.simulator import Call, Machine, Outcome, Simulation, poisson, spread

QUICK = Machine(capacity=64, frame_s=lambda rows: 0.0002 + 0.00002 * rows, text_s=lambda rows: 0.0001)


def erlang_b(rows: int, load: float) -> float:
    """Share of Poisson calls that find all rows taken (Erlang 1917, by its recursion)."""
    blocked = 1.0
    for row in range(1, rows + 1):
        blocked = load * blocked / (row + load * blocked)
    return blocked


def test_thousands_of_sessions_are_refused_as_often_as_erlang_says() -> None:
    rows, rate = 8, 5.0
    machine = Machine(capacity=rows, frame_s=QUICK.frame_s, text_s=QUICK.text_s)
    calls = poisson(rate, 600.0, words=3.0, seed=4)
    assert len(calls) > 2800
    outcome = Simulation(machine).run(calls)
    assert outcome.served + outcome.refused == len(calls)
    offered = rate * outcome.held_s / outcome.served
    assert outcome.refused / len(calls) == pytest.approx(erlang_b(rows, offered), abs=0.02)
    assert outcome.most_active == rows


def busy_day(rate_per_s: float, *, admit: bool = True, machine: Machine | None = None) -> Outcome:
    return Simulation(machine or Machine(), admit=admit).run(poisson(rate_per_s, 20.0, words=15.0, seed=2))


def test_load_raises_utilisation_and_the_wait_for_first_audio() -> None:
    quiet, usual, busy = busy_day(0.5), busy_day(2.0), busy_day(5.0)
    assert quiet.utilisation < usual.utilisation < busy.utilisation < 1.0
    assert quiet.ttfa_s.p95 < usual.ttfa_s.p95 < busy.ttfa_s.p95 < 0.4
    alone = 5 * 0.0013 + 2 * 0.0045
    assert quiet.ttfa_s.p50 == pytest.approx(alone, abs=0.005)
    assert quiet.refused == quiet.failed == usual.failed == 0


def test_admission_keeps_underruns_out_where_calls_come_faster_than_they_can_be_served() -> None:
    guarded, open_door = busy_day(14.0), busy_day(14.0, admit=False)
    assert guarded.underruns == 0
    assert guarded.refused > 50
    assert guarded.limit < open_door.most_active
    assert open_door.underruns > 500
    assert guarded.ttfa_s.p95 < open_door.ttfa_s.p95


def test_a_machine_whose_cost_hardly_grows_with_the_batch_runs_large_batches() -> None:
    gpu = Machine(
        capacity=256,
        frame_s=lambda rows: 0.010 + 0.00004 * rows,
        text_s=lambda rows: 0.003,
        run_ahead=1,
        delay=16,
        acoustic_delay=2,
    )
    outcome = busy_day(20.0, machine=gpu)
    assert outcome.refused == outcome.underruns == 0
    assert outcome.mean_batch > 5
    assert outcome.ttfa_s.p95 < 0.25


def test_stalls_of_the_host_are_ridden_out_by_the_lead() -> None:
    machine = Machine(stall=lambda rng: 0.1 if rng.random() < 0.003 else 0.0)
    calls = [Call(0.05 * number, 60) for number in range(16)]
    outcome = Simulation(machine, seed=3).run(calls)
    assert outcome.underruns == 0
    assert outcome.limit > 25
    assert outcome.lateness_s.p99 > outcome.lateness_s.p50


def test_fast_sessions_use_what_live_ones_leave_and_cost_them_nothing() -> None:
    live = poisson(2.0, 20.0, words=15.0, seed=5)
    without = Simulation(Machine()).run(live)
    jobs = [Call(0.0, 2500, Pace.FAST) for _ in range(4)]
    beside = Simulation(Machine()).run([*jobs, *live])
    assert beside.underruns == 0
    assert beside.lateness_s.worst < 0.0
    assert beside.utilisation > 0.9 > without.utilisation
    assert beside.fast_audio_s > 4 * 2500 * 4 * 0.08
    assert beside.ttfa_s.p95 < without.ttfa_s.p95 + 0.030


def test_text_that_is_written_as_it_is_spoken_stalls_and_still_ends() -> None:
    outcome = Simulation(Machine()).run([Call(0.1 * n, 12, words_per_s=2.0) for n in range(5)])
    assert outcome.served == 5
    assert outcome.underruns == 0
    assert outcome.elapsed_s > 6.0


def test_the_same_calls_have_the_same_outcome() -> None:
    assert busy_day(3.0) == busy_day(3.0)


def test_percentiles_are_values_that_occurred() -> None:
    ranked = spread([float(value) for value in range(1, 101)])
    assert (ranked.p50, ranked.p95, ranked.p99, ranked.worst, ranked.count) == (50.0, 95.0, 99.0, 100.0, 100)
    assert spread([]).worst == 0.0
