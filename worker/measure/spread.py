"""Percentiles that say how many values they stand on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Spread:
    """Nearest-rank percentiles: each is a value that was measured, none is interpolated."""

    count: int
    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self | None:
        """None of no values."""
        ordered = sorted(values)
        if not ordered:
            return None
        ranks = {name: math.ceil(q * len(ordered)) - 1 for name, q in QUANTILES.items()}
        return cls(count=len(ordered), max=ordered[-1], **{name: ordered[rank] for name, rank in ranks.items()})

    @property
    def thin(self) -> tuple[str, ...]:
        """Percentiles that the count cannot carry: fewer than two values lie beyond them, so one stroke of luck or bad
        luck decides them."""
        return tuple(name for name, q in QUANTILES.items() if self.count - math.ceil(q * self.count) < 2)

    def scaled(self, factor: float) -> Self:
        values = (self.p50 * factor, self.p95 * factor, self.p99 * factor, self.max * factor)
        return type(self)(self.count, *values)

    def as_dict(self) -> dict[str, object]:
        named = {name: round(getattr(self, name), 3) for name in (*QUANTILES, "max")}
        return {"count": self.count, **named, "thin": list(self.thin)}
