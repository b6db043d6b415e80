from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from worker.measure.spread import Spread

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300)


def test_no_values_have_no_spread() -> None:
    assert Spread.of([]) is None


def test_percentiles_are_the_nearest_ranks() -> None:
    values = list(range(1, 201))
    random.Random(1).shuffle(values)
    assert Spread.of(values) == Spread(count=200, p50=100, p95=190, p99=198, max=200)


def test_percentiles_that_the_count_cannot_carry_are_thin() -> None:
    thin = {count: spread.thin for count in (1, 2, 5, 39, 40, 199, 200) if (spread := Spread.of(range(count)))}
    assert thin == {
        1: ("p50", "p95", "p99"),
        2: ("p50", "p95", "p99"),
        5: ("p95", "p99"),
        39: ("p95", "p99"),
        40: ("p99",),
        199: ("p99",),
        200: (),
    }


@given(VALUES)
def test_every_percentile_was_measured_and_they_are_in_order(values: list[float]) -> None:
    spread = Spread.of(values)
    assert spread is not None
    assert {spread.p50, spread.p95, spread.p99} <= set(values)
    assert spread.p50 <= spread.p95 <= spread.p99 <= spread.max == max(values)


@given(VALUES)
def test_at_least_the_named_share_is_not_above_a_percentile(values: list[float]) -> None:
    spread = Spread.of(values)
    assert spread is not None
    for share, value in ((0.5, spread.p50), (0.95, spread.p95), (0.99, spread.p99)):
        assert sum(v <= value for v in values) >= share * len(values)
        assert sum(v < value for v in values) < share * len(values)


def test_scaling_keeps_the_count() -> None:
    spread = Spread.of([0.001, 0.002])
    assert spread is not None
    assert spread.scaled(1000).as_dict() == {
        "count": 2,
        "p50": 1.0,
        "p95": 2.0,
        "p99": 2.0,
        "max": 2.0,
        "thin": ["p50", "p95", "p99"],
    }
