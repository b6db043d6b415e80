"""Making a session one's own: claim it in the journal, then put together what its owners have written."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from worker.errors import JournalConflict, JournalDamaged, WireError
from worker.ledger import Ledger
from worker.scribe import STEADY_S
from worker.stream import JournalStream, Stored
from worker.wire import journal as wire

MOST_FALLS = 2
"""Take-overs without ``STEADY_S`` of new audio; then the session ends, for its text may be what kills its workers."""
TRIES = 3


@dataclass(frozen=True, slots=True)
class TakenOver:
    ledger: Ledger
    epoch: int
    falls: int
    place: int
    """Of the claim."""
    fell_at_pts: int

    @property
    def hopeless(self) -> bool:
        return self.falls > MOST_FALLS


@dataclass(frozen=True, slots=True)
class Held:
    owner: str
    opened: wire.Opened


async def peek(stream: JournalStream, tenant: str, session: str) -> Held | None:
    """Whose a session is, and how it was opened; None: there is none. Raises JournalAway, JournalDamaged."""
    stored = await stream.last(wire.session_subject(tenant, session))
    entry = wire.Closed() if stored is None else wire.decode_entry(stored.payload)
    if isinstance(entry, wire.Closed):
        return None
    checkpoint = entry if isinstance(entry, wire.Checkpoint) else _checkpoint(await stream.get(entry.base))
    return Held(entry.owner, Ledger.load(checkpoint.state).opened)


async def take_over(
    stream: JournalStream, tenant: str, session: str, owner: str, *, fall: bool, wanted: bool = True
) -> TakenOver | None:
    """None: there is no such session. ``fall``: its worker is thought dead. ``wanted``: if there is one, take it.

    The claim is the border: what the old owner writes behind it counts for nothing, wherever it is in the world. It is
    told so, in case it lives.

    Raises WireError (no_session: it has ended), JournalAway, JournalDamaged.
    """
    subject = wire.session_subject(tenant, session)
    for _ in range(TRIES):
        stored = await stream.last(subject)
        if stored is None:
            return None
        entry = wire.decode_entry(stored.payload)
        if isinstance(entry, wire.Closed):
            raise WireError("no_session", "the session has ended")
        if not wanted:
            raise WireError("no_capacity", "the session is another worker's")
        claim = _claim(entry, stored.place, owner)
        try:
            place = await stream.put(subject, wire.encode_entry(claim), last=stored.place)
        except JournalConflict:
            continue
        fence = wire.Fence(tenant, session, claim.epoch)
        await stream.put(wire.fence_subject(entry.owner), wire.encode_fence(fence))
        return await _read(stream, (tenant, session), claim, place, fall)
    raise WireError("no_capacity", "others are taking the session over")


def _claim(entry: wire.Checkpoint | wire.Claim, place: int, owner: str) -> wire.Claim:
    """``place``: of the entry. The last segment ends where the claim will stand."""
    if isinstance(entry, wire.Checkpoint):
        return wire.Claim(owner, entry.epoch + 1, place, (wire.Segment(entry.owner, place, wire.HERE),))
    segments = [dataclasses.replace(s, before=place) if s.before == wire.HERE else s for s in entry.segments]
    return wire.Claim(owner, entry.epoch + 1, entry.base, (*segments, wire.Segment(entry.owner, place, wire.HERE)))


async def _read(stream: JournalStream, key: tuple[str, str], claim: wire.Claim, place: int, fall: bool) -> TakenOver:
    checkpoint = _checkpoint(await stream.get(claim.base))
    ledger = Ledger.load(checkpoint.state)
    for segment in claim.segments:
        before = place if segment.before == wire.HERE else segment.before
        for stored in await stream.between(wire.owner_subject(segment.owner), segment.after, before):
            for part in wire.parts_of(stored.payload, *key):
                ledger.apply(part.delta)
        ledger.take_over()
    rate, pts = ledger.opened.settled["format"]["sample_rate"], ledger.counters.pts
    steady = pts - checkpoint.fell_at_pts >= STEADY_S * rate
    earlier = len(claim.segments) - 1  # owners that did not get as far as a checkpoint
    falls = (0 if steady else checkpoint.falls) + earlier + fall
    return TakenOver(ledger, claim.epoch, falls, place, pts if fall else checkpoint.fell_at_pts)


def _checkpoint(stored: Stored | None) -> wire.Checkpoint:
    entry = None if stored is None else wire.decode_entry(stored.payload)
    if not isinstance(entry, wire.Checkpoint):
        raise JournalDamaged("a claim without its checkpoint")
    return entry
