"""How many sessions at once: more and more, until the first fault."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from worker.measure.report import MS, Run, underruns_line

MOST = 4_096


@dataclass(frozen=True, slots=True)
class Climb:
    runs: tuple[Run, ...]

    @property
    def clean(self) -> int | None:
        """The largest number of sessions at once that went without a fault; None if even the first did not."""
        return max((run.summary.sessions for run in self.runs if run.summary.clean), default=None)

    @property
    def limit(self) -> str:
        """What ended the climb."""
        last = self.runs[-1]
        return f"{last.summary.sessions} sessions: {limit_of(last)}"

    def as_dict(self) -> dict[str, object]:
        return {"clean": self.clean, "limit": self.limit}


async def climb(
    measure: Callable[[int], Awaitable[Run]], start: int, step: int, *, once: bool = False, most: int = MOST
) -> Climb:
    """``measure`` a load of so many sessions, ``start`` and then ``step`` more at a time, until one has a fault."""
    runs: list[Run] = []
    for sessions in range(start, most + 1, step):
        runs.append(await measure(sessions))
        if once or not runs[-1].summary.clean:
            break
    return Climb(tuple(runs))


def limit_of(run: Run) -> str:
    s = run.summary
    used = ", ".join(f"{name} {share:.2f}" for name, share in run.costs.cores.items())
    if s.refused:
        codes = ", ".join(f"{count} {code}" for code, count in s.codes.items())
        return f"{s.refused} opens were refused ({codes}): the worker's admission, or its slots (cores used: {used})"
    if s.failed:
        return f"{s.failed} sessions failed ({', '.join(s.codes)})"
    if s.underruns:
        return f"{underruns_line(run)} (cores used: {used})"
    if not s.clean:
        return f"{s.lost_messages} audio messages were lost ({MS * s.lost_samples_s:.0f} ms)"
    return "no fault up to here"
