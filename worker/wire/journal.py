"""The journal's subjects and records: what a worker keeps of a resumable session, for whoever takes it over.

```
tts.journal.v1.s.<tenant>.<sid>   checkpoint | claim | closed: one session's owner, compared and set
tts.journal.v1.w.<owner>          tick: what all sessions of one owner have done since the last
tts.journal.v1.f.<owner>          fence: a session of that owner is another's now
```
One stream orders all of them. A session is its last checkpoint, and behind it the ticks of each owner while it was one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgpack

from worker.errors import JournalDamaged
from worker.wire.subjects import check_session, check_token

PREFIX = "tts.journal.v1"
EVERYTHING = f"{PREFIX}.>"
VERSION = 1

OrderKind = Literal["opening", "speaker", "text", "flush", "finish"]
Order = tuple[OrderKind, str]
"""What the producer said, in its order; the text of an opening has no number, and that of a speaker is its index."""


def session_subject(tenant: str, session: str) -> str:
    return f"{PREFIX}.s.{check_token('tenant', tenant)}.{check_session(session)}"


def owner_subject(owner: str) -> str:
    return f"{PREFIX}.w.{owner}"


def fence_subject(owner: str) -> str:
    return f"{PREFIX}.f.{owner}"


@dataclass(frozen=True, slots=True)
class Counters:
    """Where a session stands when a record is written; absolute."""

    seq: int
    """Of the next audio message."""
    pts: int
    text_seq: int
    credit_ms: float | None
    """That is left; None: no credit scheme."""
    usage: tuple[int, int, int]
    """Characters, words, frames."""
    first_audio_ms: float | None = None
    queued_ms: float = 0.0
    stalled_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a generation may be begun when what came before is left out: at a step that begins a word of the text."""

    step: int
    """Of the generation, from 0."""
    offset: int
    """Characters of its text before the word, or before the white space in front of it."""
    seq: int
    pts: int


@dataclass(frozen=True, slots=True)
class Restart:
    """A generation begins."""

    number: int
    since: int
    """Numbers from here on mean this generation too."""
    spoken: str
    unspoken: str
    """Of the one before, as its ``cancelled`` said."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What one session has done since the record before; a restart comes first."""

    counters: Counters
    orders: tuple[Order, ...] = ()
    records: tuple[bytes, ...] = ()
    """Of the steps that were committed (``engine.contract.SlotFrame.record``)."""
    answered: int = 0
    """Flushes."""
    restart: Restart | None = None
    origin: tuple[int, int] | None = None
    """Of the generation that begins: seq and pts."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What does not change while a session lives."""

    tenant: str
    session: str
    reply: str
    content: str
    settled: dict[str, Any] = field(repr=False)
    model: str
    """Digest."""
    engine: str
    """Version."""
    opened_at_s: float
    """Unix time."""


HERE = 0
"""As the end of a segment: where the claim itself stands."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The ticks of one owner count where they stand between two places of the stream."""

    owner: str
    after: int
    before: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All of a session."""

    owner: str
    epoch: int
    """Take-overs so far."""
    falls: int
    """Take-overs since the last five seconds of audio."""
    fell_at_pts: int
    state: dict[str, Any] = field(repr=False)
    """``worker.ledger.Ledger`` as plain values."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Another owner, which has not yet written a checkpoint of its own."""

    owner: str
    epoch: int
    base: int
    """Place of the last checkpoint."""
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    """The session has ended."""


@dataclass(frozen=True, slots=True)
class Fence:
    tenant: str
    session: str
    epoch: int
    """From which on the session is another's."""


Entry = Checkpoint | Claim | Closed


@dataclass(frozen=True, slots=True)
class TickPart:
    tenant: str
    session: str
    epoch: int
    delta: Delta


def encode_entry(entry: Entry) -> bytes:
    match entry:
        case Checkpoint():
            fields = ["checkpoint", entry.owner, entry.epoch, entry.falls, entry.fell_at_pts, entry.state]
        case Claim():
            segments = [[s.owner, s.after, s.before] for s in entry.segments]
            fields = ["claim", entry.owner, entry.epoch, entry.base, segments]
        case Closed():
            fields = ["closed"]
    return _pack([VERSION, *fields])


def decode_entry(payload: bytes) -> Entry:
    """Raises JournalDamaged."""
    match _unpack(payload):
        case ["checkpoint", str(owner), int(epoch), int(falls), int(fell_at), dict(state)]:
            return Checkpoint(owner, epoch, falls, fell_at, state)
        case ["claim", str(owner), int(epoch), int(base), list(segments)]:
            return Claim(owner, epoch, base, tuple(Segment(*segment) for segment in segments))
        case ["closed"]:
            return Closed()
    raise JournalDamaged("an entry of no known kind")


def encode_fence(fence: Fence) -> bytes:
    return _pack([VERSION, fence.tenant, fence.session, fence.epoch])


def decode_fence(payload: bytes) -> Fence:
    """Raises JournalDamaged."""
    match _unpack(payload):
        case [str(tenant), str(session), int(epoch)]:
            return Fence(tenant, session, epoch)
    raise JournalDamaged("no fence")


def encode_tick(parts: Sequence[TickPart]) -> bytes:
    return _pack([VERSION, *([p.tenant, p.session, p.epoch, pack_delta(p.delta)] for p in parts)])


def parts_of(payload: bytes, tenant: str, session: str) -> list[TickPart]:
    """What a tick says of one session. Raises JournalDamaged."""
    try:
        return [
            TickPart(one, name, epoch, unpack_delta(delta))
            for one, name, epoch, delta in _unpack(payload)
            if (one, name) == (tenant, session)
        ]
    except (TypeError, ValueError):
        raise JournalDamaged("a tick of another form") from None


def pack_delta(delta: Delta) -> list[Any]:
    counters, restart = delta.counters, delta.restart
    numbers = [counters.seq, counters.pts, counters.text_seq, counters.credit_ms, list(counters.usage)]
    times = [counters.first_audio_ms, counters.queued_ms, counters.stalled_ms]
    begun = None if restart is None else [restart.number, restart.since, restart.spoken, restart.unspoken]
    return [
        numbers + times,
        [list(order) for order in delta.orders],
        *pack_records(delta.records),
        delta.answered,
        begun,
        delta.origin,
    ]


def unpack_delta(fields: list[Any]) -> Delta:
    numbers, orders, records, size, answered, begun, origin = fields
    return Delta(
        unpack_counters(numbers),
        tuple((kind, text) for kind, text in orders),
        unpack_records(records, size),
        answered,
        None if begun is None else Restart(*begun),
        None if origin is None else (origin[0], origin[1]),
    )


def unpack_counters(numbers: list[Any]) -> Counters:
    seq, pts, text_seq, credit_ms, usage, *times = numbers
    return Counters(seq, pts, text_seq, credit_ms, (usage[0], usage[1], usage[2]), *times)


def pack_records(records: Sequence[bytes]) -> tuple[bytes, int]:
    """All of a session's are of one size."""
    return b"".join(records), len(records[0]) if records else 0


def unpack_records(records: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(records[at : at + size] for at in range(0, len(records), size)) if size else ()


def _pack(value: object) -> bytes:
    packed: bytes = msgpack.packb(value, unicode_errors="surrogatepass")
    return packed


def _unpack(payload: bytes) -> list[Any]:
    try:
        value = msgpack.unpackb(payload, unicode_errors="surrogatepass")
    except (ValueError, msgpack.UnpackException):
        raise JournalDamaged("not msgpack") from None
    match value:
        case [int(version), *rest] if version == VERSION:
            return rest
    raise JournalDamaged("of another version")
