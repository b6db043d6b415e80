"""``antiphon provision``: what batch jobs need in JetStream, made or changed after a look at the differences."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field, PositiveInt
from pydantic_settings import CliToggleFlag

from worker import logs
from worker.bus import Bus
from worker.cli.command import Command, CommandError
from worker.jobs.blueprint import NANO, Wishes, blueprint
from worker.jobs.difference import Step
from worker.jobs.provision import Provisioner
from worker.sections import Token, Tokens
from worker.service import bus_options
from worker.stream import journal_config

MIB, GIB = 1 << 20, 1 << 30
NOT_DONE = 2
MARKS = {"create": "+", "change": "~", "same": "=", "refuse": "!"}
DURATIONS = frozenset({"ack_wait", "duplicate_window", "max_age"})


class Provision(Command):
    """Make the streams, consumers and buckets of batch jobs, or change those that differ from the settings.

    The differences are shown first. A terminal is asked; anything else needs --yes. Nothing is ever deleted, and what
    is not ours in a configuration stays. Exit code 2: something would change and has not been; 1: it failed, or
    something differs that cannot change in place.
    """

    yes: CliToggleFlag[bool] = Field(default=False, description="do not ask")
    dry_run: CliToggleFlag[bool] = Field(default=False, description="only show the differences")
    as_json: CliToggleFlag[bool] = Field(default=False, alias="json", description="as one JSON document; never asks")
    pools: Tokens = Field(default=(), description="pools that take jobs, separated by commas; unset: worker.pool")
    tenants: Tokens = Field(default=(), description="tenants that have jobs; unset: worker.tenants, or 'default'")
    replicas: int = Field(default=1, ge=1, le=5, description="copies of everything but the journal; 3 in a cluster")
    storage: Literal["file", "memory"] = Field(default="file", description="of everything but the journal")
    queue_messages: PositiveInt = Field(default=100_000, description="jobs that may wait; more are refused")
    queue_bytes: PositiveInt = Field(default=256 * MIB, description="of waiting jobs, and of dead letters")
    segments_bytes: PositiveInt = Field(default=4 * GIB, description="finished parts of unfinished jobs")
    records_bytes: PositiveInt = Field(default=256 * MIB, description="the jobs' records")
    texts_bytes: PositiveInt = Field(default=GIB, description="large texts of one tenant")
    results_bytes: PositiveInt = Field(default=4 * GIB, description="finished audio of one tenant")
    max_pending: PositiveInt = Field(default=1024, description="jobs of a pool and class that all workers may hold")
    placement_cluster: Token | None = Field(default=None, description="the cluster that keeps everything")
    placement_tags: Tokens = Field(default=(), description="tags of the servers that keep everything")

    def cli_cmd(self) -> int:
        logs.configure(self.telemetry)
        steps = asyncio.run(self._plan())
        if not self.as_json:
            print("\n".join(_lines(steps)))
        due = sum(step.action in ("create", "change") for step in steps)
        applied = due > 0 and self._agreed(due)
        if applied:
            asyncio.run(self._apply(steps))
        if self.as_json:
            print(json.dumps({"resources": [_document(step) for step in steps], "applied": applied}, indent=2))
        refused = [step.resource.label for step in steps if step.action == "refuse"]
        if refused:
            raise CommandError(f"not done, for the reasons shown: {', '.join(refused)}")
        return NOT_DONE if due and not applied else 0

    def _agreed(self, due: int) -> bool:
        if self.dry_run:
            return False
        if self.yes:
            return True
        if self.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            print("antiphon: nothing done; --yes does it", file=sys.stderr)
            return False
        try:
            return input(f"Do these {due}? [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            return False

    async def _plan(self) -> list[Step]:
        bus = await Bus.connect(bus_options(self.nats))
        try:
            return await Provisioner(bus).plan(blueprint(self._wishes()))
        finally:
            await bus.close()

    async def _apply(self, steps: Sequence[Step]) -> None:
        bus = await Bus.connect(bus_options(self.nats))
        try:
            await Provisioner(bus).apply(steps)
        finally:
            await bus.close()

    def _wishes(self) -> Wishes:
        return Wishes(
            pools=self.pools or (self.worker.pool,),
            tenants=self.tenants or self.worker.tenants or ("default",),
            replicas=self.replicas,
            storage=self.storage,
            queue_messages=self.queue_messages,
            queue_bytes=self.queue_bytes,
            segments_bytes=self.segments_bytes,
            records_bytes=self.records_bytes,
            texts_bytes=self.texts_bytes,
            results_bytes=self.results_bytes,
            max_pending=self.max_pending,
            placement_cluster=self.placement_cluster,
            placement_tags=self.placement_tags,
            journal=None if self.journal.enabled == "off" else journal_config(self.journal),
        )


def _lines(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        if step.action != "same":
            yield f"{MARKS[step.action]} {step.action} {step.resource.label}"
            yield from (f"    {c.field}: {_shown(c.field, c.old)} -> {_shown(c.field, c.new)}" for c in step.changes)
            if step.reason:
                yield f"    not done: {step.reason}"
    count = {action: sum(step.action == action for step in steps) for action in MARKS}
    if count["same"] == len(steps):
        yield f"nothing to do: {len(steps)} are as they should be"
    else:
        yield "{create} to create, {change} to change, {same} same, {refuse} refused".format(**count)


def _shown(field: str, value: Any) -> str:
    if field in DURATIONS and value:
        return f"{value / NANO:g}s"
    return "unset" if value is None else json.dumps(value)


def _document(step: Step) -> dict[str, Any]:
    changes = [{"field": change.field, "from": change.old, "to": change.new} for change in step.changes]
    resource = step.resource
    return {
        "kind": resource.kind,
        "name": resource.name,
        "action": step.action,
        "changes": changes,
        **({"reason": step.reason} if step.reason else {}),
    }
