"""Resumable sessions of this worker: kept in the journal, taken over from others, handed over when it leaves."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from dataclasses import dataclass
from typing import Protocol

from engine.contract import ModelInfo
from scheduler.errors import InboxFull
from worker.bus import Bus, Message
from worker.errors import JournalAway, JournalDamaged, WireError
from worker.journal import Journal, Key
from worker.ledger import Ledger
from worker.scribe import JournalScribe
from worker.sections import Settings
from worker.session import LiveSession
from worker.stream import JournalStream
from worker.takeover import TakenOver, peek, take_over
from worker.wire import codec, events, subjects
from worker.wire.journal import Closed, Counters, Opened, encode_entry, session_subject
from worker.wire.requests import Open

log = logging.getLogger(__name__)

ASK_EVERY_S = 0.5
"""Until a worker that leaves asks again for whom nobody has taken."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """An open that is accepted as far as its form goes."""

    tenant: str
    settled: Open
    message: Message
    content: codec.ContentType
    handed_over: bool
    """By a worker that leaves: events go where they went."""


class Reception(Protocol):
    """What of the front desk is used here."""

    model: ModelInfo
    version: str

    def begin(self, arrival: Arrival) -> None:
        """A session that nobody has begun. Raises WireError, InboxFull."""
        ...

    async def bring(self, settled: Open) -> bool:
        """Fetch the voices that a session lacks; whether that took time. Raises WireError."""
        ...

    def make(self, session_id: str, arrival: Arrival, pts: int = 0) -> LiveSession: ...

    def ready(
        self, session: LiveSession, tenant: str, *, text_seq: int = 0, gen: int, since_gen: int, exact: bool
    ) -> events.Ready: ...

    def register(self, session: LiveSession, tenant: str) -> None: ...

    def refuse(self, tenant: str, message: Message, error: WireError) -> None: ...

    def find(self, session_id: str) -> LiveSession | None: ...

    def may_answer(self, tenant: str, reply: str) -> bool: ...

    def retarget(self) -> None:
        """``arriving`` is another number."""
        ...


class Relocation:
    """Guarantee: a session is never here twice, and is spoken here only while the journal says that it is ours."""

    def __init__(self, reception: Reception, stream: JournalStream, bus: Bus, settings: Settings) -> None:
        self._reception, self._stream, self._bus = reception, stream, bus
        self._journal = Journal(
            bus,
            stream,
            settings.journal,
            owner=f"{settings.worker.id}-{secrets.token_hex(6)}",  # two processes may be given one name
            tick_s=reception.model.frame_ms / 1000,
            lost=self._lost,
        )
        self._pool = settings.worker.pool
        self._reach = round(1000 * settings.journal.reach_s / reception.model.frame_ms)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving: dict[str, asyncio.Event] = {}  # sessions that were taken over and still hold a row
        self._asker: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._journal.start()

    async def stop(self) -> None:
        if self._asker is not None:
            self._asker.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        self._journal.stop()

    def mind(self) -> None:
        """Before events of the engine are handled."""
        self._journal.mind()

    @property
    def arriving(self) -> int:
        return len(self._tasks)

    # --- begun here -----------------------------------------------------------------------------------------------

    def enrol(self, session: LiveSession, arrival: Arrival) -> None:
        """A new session is kept from now on."""
        opened = Opened(
            tenant=arrival.tenant,
            session=session.id,
            reply=arrival.message.reply,
            content=arrival.content.value,
            settled=arrival.settled.model_dump(exclude={"type", "text", "final"}, exclude_none=True),
            model=self._reception.model.digest,
            engine=self._reception.version,
            opened_at_s=time.time(),
        )
        counters = Counters(0, 0, 0, arrival.settled.credit_ms, (0, 0, 0))
        self._keep(session, Ledger(opened, counters), epoch=0, falls=0, fell_at_pts=0, place=0)

    def _keep(
        self, session: LiveSession, ledger: Ledger, *, epoch: int, falls: int, fell_at_pts: int, place: int
    ) -> None:
        journal = self._journal
        scribe = JournalScribe(
            ledger,
            epoch=epoch,
            falls=falls,
            fell_at_pts=fell_at_pts,
            place=place,
            reach=self._reach,
            count=session.count,
            suspend=session.egress.route.suspend,
            touch=journal.touch,
            settle=journal.flush,
            closed=journal.close,
        )
        session.scribe = scribe
        session.egress.before_event = scribe.settle
        journal.enrol(scribe)

    # --- come from elsewhere --------------------------------------------------------------------------------------

    def admit(self, arrival: Arrival) -> None:
        """Answers when the journal has been asked whose the session is; until then it counts as ``arriving``."""
        task = self._loop.create_task(self._admit(arrival))
        self._tasks.add(task)
        task.add_done_callback(self._arrived)
        self._reception.retarget()

    def _arrived(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._reception.retarget()

    async def _admit(self, arrival: Arrival) -> None:
        """Root of the task of one open."""
        try:
            await self._settle(arrival)
        except WireError as error:
            self._reception.refuse(arrival.tenant, arrival.message, error)
        except (InboxFull, JournalAway, JournalDamaged) as error:
            log.warning("a session cannot be taken over: %s", error)
            self._reception.refuse(
                arrival.tenant, arrival.message, WireError("no_capacity", "the session cannot be taken over here")
            )
        except Exception:
            log.exception("a session could not be taken over")
            self._reception.refuse(
                arrival.tenant, arrival.message, WireError("internal", "the session could not be taken over")
            )

    async def _settle(self, arrival: Arrival) -> None:
        session_id = arrival.settled.session
        assert session_id is not None
        # An open that waited while this process was stopped is an old one: whoever sent it has asked others since.
        wanted = not self._journal.waking and await self._voices_are_here(arrival.tenant, session_id)
        taken = await take_over(
            self._stream,
            arrival.tenant,
            session_id,
            self._journal.owner,
            fall=not arrival.handed_over,
            wanted=wanted,
        )
        await self._left(session_id)
        if taken is None:
            if not arrival.handed_over:
                self._reception.begin(arrival)
        elif taken.hopeless:
            await self._end(arrival, taken)
        else:
            await self._go_on(arrival, taken)

    async def _voices_are_here(self, tenant: str, session_id: str) -> bool:
        """They are fetched before the session is claimed: its worker may be alive, and others may have them. False:
        meanwhile another worker has it. Raises WireError."""
        held = await peek(self._stream, tenant, session_id)
        if held is None or not await self._reception.bring(Open.model_validate(held.opened.settled)):
            return True
        now = await peek(self._stream, tenant, session_id)
        return now is not None and now.owner == held.owner

    async def _left(self, session_id: str) -> None:
        """If the session was here all the time: until its row is free."""
        session = self._reception.find(session_id)
        if session is not None and session.over:
            await self._leaving.setdefault(session_id, asyncio.Event()).wait()

    async def _go_on(self, arrival: Arrival, taken: TakenOver) -> None:
        ledger = taken.ledger
        if ledger.opened.model != self._reception.model.digest:
            raise WireError("no_capacity", "the session's model is not the one that is loaded here")
        arrival = self._as_opened(arrival, ledger)
        session_id = ledger.opened.session
        session = self._reception.make(session_id, arrival, pts=ledger.origin_pts)
        session.adopt(ledger, time.time() - ledger.opened.opened_at_s)
        self._keep(
            session,
            ledger,
            epoch=taken.epoch,
            falls=taken.falls,
            fell_at_pts=taken.fell_at_pts,
            place=taken.place,
        )
        self._reception.register(session, arrival.tenant)
        ready = self._reception.ready(
            session,
            arrival.tenant,
            text_seq=ledger.counters.text_seq,
            gen=ledger.number,
            since_gen=ledger.since,
            exact=ledger.first == 0,
        )
        await session.go_on(ready, ledger)

    def _as_opened(self, arrival: Arrival, ledger: Ledger) -> Arrival:
        """The session's own options, whoever asks for it; its listeners too, if it was handed over."""
        opened, message, content = ledger.opened, arrival.message, arrival.content
        if arrival.handed_over:
            message = Message(message.subject, opened.reply, b"", message.headers)
            content = codec.ContentType(opened.content)
            if not self._reception.may_answer(arrival.tenant, opened.reply):
                raise WireError("forbidden", "the session's listeners are not its tenant's")
        ledger.opened = Opened(
            opened.tenant,
            opened.session,
            message.reply,
            content.value,
            opened.settled,
            opened.model,
            opened.engine,
            opened.opened_at_s,
        )
        settled = Open.model_validate({**opened.settled, "session": opened.session})
        return Arrival(arrival.tenant, settled, message, content, arrival.handed_over)

    async def _end(self, arrival: Arrival, taken: TakenOver) -> None:
        """Too many workers have died of it."""
        ledger = taken.ledger
        log.error("a session ends: its workers died %d times without new audio", taken.falls)
        await self._stream.put(
            session_subject(arrival.tenant, ledger.opened.session),
            encode_entry(Closed()),
            last=taken.place,
            rollup=True,
        )
        arrival = self._as_opened(arrival, ledger)
        session = self._reception.make(ledger.opened.session, arrival, pts=ledger.counters.pts)
        session.bury(ledger, WireError("model_failure", "the session's workers fail again and again", retryable=False))

    # --- gone elsewhere -------------------------------------------------------------------------------------------

    def _lost(self, key: Key) -> None:
        session = self._reception.find(key[1])
        if session is not None:
            log.info("a session goes on at another worker")
            session.yield_up()

    def gone(self, session_id: str) -> None:
        """The session's row is free."""
        event = self._leaving.pop(session_id, None)
        if event is not None:
            event.set()

    def leave(self) -> None:
        """Ask the others to take what is here, again and again; until they do, it goes on here."""
        self._asker = self._loop.call_later(ASK_EVERY_S, self.leave)
        for tenant, session_id in self._journal.sessions:
            body = json.dumps({"type": "open", "session": session_id, "resume": True}).encode()
            headers = {"Content-Type": "application/json", codec.HANDOVER_HEADER: self._journal.owner}
            subject = subjects.pool_subject("open", tenant, self._pool)
            self._bus.publish(subject, body, headers=headers)
