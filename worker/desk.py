"""The front desk: opens become sessions, messages and engine events find theirs, and free slots become tokens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from engine.contract import ModelInfo
from scheduler import messages as sched
from scheduler.errors import InboxFull
from worker.bus import Bus, Message
from worker.errors import BusError, WireError, bad_request
from worker.greenroom import GreenRoom, Guest
from worker.narration import Opening
from worker.outfitter import Outfitter
from worker.plumbing import Plumbing
from worker.porter import Porter
from worker.relocation import Arrival, Relocation
from worker.seat import Place
from worker.sections import Settings
from worker.session import LiveSession
from worker.stream import JournalStream
from worker.telemetry import Telemetry
from worker.tokens import SlotTokens
from worker.wire import codec, events, subjects
from worker.wire.offer import Offer
from worker.wire.requests import Open

log = logging.getLogger(__name__)

TICK_S = 1.0
EGRESS_FULL_BYTES = 128 * 1024
EGRESS_POLL_S = 0.02
SEED_BITS = 53
"""Of a seed made here: every JSON reader keeps these exactly."""


class FrontDesk:
    """Guarantees: a request is answered or dropped before anything is awaited, and its token is back first (but one
    that is in order and whose voice is not here yet waits in the green room, and is counted there); one session's fault
    never reaches another; a row that a session holds is counted until the engine says it is free."""

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        model: ModelInfo,
        telemetry: Telemetry,
        *,
        submit: Callable[[sched.Command], None],
        limit: Callable[[], int],
        opening: Callable[[Open], Opening],
        greenroom: GreenRoom,
        reader: Executor,
        version: str,
        slots: int,
        journal: JournalStream | None = None,
    ) -> None:
        """``limit``: sessions that admission allows now; ``slots``: rows of the engine; ``opening``: how the text of
        such a session is read, or WireError; ``reader``: where, if it is long; ``journal``: where resumable sessions
        are kept, if there are any."""
        self._bus, self._settings, self.model, self._telemetry = bus, settings, model, telemetry
        self._submit_to, self._limit_now, self.version, self._slots = submit, limit, version, slots
        self._opening, self._greenroom = opening, greenroom
        self._porter = Porter(settings, telemetry, asyncio.get_running_loop().time)
        self.may_answer = self._porter.may_answer
        worker = settings.worker
        self._offer = Offer.of(model, worker, resume=journal is not None)
        self._sessions: dict[str, LiveSession] = {}
        self._tenants: dict[str, str] = {}
        self._loop = asyncio.get_running_loop()
        self._full_bytes = min(EGRESS_FULL_BYTES, settings.nats.pending_bytes // 2)  # before anything is shed
        self._plumbing = Plumbing(
            submit=self._submit,
            reader=reader,
            telemetry=telemetry,
            now=self._loop.time,
            frame_samples=model.frame_samples,
            sample_rate=model.sample_rate,
            text_chars=worker.text_chars,
            buffer_chars=worker.buffer_chars,
            may_park=lambda: self._parked() < slots,
            rows_changed=self.retarget,
            egress_full=lambda: bus.pending_bytes > self._full_bytes,
        )
        self._fit = Outfitter(
            bus, settings, model, telemetry, self._offer, opening, version, self._plumbing, self._porter
        )
        self.make, self.ready = self._fit.make, self._fit.ready
        self._relocation = None if journal is None else Relocation(self, journal, bus, settings)
        self._tokens = SlotTokens(bus, subjects.pool_wildcard("open", worker.pool), "tts", self._open)
        self._unsent: deque[sched.Cancel] = deque()
        self._draining = False
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def sessions(self) -> int:
        """Live, or waiting for their voices."""
        return len(self._sessions) + len(self._greenroom)

    def find(self, session_id: str) -> LiveSession | None:
        return self._sessions.get(session_id)

    @property
    def draining(self) -> bool:
        return self._draining

    def start(self) -> None:
        """Subscribe and arm the first tokens."""
        worker = self._settings.worker
        self._bus.subscribe(subjects.input_wildcard(worker.id), self._input)
        self._bus.subscribe(subjects.pool_wildcard("info", worker.pool), self._info, queue="tts-info")
        self._bus.on_online(self._telemetry.reconnected)
        if self._relocation is not None:
            self._relocation.start()
        self.retarget()
        self._every(TICK_S, self._tick)
        self._every(EGRESS_POLL_S, self._relieve)

    async def drain(self, grace_s: float) -> None:
        """Take no more sessions; return when the last has ended, or end them (``shutdown``) when the time is up."""
        self._draining = True
        await self._tokens.aclose()
        if self._relocation is not None:
            self._relocation.leave()
        try:
            async with asyncio.timeout(grace_s):
                await self._emptied.wait()
        except TimeoutError:
            log.warning("%d sessions are ended: the drain's grace is over", self.sessions)
        await self.shut()

    async def shut(self) -> None:
        """End every session now."""
        self._draining = True
        await self._tokens.aclose()
        await self._greenroom.close()
        for session in list(self._sessions.values()):
            session.close("shutdown")
        for timer in self._timers:
            timer.cancel()
        if self._relocation is not None:
            await self._relocation.stop()

    # --- requests -------------------------------------------------------------------------------------------------

    def _open(self, message: Message) -> None:
        tenant = ""

        def accept() -> None:
            nonlocal tenant
            tenant = subjects.parse_pool_subject("open", message.subject).tenant
            if codec.HANDOVER_HEADER in message.headers or self.may_answer(tenant, message.reply):
                self._accept(tenant, message)
            else:
                self._tokens.refuse()

        error = _attempt(accept)
        if error is not None:
            self.refuse(tenant, message, error)

    def refuse(self, tenant: str, message: Message, error: WireError) -> None:
        if codec.HANDOVER_HEADER in message.headers:
            self._tokens.give_back()
            return  # whoever leaves asks again
        if error.code == "no_capacity":
            self._tokens.give_back()
        else:
            self._tokens.refuse()
        self._turn_away(tenant, message, error)

    def _turn_away(self, tenant: str, message: Message, error: WireError) -> None:
        self._telemetry.open_refused(error.code, tenant)
        self._answer(message, events.Error.of(error), codec.answer_type(message.headers))

    def _accept(self, tenant: str, message: Message) -> None:
        """Raises WireError."""
        self._porter.check_served(tenant)
        content = codec.content_type_of(message.headers, message.payload).answer
        request = codec.decode_open(message.headers, message.payload)
        settled = self._offer.settle(request, seed=secrets.randbits(SEED_BITS))
        if self._draining or self._occupied() >= self._limit_now():
            raise WireError("no_capacity", "no free slot")
        arrival = Arrival(tenant, settled, message, content, codec.HANDOVER_HEADER in message.headers)
        self._porter.check_sessions(arrival, self._tenants, self._sessions)
        if self._relocation is not None and settled.resume and settled.session is not None:
            self._relocation.admit(arrival)
        elif arrival.handed_over:
            raise bad_request("a session that is handed over can be resumed")
        else:
            self.begin(arrival)

    def begin(self, arrival: Arrival) -> None:
        """A session that nobody has begun. Raises WireError, InboxFull."""
        session_id = arrival.settled.session or secrets.token_urlsafe(16)
        if session_id in self._sessions or session_id in self._greenroom:
            raise bad_request("a session of this name is live", field="session")
        guest = Guest(session_id, arrival, self._fit.options(arrival.settled), self._loop.time())
        if not self._greenroom.lacking(guest.options):
            self._admit(guest)
            return
        self._opening(arrival.settled)  # what is wrong with it is told at once
        self._greenroom.wait(guest, self._called)
        self._emptied.clear()
        self.retarget()

    def _called(self, guest: Guest, error: WireError | None) -> None:
        """From the green room: the voices are here, or will not come."""
        error = error or _attempt(lambda: self._admit(guest))
        if error is not None:
            self._turn_away(guest.arrival.tenant, guest.arrival.message, error)
        if not self.sessions:
            self._emptied.set()
        self.retarget()

    def _admit(self, guest: Guest) -> None:
        """Raises WireError, InboxFull."""
        arrival, text = guest.arrival, guest.arrival.settled.text or ""
        # Again: meanwhile the journal may have been asked, or a voice fetched.
        self._porter.check_sessions(arrival, self._tenants, self._sessions)
        self._porter.check_text(arrival.tenant, text)
        session = self.make(guest.session, arrival, opened_at=guest.came_at)
        ready = self.ready(session, arrival.tenant)
        if self._relocation is not None and arrival.settled.resume:
            self._relocation.enrol(session, arrival)
        session.begin(ready)
        self._porter.count_text(arrival.tenant, text)
        self.register(session, arrival.tenant)

    async def bring(self, settled: Open) -> bool:
        """Fetch the voices that a session from elsewhere lacks; whether that took time. Raises WireError."""
        options = self._fit.options(settled)
        if not self._greenroom.lacking(options):
            return False
        await self._greenroom.bring(options)
        return True

    def register(self, session: LiveSession, tenant: str) -> None:
        self._sessions[session.id], self._tenants[session.id] = session, tenant
        self._emptied.clear()
        self.retarget()

    def _input(self, message: Message) -> None:
        session = None
        try:
            address = subjects.parse_input_subject(message.subject)
            session = self._live(address)
            session.receive(codec.decode_input(message.headers, message.payload))
        except WireError as error:
            if session is None:
                self._reject_input(message, error)
            else:
                session.egress.event(events.Error.of(error))
        except Exception:  # the root of a message: its fault must not reach another session
            log.exception("a session failed on a message")
            if session is not None:
                session.close("failed")

    def _live(self, address: subjects.InputAddress) -> LiveSession:
        """Raises WireError (no_session), for a session of another tenant too."""
        session = self._sessions.get(address.session)
        if session is None or session.over or self._tenants[session.id] != address.tenant:
            raise WireError("no_session", "no such session at this worker")
        return session

    def _reject_input(self, message: Message, error: WireError) -> None:
        """Answers where an answer is wanted and can reach nobody else."""
        if not message.reply:
            return
        with contextlib.suppress(WireError):
            tenant = subjects.check_token("tenant", message.subject.split(".")[2])
            if self.may_answer(tenant, message.reply):
                self._answer(message, events.Error.of(error), codec.answer_type(message.headers))

    def _info(self, message: Message) -> None:
        try:
            tenant = subjects.parse_pool_subject("info", message.subject).tenant
            if not self.may_answer(tenant, message.reply):
                return
            self._porter.check_served(tenant)
            codec.decode_info_request(message.headers, message.payload)
        except WireError as error:
            self._answer(message, events.Error.of(error), codec.answer_type(message.headers))
            return
        info = self._offer.info(self._settings.worker, self.version)
        self._answer(message, info, codec.answer_type(message.headers))

    def _answer(self, message: Message, event: events.ControlEvent, content: codec.ContentType) -> None:
        packet = codec.encode(event, content)
        try:
            self._bus.publish(message.reply, packet.payload, headers=packet.headers)
        except BusError as error:
            log.warning("an answer could not be sent: %s", error)

    # --- engine events --------------------------------------------------------------------------------------------

    def deliver(self, batch: Sequence[sched.Event]) -> None:
        """Events of one iteration of the step loop, on the event loop."""
        if self._relocation is not None:
            self._relocation.mind()
        for event in batch:
            if isinstance(event, sched.StepReport):
                self._telemetry.step(event)
                continue
            session = self._sessions.get(event.session)
            if session is None:
                continue
            try:
                session.handle(event)
            except Exception:  # the root of a session's reaction: its fault must not reach another
                log.exception("session failed on %s", type(event).__name__)
                session.close("failed")
            gone = isinstance(event, sched.Failed | sched.Refused)
            if gone or (isinstance(event, sched.Cancelled) and not event.kept):
                self._forget(event.session)
        self.retarget()

    def _forget(self, session_id: str) -> None:
        del self._sessions[session_id]
        del self._tenants[session_id]
        if self._relocation is not None:
            self._relocation.gone(session_id)
        if not self.sessions:
            self._emptied.set()

    def _parked(self) -> int:
        return sum(session.place is Place.PARKED for session in self._sessions.values())

    def _occupied(self) -> int:
        """Sessions that hold a row, wait to get theirs back or for their voices, or are on their way here."""
        arriving = 0 if self._relocation is None else self._relocation.arriving
        return arriving + self.sessions - self._parked()

    def retarget(self) -> None:
        limit, occupied = self._limit_now(), self._occupied()
        self._telemetry.capacity(slots=self._slots, limit=limit, active=occupied)
        if not self._draining:
            self._tokens.set_target(max(0, limit - occupied))

    def _submit(self, command: sched.Command) -> None:
        """Raises InboxFull, but not for a cancel that frees a row: that is told again until the engine takes it."""
        try:
            self._submit_to(command)
        except InboxFull:
            if not isinstance(command, sched.Cancel) or command.successor is not None:
                raise
            self._unsent.append(command)

    def _submit_late(self) -> None:
        with contextlib.suppress(InboxFull):
            while self._unsent:
                self._submit_to(self._unsent[0])
                self._unsent.popleft()

    # --- time -----------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._telemetry.pending(self._bus.pending_bytes)
        self._submit_late()
        now = self._loop.time()
        for session in list(self._sessions.values()):
            session.tick(now)

    def _relieve(self) -> None:
        """Fast sessions that paused for a full socket go on when it has drained."""
        if self._bus.pending_bytes <= self._full_bytes // 2:
            for session in self._sessions.values():
                session.resume()

    def _every(self, seconds: float, call: Callable[[], None]) -> None:
        slot = len(self._timers)

        def fire() -> None:
            self._timers[slot] = self._loop.call_later(seconds, fire)
            call()

        self._timers.append(self._loop.call_later(seconds, fire))


def _attempt(work: Callable[[], None]) -> WireError | None:
    """The root of an open: whoever sent it is told what is returned."""
    try:
        work()
    except WireError as error:
        return error
    except InboxFull:
        return WireError("no_capacity", "the worker is busy")
    except Exception:
        log.exception("an open failed")
        return WireError("internal", "the request could not be carried out")
    return None
