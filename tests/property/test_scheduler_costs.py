from __future__ import annotations

import itertools

import hypothesis.strategies as st
from hypothesis import given

from scheduler.clock import Beat
from scheduler.costs import CostRules, Curve, pool_violators

POINTS = st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(1, 64)), min_size=1, max_size=20).map(
    lambda values: [(2 * rows + 1, value, weight) for rows, (value, weight) in enumerate(values)]
)
MEASURED = st.lists(st.tuples(st.integers(1, 40), st.floats(0.0001, 1.0), st.floats(0.0, 60.0)), max_size=200)


@given(POINTS)
def test_pooling_never_falls_keeps_the_weighted_mean_and_leaves_rising_values_alone(
    points: list[tuple[int, float, int]],
) -> None:
    pooled = pool_violators(points)
    assert [size for size, _ in pooled] == [size for size, _, _ in points]
    assert all(low <= high + 1e-12 for (_, low), (_, high) in itertools.pairwise(pooled))
    total = sum(value * weight for _, value, weight in points)
    assert abs(sum(value * weight for (_, value), (_, _, weight) in zip(pooled, points, strict=True)) - total) < 1e-6
    if all(low <= high for (_, low, _), (_, high, _) in itertools.pairwise(points)):
        assert pooled == [(size, value) for size, value, _ in points]


@given(seeds=st.dictionaries(st.integers(1, 40), st.floats(0.0001, 1.0)), measured=MEASURED)
def test_whatever_was_measured_a_curve_is_sound(
    seeds: dict[int, float], measured: list[tuple[int, float, float]]
) -> None:
    curve = Curve(40, CostRules())
    for rows, seconds in seeds.items():
        curve.seed(rows, seconds)
    for rows, seconds, at in measured:
        curve.add(rows, seconds, at)
    curve.refresh(60.0)
    costs = [curve.cost(rows) for rows in range(41)]
    assert all(low <= high + 1e-9 for low, high in itertools.pairwise(costs))
    for rows in range(1, 41):
        assert 1 <= curve.part(rows) <= rows <= curve.ride(rows) <= 40
        assert curve.cost(curve.ride(rows)) <= 1.5 * curve.cost(rows) + 1e-9
        parts = -(-rows // curve.part(rows))
        assert parts * curve.cost(curve.part(rows)) <= 1.15 * curve.cost(rows) + 1e-9
    for budget_s in (0.0, 0.01, 0.1, 2.0):
        fit = curve.fit(budget_s)
        assert costs[fit] <= budget_s
        assert fit == 40 or costs[fit + 1] > budget_s


@given(origin=st.floats(0.0, 1e7), offset=st.floats(-1e6, 1e6), parts=st.sampled_from([1, 2, 4]))
def test_every_time_lies_between_its_beats(origin: float, offset: float, parts: int) -> None:
    beat, time_s = Beat(origin, 0.08).divided(parts), origin + offset
    tolerance = 2e-6 * beat.period_s + 1e-8
    assert beat.at(beat.index(time_s)) <= time_s + tolerance
    assert time_s < beat.after(time_s) + tolerance
    assert abs(beat.after(time_s) - beat.at(beat.index(time_s)) - beat.period_s) < 1e-8
    assert time_s - tolerance <= beat.ceil(time_s) < time_s + beat.period_s + tolerance
