"""Brings JetStream to the blueprint: reads what is there, says what differs, and changes that alone.

Nothing is ever deleted. Two at once do no harm: what the other has made in the meantime is taken as found, and every
step looks again just before it acts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from worker.bus import Bus
from worker.errors import NoResponders, RequestTimeout, WorkerError
from worker.jobs.blueprint import Config, Resource
from worker.jobs.difference import Step, compare, merged

API = "$JS.API"
TIMEOUT_S = 5.0
NOT_FOUND = frozenset({10014, 10059})
"""A consumer, a stream."""
MADE_MEANWHILE = frozenset({10058, 10148})
"""A stream, a consumer of that name is there, and differs."""
NO_PEERS, NOT_CLUSTERED, NO_STORAGE = 10005, 10074, 10047
OFF_FOR_ACCOUNT, OFF = 10039, 10076
HINTS = {
    NO_PEERS: "fewer servers fit than there are to be replicas",
    NOT_CLUSTERED: "several replicas need a cluster",
    NO_STORAGE: "the servers have less room than the limits reserve",
}


class ProvisionError(WorkerError):
    """JetStream does not answer, or refuses what was asked for."""


class Refused(ProvisionError):
    def __init__(self, error: dict[str, Any]) -> None:
        self.code = int(error.get("err_code", 0))
        described = str(error.get("description", "refused"))
        hint = HINTS.get(self.code)
        super().__init__(f"{described} (error {self.code})" + (f": {hint}" if hint else ""))


class Provisioner:
    """Every call raises ProvisionError, BusError."""

    def __init__(self, bus: Bus, timeout_s: float = TIMEOUT_S) -> None:
        self._bus, self._timeout_s = bus, timeout_s

    async def plan(self, resources: Iterable[Resource]) -> list[Step]:
        try:
            await self._call("INFO")
        except Refused as refused:
            if refused.code in (OFF_FOR_ACCOUNT, OFF):
                raise ProvisionError("JetStream is switched off for this account") from None
            raise
        return _heirs([(await self._look(resource))[0] for resource in resources])

    async def apply(self, steps: Sequence[Step]) -> list[Step]:
        """Does what the steps say, in their order, and returns those that did something; refused ones are left.

        Raises ProvisionError at the first that fails: the ones before it are done, and a second run goes on from there.
        """
        return [step for step in steps if step.action in ("create", "change") and await self._do(step)]

    async def _do(self, planned: Step) -> bool:
        """False: somebody else has done it."""
        resource = planned.resource
        step, found = await self._look(resource)
        if step.action == "same":
            return False
        if step != planned:
            raise ProvisionError(f"{resource.label}: changed in the meantime; look at the differences again")
        config = dict(resource.config) if found is None else merged(found, step)
        try:
            await self._write(resource, config, new=found is None)
        except Refused as refused:
            if refused.code not in MADE_MEANWHILE:
                raise ProvisionError(f"{resource.label}: {refused}") from None
            if (await self._look(resource))[0].action != "same":
                raise ProvisionError(f"{resource.label}: made in the meantime, with other settings") from None
            return False
        return True

    async def _write(self, resource: Resource, config: Config, *, new: bool) -> None:
        if resource.kind == "consumer":
            request = {"stream_name": resource.stream, "config": config, "action": "create" if new else "update"}
            await self._call(f"CONSUMER.DURABLE.CREATE.{resource.stream}.{resource.name}", request)
        else:
            await self._call(f"STREAM.{'CREATE' if new else 'UPDATE'}.{resource.stream}", config)

    async def _look(self, resource: Resource) -> tuple[Step, Config | None]:
        consumer = resource.kind == "consumer"
        name = f"{resource.stream}.{resource.name}" if consumer else resource.stream
        try:
            info = await self._call(f"{'CONSUMER' if consumer else 'STREAM'}.INFO.{name}")
        except Refused as refused:
            if refused.code not in NOT_FOUND:
                raise
            info = {}
        config: Config | None = info.get("config")
        step = compare(resource, config, info.get("state"))
        if consumer or step.action not in ("create", "change"):
            return step, config
        owned = [] if config is None else config.get("subjects", [])
        added = [subject for subject in resource.config["subjects"] if subject not in owned]
        others = await self._owners(added, resource.stream)
        if others:
            reason = f"its subjects overlap with those of the stream {', '.join(others)}"
            step = Step(resource, "refuse", step.changes, reason)
        return step, config

    async def _owners(self, subjects: Iterable[str], own: str) -> list[str]:
        """Other streams that have some of the subjects."""
        found = [(await self._call("STREAM.NAMES", {"subject": subject}))["streams"] or [] for subject in subjects]
        return sorted({name for names in found for name in names} - {own})

    async def _call(self, name: str, request: Config | None = None) -> dict[str, Any]:
        payload = b"" if request is None else json.dumps(request).encode()
        try:
            message = await self._bus.request(f"{API}.{name}", payload, timeout_s=self._timeout_s)
        except NoResponders:
            raise ProvisionError("JetStream is switched off at this server, or not imported by this account") from None
        except RequestTimeout:
            raise ProvisionError(
                f"no answer from JetStream to {name.partition('.TTS')[0]} within {self._timeout_s:g} s:"
                f" may this user publish to {API}.> and hear its own inbox?"
            ) from None
        answer: dict[str, Any] = json.loads(message.payload)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer


def _heirs(steps: Sequence[Step]) -> list[Step]:
    """A consumer cannot be made where its stream is refused and so may never be."""
    lost = {step.resource.stream for step in steps if step.action == "refuse" and step.resource.kind != "consumer"}
    return [
        Step(step.resource, "refuse", reason=f"the stream {step.resource.stream} is refused")
        if step.resource.kind == "consumer" and step.action == "create" and step.resource.stream in lost
        else step
        for step in steps
    ]
