from __future__ import annotations

import pytest

from scheduler.costs import CostRules, Curve, interpolate, pool_violators, size_classes


def curve(costs: dict[int, float], capacity: int = 64, **rules: float) -> Curve:
    made = Curve(capacity, CostRules(**rules))  # type: ignore[arg-type]
    for rows, seconds in costs.items():
        made.seed(rows, seconds)
    made.refresh(0.0)
    return made


def affine(base: float, slope: float, capacity: int = 64) -> Curve:
    return curve({rows: base + slope * rows for rows in size_classes(capacity)}, capacity)


def test_nothing_known_costs_nothing() -> None:
    assert [curve({}).cost(rows) for rows in (0, 1, 64)] == [0.0, 0.0, 0.0]


def test_between_the_sizes_known_cost_is_linear_and_beyond_them_it_goes_on_rising() -> None:
    made = curve({4: 0.010, 8: 0.020})
    assert made.cost(0) == 0.0
    assert made.cost(1) == made.cost(4) == 0.010
    assert made.cost(6) == pytest.approx(0.015)
    assert made.cost(16) == pytest.approx(0.040)
    assert made.cost(12) == pytest.approx(0.030)


def test_one_point_is_extended_in_proportion() -> None:
    assert interpolate([(4, 0.010)], 8)[8] == pytest.approx(0.020)


def test_a_flat_last_stretch_does_not_make_larger_batches_free() -> None:
    assert interpolate([(1, 0.002), (4, 0.010), (8, 0.010)], 16)[16] > 0.018


def test_an_isolated_stall_of_the_host_does_not_count() -> None:
    made = curve({4: 0.010})
    for at in range(128):
        made.add(4, 0.200 if at in (10, 70) else 0.011, float(at) / 20)
    made.refresh(6.4)
    assert made.cost(4) == pytest.approx(0.011)


def test_a_single_stall_among_few_measurements_does_not_count_either() -> None:
    made = curve({})
    for seconds in (0.011, 0.300, 0.011):
        made.add(4, seconds, 0.0)
    made.refresh(0.0)
    assert made.cost(4) == pytest.approx(0.011)


def test_a_lasting_change_counts_for_other_sizes_too() -> None:
    made = affine(0.002, 0.001)
    before = made.cost(32)
    for at in range(64):
        made.add(4, 2 * 0.006, at / 10)
    made.refresh(6.4)
    assert made.cost(4) == pytest.approx(0.012)
    assert made.cost(32) == pytest.approx(2 * before)


def test_interruptions_count_for_other_sizes_as_they_are_and_not_in_proportion() -> None:
    made = affine(0.002, 0.001)
    for at in range(128):
        made.add(4, 0.026 if at % 4 == 0 else 0.006, at / 20)
    made.refresh(6.4)
    assert made.cost(4) == pytest.approx(0.011)
    assert made.cost(32) == pytest.approx(0.034 + 0.005)


def test_it_is_slow_half_seconds_that_count_and_not_slow_steps() -> None:
    scattered, together = curve({4: 0.010}), curve({4: 0.010})
    for at in range(128):
        scattered.add(4, 0.030 if at % 8 == 0 else 0.010, 0.0)
        together.add(4, 0.030 if at % 64 < 8 else 0.010, 0.0)
    scattered.refresh(0.0)
    together.refresh(0.0)
    assert scattered.cost(4) == pytest.approx(0.015)
    assert together.cost(4) == pytest.approx(0.030)


def test_few_measurements_do_not_outweigh_the_seed() -> None:
    made = affine(0.002, 0.001)
    for _ in range(CostRules().enough - 1):
        made.add(4, 0.500, 0.0)
    made.refresh(0.0)
    assert made.cost(4) == pytest.approx(0.006)


def test_after_the_horizon_a_size_that_is_not_stepped_any_more_falls_back_to_its_seed() -> None:
    made = affine(0.002, 0.001)
    for _ in range(64):
        made.add(32, 0.300, 1.0)
    made.refresh(2.0)
    assert made.cost(32) == pytest.approx(0.300)
    made.refresh(1.0 + CostRules().horizon_s + 0.1)
    assert made.cost(32) == pytest.approx(0.034)


def test_measurements_that_contradict_each_other_are_averaged_so_that_cost_never_falls() -> None:
    assert pool_violators([(1, 5.0, 1), (2, 3.0, 3), (3, 9.0, 1)]) == [(1, 3.5), (2, 3.5), (3, 9.0)]


def test_fit_is_the_largest_batch_within_a_budget() -> None:
    made = affine(0.002, 0.001)
    assert made.fit(0.0125) == 10
    assert made.fit(1.0) == 64
    assert made.fit(0.0) == 0


def test_where_cost_grows_with_the_batch_it_is_cut_within_the_share_allowed() -> None:
    made = affine(0.003, 0.0015)
    size = made.part(32)
    parts = -(-32 // size)
    assert parts > 1
    assert parts * made.cost(size) <= 1.15 * made.cost(32)
    assert made.part(4) == 4, "a short step is not worth cutting"


def test_where_cost_is_flat_everything_goes_at_once_and_others_ride_along() -> None:
    made = affine(0.015, 0.00005)
    assert made.part(64) == 64
    assert made.ride(1) == 64


def test_where_cost_grows_with_the_batch_nobody_rides() -> None:
    assert affine(0.003, 0.0015).ride(4) == 4


def test_riders_lengthen_a_step_by_half_at_most() -> None:
    made = affine(0.010, 0.001)
    size = made.ride(1)
    assert 1 < size < 64
    assert made.cost(size) <= 1.5 * made.cost(1) + 1e-9


def test_every_size_up_to_eight_is_a_class_and_then_four_an_octave() -> None:
    assert size_classes(40) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40]
    assert size_classes(3) == [1, 2, 3]
