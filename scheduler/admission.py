"""How many sessions may be live: what the measured steps leave room for inside the beat."""

from __future__ import annotations

from engine.contract import Entry, FrameEngine
from scheduler.clock import Clock
from scheduler.costs import StepCosts, size_classes


class Admission:
    """The largest number of live sessions for all of which one fused step keeps within ``headroom`` of a frame's time.

    What is above the headroom is for the small steps of sessions that have just come, and for the host. At least one
    session is always let in: with none there would be nothing to measure, and a slow moment would close the worker for
    ever.
    """

    def __init__(self, costs: StepCosts, frame_s: float, headroom: float) -> None:
        self._costs = costs
        self._budget_s = headroom * frame_s

    def limit(self) -> int:
        return max(1, self._costs.frame.fit(self._budget_s))


def warm_up(engine: FrameEngine, clock: Clock, costs: StepCosts, repeats: int = 5) -> None:
    """Step the idle engine at growing batch sizes and seed both curves with what it took.

    Stops at the first size that takes twice as long as a frame lasts: no admission goes there, and the curve is
    extended. The rows speak nothing (a break), so the words of no language are needed. Blocks; engine's thread only.
    """
    for rows in sorted({*size_classes(engine.capacity)[::2], engine.capacity}):
        text_s, frame_s = _measure(engine, clock, rows, repeats)
        if text_s:
            costs.text.seed(rows, _typical(text_s))
        costs.frame.seed(rows, _typical(frame_s))
        if _typical(frame_s) > 2 * engine.info.frame_ms / 1000:
            break
    costs.refresh(clock.now())


def _measure(engine: FrameEngine, clock: Clock, rows: int, repeats: int) -> tuple[list[float], list[float]]:
    slots = range(rows)
    for slot in slots:
        engine.open(slot, engine.info.defaults)
        engine.push(slot, [Entry((), padding=10_000)])
    text_s = []
    while engine.in_delay(0):
        text_s.append(_timed(engine, clock, slots))
    frame_s = [_timed(engine, clock, slots) for _ in range(repeats + 1)]
    for slot in slots:
        engine.close(slot)
    return text_s[1:] or text_s, frame_s[1:]  # the first step of a size finds its memory cold


def _timed(engine: FrameEngine, clock: Clock, slots: range) -> float:
    start = clock.now()
    engine.collect(engine.launch(slots))
    return clock.now() - start


def _typical(seconds: list[float]) -> float:
    """The upper middle value: one stall of the machine among the measurements must not shut the door."""
    return sorted(seconds)[len(seconds) // 2]
