"""What separates a resource from the one at the server: which fields change, and which cannot. Pure.

A field that the blueprint does not name is left alone; subjects that an operator added stay. The server leaves out what
is false, empty or 0, and turns "no limit" into -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from worker.jobs.blueprint import Config, Resource

FIXED = frozenset({"retention", "storage", "durable_name", "deliver_policy", "ack_policy"})
"""What the server never changes, or not without harm to what is stored."""
LIMITS = {"max_msgs": "messages", "max_bytes": "bytes"}
"""And what a stream's state calls the amount that it holds."""

Action = Literal["create", "change", "same", "refuse"]


@dataclass(frozen=True, slots=True)
class Change:
    field: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class Step:
    resource: Resource
    action: Action
    changes: tuple[Change, ...] = ()
    reason: str = ""
    """Why it is refused."""


def compare(resource: Resource, found: Config | None, held: Mapping[str, int] | None = None) -> Step:
    """``found``: its configuration at the server. ``held``: messages and bytes in it."""
    if found is None:
        return Step(resource, "create")
    changes = tuple(
        Change(name, found.get(name), new)
        for name, wanted in resource.config.items()
        if not _equal(name, found.get(name), new := _target(name, found.get(name), wanted))
    )
    if not changes:
        return Step(resource, "same")
    reasons = [reason for change in changes if (reason := _obstacle(change, {**found, **resource.config}, held or {}))]
    if found.get("sealed"):
        reasons.append("it is sealed")
    return Step(resource, "refuse" if reasons else "change", changes, "; ".join(reasons))


def merged(found: Config, step: Step) -> dict[str, Any]:
    """The whole configuration after the step, with everything in it that is not ours."""
    return {**found, **{change.field: change.new for change in step.changes}}


def _target(name: str, old: Any, wanted: Any) -> Any:
    return [*(old or []), *(each for each in wanted if each not in (old or []))] if name == "subjects" else wanted


def _equal(name: str, old: Any, new: Any) -> bool:
    if name.startswith("max_"):
        return _limit(old) == _limit(new)
    return bool(old == new or not (old or new))


def _limit(value: int | None) -> float:
    return value if value and value > 0 else float("inf")


def _obstacle(change: Change, after: Config, held: Mapping[str, int]) -> str:
    if change.field in FIXED:
        return f"{change.field} cannot change in place"
    if change.field == "max_age" and held.get("messages") and _limit(change.new) < _limit(change.old):
        return "it holds messages, which max_age would delete"
    if after.get("discard", "old") != "old":
        return ""
    # The server would delete at once what is over the limit.
    if change.field in LIMITS and held.get(LIMITS[change.field], 0) > _limit(change.new):
        return f"it holds {held[LIMITS[change.field]]} {LIMITS[change.field]}, which {change.field} would delete"
    return ""
