"""ARCHITECTURE.md's table of a session's states, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HEADING = "## A session, case by case"
STATES = ("quiet", "speaking", "stalled", "flushed", "finishing", "over")
ROWS = ("held", "parked", "line", "none")
CODED = ("error", "end")
"""Events whose code or reason the table names."""
OPTIONAL = ("audio", "mark")
"""Events that filters may hold back, or that there may be several of."""


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    states: tuple[str, ...]
    rows: tuple[str, ...]
    cause: str
    events: tuple[tuple[str, str], ...]
    """(kind, its code or reason)"""
    once: bool
    """The events come at the first such message alone."""
    generation: int
    """How many more."""
    then: str
    """The next state; empty: as before."""
    row_then: tuple[str, ...]
    """One of these; empty: as before."""

    def matches(self, state: str, row: str, cause: str) -> bool:
        return state in self.states and row in self.rows and cause == self.cause

    def allows(self, kinds: list[tuple[str, str]]) -> bool:
        """Whether these events are the line's. Audio that leads to silence may come before an end or a cancel."""
        fades = any(kind in ("end", "cancelled") for kind, _ in self.events)
        left = [event for event in kinds if not (event[0] in OPTIONAL and (fades or event in self._optional))]
        return left == [event for event in self.events if event[0] not in OPTIONAL] or (self.once and not left)

    @property
    def _optional(self) -> tuple[tuple[str, str], ...]:
        return tuple(event for event in self.events if event[0] in OPTIONAL)


def parse(text: str) -> list[Line]:
    table = text.split(HEADING)[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in row] for row in rows]
    return [_line(*row) for row in cells if row[0]]


def _line(state: str, row: str, cause: str, events: str, generation: str, then: str, row_then: str) -> Line:
    return Line(
        states={"live": STATES[:-1]}.get(state) or _names(state, STATES),
        rows={"any": ROWS[:-1]}.get(row) or _names(row, ROWS),
        cause=cause.replace("`", ""),
        events=tuple((kind, code if kind in CODED else "") for kind, code in re.findall(r"`(\w+)`(?: (\w+))?", events)),
        once=events.endswith(", once"),
        generation=0 if generation == "=" else int(generation),
        then="" if then == "=" else _names(then, STATES)[0],
        row_then=() if row_then == "=" else _names(row_then, ROWS),
    )


def _names(cell: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(cell.split(", "))
    assert set(names) <= set(known), cell
    return names


LINES = parse((Path(__file__).parents[1] / "ARCHITECTURE.md").read_text())
