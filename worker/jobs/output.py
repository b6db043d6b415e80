"""What one chapter of a batch job has written so far: an append-only record that one owner at a time can add to."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from worker.bus import Message
from worker.errors import BadSubject, BusError, MessageTooLarge, WorkerError
from worker.stream import EXPECTED_HEADER, WRONG_LAST_SEQUENCE
from worker.wire.subjects import job_subject

RECORD_HEADER, ID_HEADER = "Tts-Record", "Nats-Msg-Id"
PART_BYTES = 512 * 1024
"""Of a segment's audio in one message; servers take 1 MiB unless configured otherwise."""
NO_MESSAGE = 10037
FULL = frozenset({10002, 10023, 10028, 10047, 10077})
"""Resources, storage or an account's share used up; a stream's maximum reached (nats-server, errors.json)."""
PAUSE_S = 0.1

Kind = Literal["epoch", "segment", "failure", "manifest"]


class OutputAway(WorkerError):
    """JetStream did not take or answer it within the patience given."""


class StorageFull(WorkerError):
    """The stream has no room now: the job pauses, it has not failed."""


class Fenced(WorkerError):
    """Another owner has this chapter: abandon it, and do not acknowledge the job."""


class OutputDamaged(WorkerError):
    """What stands there is no record of ours."""


class Requester(Protocol):
    async def request(
        self, subject: str, payload: bytes, *, headers: Mapping[str, str] | None = None, timeout_s: float
    ) -> Message: ...


@dataclass(frozen=True, slots=True)
class Record:
    """``key`` names what a segment was rendered from, so that other text never takes this audio for its own."""

    kind: Kind
    epoch: int
    index: int = 0
    key: str = ""
    samples: int = 0
    audio_ms: int = 0
    attempt: int = 0
    code: str = ""
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True)
class Appended:
    place: int
    """In the stream."""
    id: str
    record: Record
    payload: bytes


@dataclass(frozen=True, slots=True)
class Progress:
    place: int
    """Of the last record; 0 for none."""
    epoch: int
    finished: bytes | None
    """The manifest."""
    segments: Mapping[int, tuple[str, Sequence[int]]] = field(default_factory=dict)
    """Whole ones by index: content key, and the places of the parts."""
    attempts: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """Failures by index and content key."""

    def first_missing(self, keys: Sequence[str]) -> int:
        """Index of the first segment that is not there, or was rendered from something else."""
        for index, key in enumerate(keys):
            if index not in self.segments or self.segments[index][0] != key:
                return index
        return len(keys)


def output_subject(tenant: str, job: str, chapter: int) -> str:
    """A subject a chapter, because the fence is a subject's: workers may then share a job. Raises WireError."""
    return f"{job_subject('jobout', tenant, job)}.{chapter}"


class Output:
    """Guarantees: after another owner's epoch nothing of this owner is stored. Each append is stored once, however
    often it was sent, since its id is made of the owner, the place that it follows and all that it says. After
    OutputAway the append may have been stored or not; the next one finds out.

    Every call raises OutputAway, OutputDamaged and MessageTooLarge; every append also StorageFull and, for good,
    Fenced. One call at a time.
    """

    def __init__(
        self, bus: Requester, stream: str, subject: str, *, timeout_s: float = 2.0, patience_s: float = 30.0
    ) -> None:
        self._bus, self._stream, self._subject = bus, stream, subject
        self._timeout_s, self._patience_s = timeout_s, patience_s
        self._owner = uuid.uuid4().hex
        self._last = 0
        self.epoch = 0

    async def read(self) -> Progress:
        """All that is there, without claiming it."""
        place, epoch, finished = 0, 0, None
        whole: dict[int, tuple[str, Sequence[int]]] = {}
        attempts: dict[tuple[int, str], int] = {}
        parts: list[int] = []
        while (one := await self._get({"seq": place + 1, "next_by_subj": self._subject})) is not None:
            place, record = one.place, one.record
            epoch = max(epoch, record.epoch)
            # Parts follow one another: a writer that died between them leaves a beginning without an end.
            follows = record.kind == "segment" and record.part == len(parts)
            parts = [*parts, place] if follows else [place] if record.kind == "segment" and record.part == 0 else []
            if record.kind == "segment" and len(parts) == record.parts:
                whole[record.index], parts = (record.key, parts), []
            elif record.kind == "failure":
                attempts[record.index, record.key] = max(attempts.get((record.index, record.key), 0), record.attempt)
            elif record.kind == "manifest":
                finished = one.payload
        return Progress(place, epoch, finished, whole, attempts)

    async def claim(self) -> Progress:
        """Become the owner, unless it is finished. Raises Fenced if another was quicker."""
        progress = await self.read()
        if progress.finished is None:
            self._last, self.epoch = progress.place, progress.epoch + 1
            await self._append(Record("epoch", self.epoch))
        return progress

    async def segment(self, index: int, key: str, audio: bytes, *, samples: int, audio_ms: int, attempt: int) -> None:
        cuts = range(0, max(len(audio), 1), PART_BYTES)
        for part, at in enumerate(cuts):
            record = Record("segment", self.epoch, index, key, samples, audio_ms, attempt, "", part, len(cuts))
            await self._append(record, audio[at : at + PART_BYTES])

    async def failure(self, index: int, key: str, *, attempt: int, code: str) -> None:
        await self._append(Record("failure", self.epoch, index, key, attempt=attempt, code=code))

    async def manifest(self, payload: bytes) -> None:
        """The last record: whoever comes later finds it finished."""
        await self._append(Record("manifest", self.epoch), payload)

    async def audio(self, places: Sequence[int]) -> bytes:
        """Of one segment's parts."""
        found = [await self._get({"seq": place}) for place in places]
        if any(one is None for one in found):
            raise OutputAway("a segment is gone")
        return b"".join(one.payload for one in found if one is not None)

    async def purge(self) -> None:
        """Remove all but the last record. Raises ValueError if that is not the manifest."""
        last = await self._get({"last_by_subj": self._subject})
        if last is None or last.record.kind != "manifest":
            raise ValueError("only a finished chapter is purged")
        await self._ask(f"$JS.API.STREAM.PURGE.{self._stream}", {"filter": self._subject, "keep": 1})

    async def _append(self, record: Record, payload: bytes = b"") -> None:
        said = json.dumps(asdict(record), separators=(",", ":"))
        digest = hashlib.sha256(said.encode() + b"\n" + payload).hexdigest()
        own = f"{self._owner}:{self._last}:{digest}"
        headers = {EXPECTED_HEADER: str(self._last), ID_HEADER: own, RECORD_HEADER: said}
        answer = await self._patiently(self._subject, payload, headers)
        error = answer.get("error")
        if error is None:
            self._last = int(answer["seq"])
        elif error.get("err_code") == WRONG_LAST_SEQUENCE:
            last = await self._get({"last_by_subj": self._subject})
            if last is None or not last.id.startswith(f"{self._owner}:"):
                raise Fenced("another owner has written")
            self._last = last.place
            if last.id != own:  # an earlier append of ours, given up for lost, was stored after all
                await self._append(record, payload)
        elif error.get("err_code") in FULL:
            raise StorageFull(str(error.get("description", "full")))
        else:
            raise OutputAway(str(error.get("description", "refused")))

    async def _get(self, request: Mapping[str, Any]) -> Appended | None:
        """From the stream's leader: a replica may not have the last ones yet."""
        answer = await self._ask(f"$JS.API.STREAM.MSG.GET.{self._stream}", request)
        if "message" not in answer:
            return None
        found = answer["message"]
        lines = base64.b64decode(found.get("hdrs", "")).decode(errors="replace").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if ": " in line)
        try:
            record = Record(**json.loads(headers[RECORD_HEADER]))
        except (KeyError, TypeError, ValueError):
            raise OutputDamaged(f"message {found['seq']} of {self._stream} is no record") from None
        return Appended(found["seq"], headers.get(ID_HEADER, ""), record, base64.b64decode(found.get("data", "")))

    async def _ask(self, subject: str, request: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._patiently(subject, json.dumps(request).encode(), {})
        error = answer.get("error", {})
        if error and error.get("err_code") != NO_MESSAGE:
            raise OutputAway(str(error.get("description", "refused")))
        return answer

    async def _patiently(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        while True:
            try:
                message = await self._bus.request(subject, payload, headers=headers, timeout_s=self._timeout_s)
                if message.payload:
                    answer: dict[str, Any] = json.loads(message.payload)
                    return answer
            except (BadSubject, MessageTooLarge):
                raise
            except BusError as error:
                if loop.time() > until:
                    raise OutputAway(str(error)) from None
            if loop.time() > until:
                raise OutputAway("no answer")
            await asyncio.sleep(PAUSE_S)
