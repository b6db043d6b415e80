"""The journal of this worker's resumable sessions: one message a tick, one checkpoint a session now and then.

Order is all. Everything of one worker goes through one connection, so the server takes it in the order in which it was
sent: audio first, then the tick that tells of it, so that what the journal tells of was sent; text first in the
journal, then whatever confirms it, so that no producer forgets what nobody remembers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence

from worker.bus import Bus, Message
from worker.errors import BusUnavailable, JournalAway, JournalConflict, JournalDamaged, MessageTooLarge
from worker.scribe import STEADY_S, JournalScribe
from worker.sections import JournalSettings
from worker.stream import EXPECTED_HEADER, ROLLUP, JournalStream, place_of
from worker.wire import journal as wire

log = logging.getLogger(__name__)

CHECKPOINT_S = 10.0
"""Between two checkpoints of a session that speaks: so much of the ticks a taker has to read."""
BEAT_S = 1.0
"""Longest silence of a worker with resumable sessions."""
DOUBT_S = 2.5
"""Without an acknowledgement for so long, a worker no longer knows that its sessions are its own."""
TICK_BYTES = 256 * 1024
PONG_S = 1.0
WAKING_S = 0.5

Key = tuple[str, str]


class Journal:
    """Guarantees: a session that another worker has taken over is given up with the first word of it, whether that is
    the taker's fence, a checkpoint that comes too late, or, after a time in which this worker was stopped or cut off,
    what the stream says; until then, in such a time, its events are withheld.

    Where JetStream does not answer while NATS does, sessions go on without protection, and nobody can take them over.
    """

    def __init__(
        self,
        bus: Bus,
        stream: JournalStream,
        settings: JournalSettings,
        *,
        owner: str,
        tick_s: float,
        lost: Callable[[Key], None],
    ) -> None:
        """``owner``: this process, and no other at any time. ``lost``: another worker has the session."""
        self._bus, self._stream, self._settings = bus, stream, settings
        self.owner, self._tick_s, self._lost = owner, tick_s, lost
        self._loop = asyncio.get_running_loop()
        self._scribes: dict[Key, JournalScribe] = {}
        self._inbox = bus.new_inbox()
        self._numbers = itertools.count(1)
        self._unacknowledged: dict[int, tuple[float, JournalScribe | None]] = {}
        self._ticked_at = self._confirmed_at = self._awake_at = 0.0
        self._beat_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._beat_timer: asyncio.TimerHandle | None = None
        self._verifying: asyncio.Task[None] | None = None
        self._fences_read_to = 0
        self._away = False

    def start(self) -> None:
        self._bus.subscribe(f"{self._inbox}.*", self._acknowledged)
        self._bus.subscribe(wire.fence_subject(self.owner), self._fenced)
        self._bus.on_offline(self._suspend)
        self._bus.on_online(self._doubt)
        self._beat()

    def stop(self) -> None:
        """Whoever is still noted can be taken over."""
        self.flush()
        for timer in (self._timer, self._beat_timer):
            if timer is not None:
                timer.cancel()
        if self._verifying is not None:
            self._verifying.cancel()

    @property
    def sessions(self) -> Sequence[Key]:
        return list(self._scribes)

    @property
    def waking(self) -> bool:
        """This process was stopped until a moment ago: what it reads now was said to it long ago."""
        now = self._loop.time()
        return now < self._awake_at or now - self._beat_at > DOUBT_S

    # --- sessions -------------------------------------------------------------------------------------------------

    def enrol(self, scribe: JournalScribe) -> None:
        """From now on the session is kept; its first checkpoint goes out ahead of all that is sent next."""
        if not self._scribes:
            self._confirmed_at = self._loop.time()
        self._scribes[scribe.key] = scribe
        self._checkpoint(scribe)

    def close(self, scribe: JournalScribe) -> None:
        """The session has ended. Its entry says so once the place of the one before is known."""
        scribe.ended = True
        if scribe.checkpoint_under_way:
            return
        if self._scribes.pop(scribe.key, None) is scribe:
            headers = {**ROLLUP, EXPECTED_HEADER: str(scribe.place)}
            self._bus.publish(wire.session_subject(*scribe.key), wire.encode_entry(wire.Closed()), headers=headers)

    def touch(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_at(self._ticked_at + self._tick_s, self.flush)

    def flush(self) -> None:
        """Tell the stream what is new, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._loop.time()
        scribes = list(self._scribes.values())
        parts = [(scribe, part) for scribe in scribes if (part := scribe.take()) is not None]
        if parts:
            self._ticked_at = now
            self._tick(parts)
        for scribe in scribes:
            if scribe.due or (scribe.changed_since_checkpoint and now - scribe.checkpoint_at > CHECKPOINT_S):
                self._checkpoint(scribe)

    def _tick(self, parts: Sequence[tuple[JournalScribe, wire.TickPart]]) -> None:
        packed = wire.encode_tick([part for _, part in parts])
        if len(packed) > TICK_BYTES and len(parts) > 1:
            half = len(parts) // 2
            self._tick(parts[:half])
            self._tick(parts[half:])
        elif not self._send(wire.owner_subject(self.owner), packed, None):
            for scribe, _ in parts:
                scribe.due = True

    def _checkpoint(self, scribe: JournalScribe) -> None:
        if scribe.checkpoint_under_way:
            return
        counters, rate = scribe.ledger.counters, scribe.ledger.opened.settled["format"]["sample_rate"]
        if counters.pts - scribe.fell_at_pts >= STEADY_S * rate:
            scribe.falls, scribe.fell_at_pts = 0, counters.pts
        entry = wire.Checkpoint(self.owner, scribe.epoch, scribe.falls, scribe.fell_at_pts, scribe.ledger.dump())
        headers = {**ROLLUP, EXPECTED_HEADER: str(scribe.place)}
        sent = self._send(wire.session_subject(*scribe.key), wire.encode_entry(entry), scribe, headers)
        scribe.due, scribe.checkpoint_under_way = not sent, sent
        scribe.checkpoint_at, scribe.changed_since_checkpoint = self._loop.time(), False

    def _send(
        self, subject: str, payload: bytes, scribe: JournalScribe | None, headers: dict[str, str] | None = None
    ) -> bool:
        number = next(self._numbers)
        try:
            sent = self._bus.publish(subject, payload, headers=headers, reply=f"{self._inbox}.{number}")
        except MessageTooLarge as error:
            log.warning("a record of the journal does not fit a message: %s", error)
            return False
        if sent:
            self._unacknowledged[number] = (self._loop.time(), scribe)
        return sent

    # --- answers --------------------------------------------------------------------------------------------------

    def _acknowledged(self, message: Message) -> None:
        number = message.subject.rpartition(".")[2]
        sent_at, scribe = self._unacknowledged.pop(int(number), (0.0, None)) if number.isdecimal() else (0.0, None)
        if scribe is not None:
            scribe.checkpoint_under_way = False
        try:
            place = place_of(message, wire.PREFIX)
        except JournalConflict:
            if scribe is not None:
                self._lose(scribe.key, scribe.epoch + 1)
        except JournalAway as error:
            self._complain(error)
            if scribe is not None:
                scribe.due = True
        else:
            self._away = False
            self._confirmed_at = max(self._confirmed_at, sent_at)
            if scribe is not None:
                scribe.place = place
                if scribe.ended:
                    self.close(scribe)

    def _fenced(self, message: Message) -> None:
        try:
            fence = wire.decode_fence(message.payload)
        except JournalDamaged:
            log.warning("a fence cannot be read")
            return
        self._lose((fence.tenant, fence.session), fence.epoch)

    def _lose(self, key: Key, epoch: int) -> None:
        scribe = self._scribes.get(key)
        if scribe is not None and scribe.epoch < epoch:
            del self._scribes[key]
            self._lost(key)

    def _complain(self, error: JournalAway) -> None:
        if not self._away:
            log.warning("sessions go on without a journal: %s", error)
        self._away = True

    # --- doubt ----------------------------------------------------------------------------------------------------

    def mind(self) -> None:
        """Before anything is sent: is it still certain that what is noted here is ours?"""
        late = self._loop.time() - self._confirmed_at > DOUBT_S
        if late and self._scribes and not self._away and self._verifying is None:
            self._doubt()

    def _suspend(self) -> None:
        for scribe in self._scribes.values():
            scribe.suspend(True)

    def _doubt(self) -> None:
        if self._scribes:
            self._suspend()
            if self._verifying is None:
                self._verifying = self._loop.create_task(self._verify())

    async def _verify(self) -> None:
        """Root of the task that asks the stream which sessions are still ours."""
        try:
            for stored in await self._stream.between(wire.fence_subject(self.owner), self._fences_read_to):
                self._fences_read_to = stored.place
                fence = wire.decode_fence(stored.payload)
                self._lose((fence.tenant, fence.session), fence.epoch)
        except JournalAway as error:
            self._complain(error)
        except JournalDamaged:
            log.warning("a fence cannot be read")
        connected = await self._connected()
        self._verifying = None
        if not connected:
            self._loop.call_later(BEAT_S, self._doubt)
        else:
            self._confirmed_at = self._loop.time()
            for scribe in list(self._scribes.values()):
                scribe.suspend(False)
                scribe.due = True
            self.touch()

    async def _connected(self) -> bool:
        """Whether the server is there: a cut that nobody closes looks like a connection."""
        try:
            await self._bus.barrier(PONG_S)
        except BusUnavailable:
            return False
        return True

    def _beat(self) -> None:
        """Every second: whoever keeps records is heard of, and so learns whether it is heard."""
        self._beat_timer = self._loop.call_later(BEAT_S, self._beat)
        now = self._loop.time()
        if now - self._beat_at > DOUBT_S:
            self._awake_at = now + WAKING_S
        self._beat_at = now
        self.mind()
        overdue = [number for number, (at, _) in self._unacknowledged.items() if now - at > DOUBT_S]
        for number in overdue:
            _, scribe = self._unacknowledged.pop(number)
            if scribe is not None:
                scribe.checkpoint_under_way = False
        if overdue:  # ticks may be missing in the stream
            for scribe in self._scribes.values():
                scribe.due = True
        stale = [s for s in self._scribes.values() if now - s.checkpoint_at > self._settings.age_s / 3]
        for scribe in stale:
            scribe.due = True
        self.flush()
        if self._scribes and now - self._ticked_at > BEAT_S / 2:
            self._send(wire.owner_subject(self.owner), wire.encode_tick([]), None)
