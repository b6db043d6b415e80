"""The journal's stream in JetStream: provisioned, written with compare-and-set, read back in order."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from worker.bus import Bus, Message
from worker.errors import BusError, JournalAway, JournalConflict, NoResponders
from worker.sections import JournalSettings
from worker.wire.journal import EVERYTHING

API = "$JS.API"
EXPECTED_HEADER = "Nats-Expected-Last-Subject-Sequence"
ROLLUP = {"Nats-Rollup": "sub"}
"""What the subject held before goes with this message."""
BATCH = 256
WRONG_LAST_SEQUENCE = 10071
STREAM_NOT_FOUND = 10059
_NOT_FOUND, _END_OF_BATCH = "404", "204"


@dataclass(frozen=True, slots=True)
class Stored:
    place: int
    """In the stream."""
    payload: bytes


def journal_config(settings: JournalSettings) -> dict[str, Any]:
    """Of the journal's stream, as JetStream takes it."""
    return {
        "name": settings.stream,
        "subjects": [EVERYTHING],
        "retention": "limits",
        "discard": "old",
        "storage": settings.storage,
        "num_replicas": settings.replicas,
        "max_age": round(settings.age_s * 1e9),
        "max_bytes": settings.max_bytes,
        "max_msgs": -1,
        "max_consumers": -1,
        "duplicate_window": round(min(120.0, settings.age_s) * 1e9),
        "allow_direct": True,
        "allow_rollup_hdrs": True,
    }


class JournalStream:
    """Every call raises JournalAway if JetStream does not answer in time, or says that it will not."""

    def __init__(self, bus: Bus, settings: JournalSettings, timeout_s: float = 1.0) -> None:
        self._bus, self._settings, self._timeout_s = bus, settings, timeout_s
        self._name = settings.stream
        self._replicated = False

    async def provision(self) -> None:
        """Make the stream unless there is one. An operator's own is taken as it is, if it can serve."""
        try:
            config = (await self._call(f"STREAM.INFO.{self._name}"))["config"]
        except _Refused as refused:
            if refused.code != STREAM_NOT_FOUND:
                raise
            config = (await self._call(f"STREAM.CREATE.{self._name}", journal_config(self._settings)))["config"]
        missing = [name for name in ("allow_direct", "allow_rollup_hdrs") if not config.get(name)]
        if missing or EVERYTHING not in config.get("subjects", []):
            lacks = ", ".join(missing) or f"the subjects {EVERYTHING}"
            raise JournalAway(f"the stream {self._name} is there, but without {lacks}")
        self._replicated = config.get("num_replicas", 1) > 1

    async def put(self, subject: str, payload: bytes, *, last: int | None = None, rollup: bool = False) -> int:
        """Returns the message's place. ``last``: place of the subject's last message, or 0 for none.

        Raises JournalConflict if that is another.
        """
        headers = dict(ROLLUP) if rollup else {}
        if last is not None:
            headers[EXPECTED_HEADER] = str(last)
        return place_of(await self._request(subject, payload, headers), subject)

    async def last(self, subject: str) -> Stored | None:
        return _stored(await self._request(f"{API}.DIRECT.GET.{self._name}.{subject}", b""))

    async def get(self, place: int) -> Stored | None:
        return await self._get({"seq": place})

    async def between(self, subject: str, after: int, before: int | None = None) -> list[Stored]:
        """The subject's messages behind one place and before another, in order."""
        found: list[Stored] = []
        place = after + 1
        while before is None or place < before:
            batch = await self._next(subject, place)
            found += [each for each in batch if before is None or each.place < before]
            if not batch or (before is not None and batch[-1].place >= before):
                break
            place = batch[-1].place + 1
        return found

    async def _next(self, subject: str, place: int) -> list[Stored]:
        """Some messages of the subject from a place on; none if there are none."""
        request: dict[str, Any] = {"seq": place, "next_by_subj": subject}
        if self._replicated:  # a replica that answers directly may not have the last ones yet: ask the leader
            one = await self._get(request)
            return [] if one is None else [one]
        return await self._batch({**request, "batch": BATCH})

    async def _get(self, request: dict[str, Any]) -> Stored | None:
        """From the stream's leader."""
        if not self._replicated:
            message = await self._request(f"{API}.DIRECT.GET.{self._name}", json.dumps(request).encode())
            return _stored(message)
        try:
            found = (await self._call(f"STREAM.MSG.GET.{self._name}", request))["message"]
        except _Refused as refused:
            if refused.status == 404:
                return None
            raise
        return Stored(found["seq"], base64.b64decode(found.get("data", "")))

    async def _batch(self, request: dict[str, Any]) -> list[Stored]:
        found: list[Stored] = []
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def hear(message: Message) -> None:
            one = _stored(message)
            if one is not None:
                found.append(one)
            elif not done.done():
                done.set_result(None)

        inbox = self._bus.new_inbox()
        subscription = self._bus.subscribe(inbox, hear)
        try:
            if not self._bus.publish(f"{API}.DIRECT.GET.{self._name}", json.dumps(request).encode(), reply=inbox):
                raise JournalAway("not connected")
            async with asyncio.timeout(self._timeout_s + 0.01 * BATCH):
                await done
        except TimeoutError:
            raise JournalAway("a batch of records did not come") from None
        finally:
            subscription.close()
        return found

    async def _request(self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None) -> Message:
        try:
            return await self._bus.request(subject, payload, headers=headers, timeout_s=self._timeout_s)
        except NoResponders:
            raise JournalAway("no JetStream, or no such stream") from None
        except BusError as error:
            raise JournalAway(str(error)) from None

    async def _call(self, name: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        message = await self._request(f"{API}.{name}", json.dumps(request).encode() if request else b"")
        answer: dict[str, Any] = json.loads(message.payload)
        if "error" in answer:
            raise _Refused(answer["error"])
        return answer


class _Refused(JournalAway):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("description", "refused")))
        self.code, self.status = error.get("err_code", 0), error.get("code", 0)


def place_of(ack: Message, subject: str) -> int:
    """Where a published message was stored. Raises JournalConflict, JournalAway."""
    if ack.no_responders:
        raise JournalAway("no JetStream, or no such stream")
    try:
        answer = json.loads(ack.payload)
    except ValueError:
        raise JournalAway("an answer that is no acknowledgement") from None
    error = answer.get("error")
    if error is not None:
        if error.get("err_code") == WRONG_LAST_SEQUENCE:
            raise JournalConflict(subject)
        raise JournalAway(str(error.get("description", "refused")))
    return int(answer["seq"])


def _stored(message: Message) -> Stored | None:
    """None: there is none, or the batch is over."""
    status = message.headers.get("Status")
    if status in (_NOT_FOUND, _END_OF_BATCH):
        return None
    if status is not None:
        raise JournalAway(f"status {status} {message.headers.get('Description', '')}")
    return Stored(int(message.headers["Nats-Sequence"]), message.payload)
