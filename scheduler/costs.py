"""What a fused step of n rows costs: seeded at warm-up, measured while running, one curve a kind of step."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CostRules:
    """How measurements become a curve, and how a curve shapes a batch."""

    quantile: float = 0.95
    """Of each window; the higher this is, the more one stall of the host counts (0.99 on a GPU)."""
    window: int = 128
    """Latest measurements kept for each size class."""
    block: int = 4
    """The quantile is that of means over so many steps in a row. A lead outlasts a slow step, but not a slow half
    second, and on a busy host the quantile of single steps says several times as much as that of half seconds."""
    enough: int = 8
    """Measurements from which on a size class is believed more than its seed."""
    horizon_s: float = 30.0
    """After so long without a measurement a size class falls back to its seed, or a slow moment would be believed for
    ever: admission would keep away the very load that could disprove it."""
    split: float = 0.15
    """A batch may be cut into equal steps while that costs at most this share more in all."""
    ride: float = 0.20
    """Rows without need may join a step while each lengthens it by at most this share of a step of one row, and all
    together by at most half."""
    quantum_s: float = 0.010
    """A step this short is not worth cutting."""


@dataclass(slots=True)
class SizeClass:
    """Steps whose batches lie between this size and the next larger class."""

    size: int
    seed_s: float | None = None
    recent: deque[float] = field(default_factory=deque)
    measured_at: float = -math.inf

    def median(self) -> float:
        return sorted(self.recent)[(len(self.recent) - 1) // 2]

    def quantile(self, q: float, block: int) -> float:
        """Of the means of whole blocks. Lower, so that of a handful of blocks the slowest never decides alone; of less
        than two blocks, the median."""
        steps = list(self.recent)
        means = sorted(sum(steps[end - block : end]) / block for end in range(len(steps), block - 1, -block))
        return means[math.floor(q * (len(means) - 1))] if len(means) > 1 else self.median()

    def believed(self, enough: int) -> bool:
        return len(self.recent) >= (1 if self.seed_s is None else enough)


class Curve:
    """Cost in seconds of one kind of step by its number of rows: never falls, linear between the sizes known."""

    def __init__(self, capacity: int, rules: CostRules) -> None:
        self._rules = rules
        self._capacity = capacity
        self._classes = [SizeClass(size) for size in size_classes(capacity)]
        sizes = [c.size for c in self._classes]
        self._class_of = [self._classes[max(0, bisect.bisect(sizes, n) - 1)] for n in range(capacity + 1)]
        self._table = [0.0] * (capacity + 1)
        self._parts: dict[int, int] = {}

    def seed(self, rows: int, duration_s: float) -> None:
        self._class_of[rows].seed_s = duration_s

    def add(self, rows: int, duration_s: float, now: float) -> None:
        """Take in a measurement; it counts from the next ``refresh`` on."""
        size_class = self._class_of[rows]
        if len(size_class.recent) >= self._rules.window:
            size_class.recent.popleft()
        size_class.recent.append(duration_s)
        size_class.measured_at = now

    def refresh(self, now: float) -> None:
        for size_class in self._classes:
            if now - size_class.measured_at > self._rules.horizon_s:
                size_class.recent.clear()
        self._table = interpolate(pool_violators(self._points()), self._capacity)
        self._parts.clear()

    def cost(self, rows: int) -> float:
        """Expected seconds of a step of so many rows; 0.0 while nothing is known."""
        return self._table[rows]

    def fit(self, budget_s: float) -> int:
        """The largest batch that costs no more than a budget; 0 if none does."""
        rows = self._capacity
        while rows and self._table[rows] > budget_s:
            rows -= 1
        return rows

    def ride(self, rows: int) -> int:
        """The size to which a batch may be filled up with rows that could wait."""
        base_s, each_s, size = self._table[rows], self._rules.ride * self._table[1], rows
        for larger in range(rows + 1, self._capacity + 1):
            added_s = self._table[larger] - base_s
            if added_s > base_s / 2:
                break
            if added_s <= each_s * (larger - rows):
                size = larger
        return size

    def part(self, rows: int) -> int:
        """Rows of the next step if so many are to be stepped. Where cost grows with the batch, shorter steps lose
        little and let whoever comes next begin sooner; where it is flat, all go at once."""
        if rows not in self._parts:
            self._parts[rows] = self._cut(rows)
        return self._parts[rows]

    def _cut(self, rows: int) -> int:
        limit_s = self._table[rows] * (1.0 + self._rules.split)
        size = rows
        for parts in itertools.count(2):
            if self._table[size] <= self._rules.quantum_s:
                break
            smaller = math.ceil(rows / parts)
            if smaller == size or parts * self._table[smaller] > limit_s:
                break
            size = smaller
        return size

    def _points(self) -> list[tuple[int, float, int]]:
        """(rows, seconds, weight) of each class of which something is known.

        Classes without recent measurements follow the others from their seed: by the ratio of the others' medians to
        their seeds (a slower machine) and by what the others' quantile lies above the median (interruptions, which do
        not grow with the batch).
        """
        measured = [c for c in self._classes if c.believed(self._rules.enough)]
        live = {c.size: c.quantile(self._rules.quantile, self._rules.block) for c in measured}
        seeded = [(c, len(c.recent), c.median(), c.seed_s) for c in measured if c.seed_s]
        seeds_s = sum(count * seed_s for _, count, _, seed_s in seeded)
        drift = sum(count * median_s for _, count, median_s, _ in seeded) / seeds_s if seeds_s else 1.0
        total = sum(count for _, count, _, _ in seeded)
        jitter_s = sum(count * (live[c.size] - median_s) for c, count, median_s, _ in seeded) / total if total else 0.0
        points = []
        for c in self._classes:
            if c.size in live:
                points.append((c.size, live[c.size], len(c.recent)))
            elif c.seed_s is not None:
                points.append((c.size, c.seed_s * drift + max(0.0, jitter_s), 1))
        return points


class StepCosts:
    """The two kinds of step: whole frames, and text-only steps of rows inside their delay."""

    def __init__(self, capacity: int, rules: CostRules | None = None) -> None:
        rules = rules or CostRules()
        self.frame = Curve(capacity, rules)
        self.text = Curve(capacity, rules)

    def of(self, text_only: bool) -> Curve:
        return self.text if text_only else self.frame

    def refresh(self, now: float) -> None:
        self.frame.refresh(now)
        self.text.refresh(now)


def size_classes(capacity: int) -> list[int]:
    """Every size up to 8, then four to an octave."""
    octaves = (2**power for power in itertools.count(3))
    larger = (size + size * quarter // 4 for size in octaves for quarter in range(4))
    return [*range(1, min(capacity, 7) + 1), *itertools.takewhile(lambda size: size <= capacity, larger)]


def pool_violators(points: list[tuple[int, float, int]]) -> list[tuple[int, float]]:
    """The non-decreasing sequence nearest to weighted points (isotonic regression: Ayer et al. 1955)."""
    pools: list[tuple[float, int, list[int]]] = []  # mean, weight, sizes
    for size, value, weight in points:
        sizes = [size]
        while pools and pools[-1][0] > value:
            mean, other, smaller = pools.pop()
            value = (mean * other + value * weight) / (other + weight)
            weight += other
            sizes = smaller + sizes
        pools.append((value, weight, sizes))
    return [(size, mean) for mean, _, sizes in pools for size in sizes]


def interpolate(points: list[tuple[int, float]], capacity: int) -> list[float]:
    """Costs of 0..capacity rows. Beyond the last point by the steeper of the last and the mean slope."""
    if not points:
        return [0.0] * (capacity + 1)
    first, last = points[0], points[-1]
    slope = max(_slope(points[-2] if len(points) > 1 else (0, 0.0), last), _slope(first, last))
    table = [0.0] + [first[1]] * first[0]
    for (left, low), (right, high) in itertools.pairwise(points):
        table += [low + (high - low) * (n - left) / (right - left) for n in range(left + 1, right + 1)]
    return table + [last[1] + slope * (n - last[0]) for n in range(last[0] + 1, capacity + 1)]


def _slope(left: tuple[int, float], right: tuple[int, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0]) if right[0] > left[0] else 0.0
