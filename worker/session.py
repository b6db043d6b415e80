"""One live session: the producer's messages and the engine's events in, the listeners' events out.

What happens in which state is a table of ARCHITECTURE.md ("A session, case by case").

Everything here runs on the event loop and waits for nothing. Exactly one ``end`` is sent, and it is the last event.
"""

from __future__ import annotations

import dataclasses

from engine.contract import SlotOptions
from scheduler import messages as sched
from scheduler.errors import InboxFull
from worker.audience import Audience
from worker.connection import Hook
from worker.egress import Egress
from worker.errors import ErrorCode, MessageTooLarge, WireError, bad_request, too_large
from worker.generation import Generation, Phase
from worker.intake import Intake
from worker.ledger import Ledger
from worker.narration import Opening
from worker.passage import Passage
from worker.plumbing import Plumbing, Stage
from worker.scribe import NoScribe, Scribe
from worker.seat import Place, Seat
from worker.tally import Tally
from worker.telemetry import SessionSpan
from worker.wire import events, requests
from worker.wire.journal import Counters, Restart
from worker.wire.requests import Open

PING_AFTER_S = 1.0
PRODUCER_GONE_AFTER_S = 3.5
"""A producer that pings does so every second; the half is for the way."""


class LiveSession:
    def __init__(
        self,
        session: str,
        settled: Open,
        options: SlotOptions,
        opening: Opening,
        egress: Egress,
        span: SessionSpan,
        plumbing: Plumbing,
        opened_at: float | None = None,
    ) -> None:
        """opened_at: when the session was asked for, if it had to wait since."""
        self.id = session
        self.settled = settled
        self.egress = egress
        self.over = False
        """``end`` is sent; the row may still be on its way back."""
        self.audience = Audience(
            egress.route, hold=self._hold, resume=self._resume, probe=self._ask, gone=lambda: self.close("gone")
        )
        self._options, self._span, self._p = options, span, plumbing
        self._tally = Tally(plumbing.now() if opened_at is None else opened_at)
        self._intake = Intake()
        ways = (self._submit, self._set_to_work, self._give_up)
        self._stage = Stage(session, settled, opening, egress, self._intake, span, self._tally, plumbing, *ways)
        self._seat = Seat(self._stage, idle=self._park, late=self._no_row)
        self._generation = Generation(0, self._stage)
        self._heard_at = self._texted_at = plumbing.now()  # of the producer: anything, anything but pings
        self._pinged = False
        self._last_cancel: events.Cancelled | None = None
        self._credit_ms, self._passage = settled.credit_ms, Passage(self._stage)
        self.scribe: Scribe = NoScribe()

    # --- the worker's side ----------------------------------------------------------------------------------------

    def begin(self, ready: events.Ready) -> None:
        """Ask for a row and answer the open. Raises InboxFull or WireError; then nothing was sent, nothing is held."""
        try:
            self._p.submit(self._open)
            self.audience.attend()
            try:
                self.egress.ready(ready)
            except MessageTooLarge as error:
                self._p.submit(sched.Cancel(self.id))
                raise too_large("the options, which ready repeats", error.limit, "bytes") from None
        except (InboxFull, WireError) as error:
            self._leave("failed", error.code if isinstance(error, WireError) else "no_capacity")
            raise
        if self.settled.text:
            self.scribe.order("opening", self.settled.text)
            self._generation.feed(self.settled.text)
        if self.settled.final:
            self._finish()

    @property
    def _open(self) -> sched.Open:
        settled, pace = self.settled, sched.Pace(self.settled.pace)
        return sched.Open(self.id, self._options, pace, settled.lead_ms, self._credit_ms, lasting=True)

    def tick(self, now: float) -> None:
        """Once a second: silence, absent listeners, time limits."""
        if self.over:
            return
        if self.audience.offline:
            self._heard_at = self._texted_at = now  # nobody can be heard
        self.egress.remind(now, self._intake.text_seq)
        if not self.audience.absent and now - self.egress.sent_at >= PING_AFTER_S:
            self._ping()
        if now - self._tally.opened_at > self.settled.max_session_s:
            self.close("limit")
        elif self._idle_s(now) > self.settled.idle_timeout_s:
            self.close("idle")
        elif self._pinged and not self._generation.finished and now - self._heard_at > PRODUCER_GONE_AFTER_S:
            self.close("gone")

    # --- from one worker to another -------------------------------------------------------------------------------

    def count(self) -> Counters | None:
        """Where the session stands; None while its events are withheld."""
        return self._passage.count(self.usage(), self._credit_ms)

    def adopt(self, ledger: Ledger, age_s: float) -> None:
        """Become a session that another worker has begun, ``age_s`` ago. The engine is told with ``go_on``."""
        if ledger.cancelled is not None:
            spoken, unspoken = ledger.cancelled
            self._last_cancel = events.Cancelled(gen=ledger.noise, spoken=spoken, unspoken=unspoken)
        self._credit_ms = ledger.counters.credit_ms
        self._options = dataclasses.replace(self._options, generation=ledger.noise)
        self._generation = Generation(ledger.number, self._stage, ledger.noise, ledger.before, ledger.speaker)
        self._passage.adopt(ledger, self._generation, age_s)

    async def go_on(self, ready: events.Ready, ledger: Ledger) -> None:
        """Say so, and have the slot rebuilt. Raises InboxFull."""
        records = tuple(ledger.records)
        self.audience.attend()
        self.egress.ready(ready)
        script = await self._passage.script(self._generation)
        if not self.over:
            at = (ledger.first, ledger.first if self.egress.remembers else None, ledger.speaker)
            self._p.submit(sched.Restore(self._open, script, ledger.answered, records, *at))

    def bury(self, ledger: Ledger, error: WireError) -> None:
        """End a session that another worker has begun, without taking a row for it."""
        self._tally.adopt(ledger.counters, self._p.now())
        self.over = True
        self.egress.event(events.Error.of(error))
        self.egress.event(events.End(reason="failed", usage=self.usage()))
        self._leave("failed", error.code)

    def yield_up(self) -> None:
        """Another worker has the session: nothing more is said here."""
        if not self.over:
            self.over = True
            self.egress.route.discard()
            self._generation.close()
            self._seat.leave()
            self._tally.close(self._p.now())
            self.scribe = NoScribe()
            self._p.submit(sched.Cancel(self.id))
            self._leave("moved")

    def close(self, reason: events.EndReason) -> None:
        """End the session from the worker's side."""
        if not self.over:
            self._submit(sched.Cancel(self.id))
            self._end(reason)

    # --- the producer's side --------------------------------------------------------------------------------------

    def receive(self, message: requests.Input) -> None:
        """Raises WireError for a message that is not taken."""
        self._heard_at = self._p.now()
        if self._passage.defers(message):
            return
        if not isinstance(message, requests.Ping):
            self._texted_at = self._heard_at
        match message:
            case requests.Text():
                self._text(message)
            case requests.Flush():
                if self._is_due(message):
                    self.scribe.order("flush")
                    self._generation.flush()
            case requests.Finish():
                if self._is_due(message):
                    self._finish()
            case requests.Cancel():
                self._cancel(message)
            case requests.Credit():
                self._submit(sched.Credit(self.id, message.ms))
            case requests.Ping():
                self._pinged = True
                self._ping()

    def _text(self, message: requests.Text) -> None:
        generation = self._generation
        if not self._intake.is_current(message.gen) or not self._intake.is_next(message.seq):
            return
        if generation.finished:
            raise bad_request("no text after finish")
        self._stage.check(message, generation.unspoken_characters)
        self._intake.take()
        if message.speaker not in (None, generation.speaker):
            self.scribe.order("speaker", str(message.speaker))
        self.scribe.order("text", message.text)
        generation.feed(message.text, message.speaker)

    def _finish(self) -> None:
        self.scribe.order("finish")
        self._generation.finish()

    def _is_due(self, message: requests.Flush | requests.Finish) -> bool:
        in_order = self._intake.is_current(message.gen) and self._intake.in_order(message.seq)
        return in_order and not self._generation.finished

    def _cancel(self, message: requests.Cancel) -> None:
        if message.gen is not None and message.gen < self._intake.since:
            if self._last_cancel is not None and message.gen == self._intake.since - 1:
                self.egress.event(self._last_cancel)
            return
        if not self._intake.is_current(message.gen):
            return
        spoken, unspoken = self._generation.split(message.played_ms)
        self._generation.close()
        self._intake.begin_next(message.gen)
        number = self._intake.generation
        self.egress.cut(number - 1, last=not message.keep)
        self._generation.refund()
        self._tally.resume(self._p.now())
        self._p.telemetry.cancelled(self._span, number)
        self._last_cancel = self.egress.fitted(events.Cancelled(gen=number, spoken=spoken, unspoken=unspoken))
        self.scribe.restart(Restart(number, self._intake.since, self._last_cancel.spoken, self._last_cancel.unspoken))
        self.egress.event(self._last_cancel)
        if not message.keep:
            self.close("cancelled")
            return
        self._options = dataclasses.replace(self._options, generation=number)
        self._submit(sched.Cancel(self.id, self._options))
        self._seat.rest(self._generation.noise)
        self._generation = Generation(number, self._stage)

    # --- the engine's side ----------------------------------------------------------------------------------------

    def handle(self, event: sched.Event) -> None:
        self._seat.follow(event)
        if isinstance(event, sched.Frame) and self._credit_ms is not None:
            self._credit_ms -= 500.0 * len(event.frame.pcm) / self._p.sample_rate
        if self.over:
            return
        match event:
            case sched.Retold():
                self._passage.retell(self._generation, event.frames, self.scribe)
            case sched.Restored():
                self._passage.restored(self.receive)
                if self._generation.silent and self._generation.noise > 0:
                    self._seat.rest()
            case sched.FirstStep():
                self._tally.first_step(self._p.now())
                self._p.telemetry.first_step(self._span, event.queued_s)
            case sched.Frame() | sched.Stalled() | sched.Flushed() | sched.Ended():
                if event.generation == self._generation.noise:
                    self._follow(event)
                elif isinstance(event, sched.Frame):
                    self._refund(event)
            case sched.Failed():
                self._fail(WireError("model_failure", "the model failed in this session"))
            case sched.Refused():
                self._fail(WireError("no_capacity", "no free slot"))

    def _follow(self, event: sched.Frame | sched.Stalled | sched.Flushed | sched.Ended) -> None:
        """One of the current generation."""
        match event:
            case sched.Frame():
                self._passage.tell(self._generation, event, self.scribe)
                if event.frame.pcm and self.settled.pace == "fast" and self._p.egress_full():
                    self.audience.hold()
            case sched.Stalled() if event.heard >= self._generation.told:
                self._generation.wants_text()
            case sched.Flushed():
                self._generation.flushed()
                self.scribe.answered()
            case sched.Ended():
                self._generation.ended()
                self.close("finished")

    def _refund(self, stale: sched.Frame) -> None:
        """It crossed with a cancel, and nobody will hear it."""
        if stale.frame.pcm and self.settled.credit_ms is not None:
            self._submit(sched.Credit(self.id, 500.0 * len(stale.frame.pcm) / self._p.sample_rate))

    # --- the row --------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        return Phase.OVER if self.over else self._generation.phase

    @property
    def place(self) -> Place:
        return self._seat.place

    def _park(self) -> None:
        """Nothing was said for a while. Between generations only: what the model has in mind must not be lost."""
        if self._generation.silent and self._p.may_park():
            self._submit(sched.Park(self.id, self._generation.noise))

    def _no_row(self) -> None:
        self._give_up(WireError("no_capacity", "no slot became free in time"))

    def _set_to_work(self, command: sched.Push | sched.Flush | sched.Finish) -> None:
        if self._passage.keeps(command):
            return
        if isinstance(command, sched.Push) and self._seat.want(command.generation):
            self._p.rows_changed()
        self._generation.told += 1
        self._submit(command)

    # --- listeners ------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """What waited to be sent is on its way."""
        if not self.over:
            self.audience.resume()

    def _hold(self) -> None:
        self._submit(sched.Hold(self.id))

    def _resume(self) -> None:
        self._submit(sched.Resume(self.id))

    def _ping(self) -> None:
        self.egress.event(events.Pulse(text_seq=self._intake.text_seq), probe=True)

    def _ask(self, answered: Hook) -> None:
        self.egress.ask(events.Pulse(text_seq=self._intake.text_seq), answered)

    # --- the end --------------------------------------------------------------------------------------------------

    def _give_up(self, error: WireError) -> None:
        """For a fault on this side: the engine is told."""
        self._p.submit(sched.Cancel(self.id))
        self._fail(error)

    def _fail(self, error: WireError) -> None:
        self._end("failed", error)

    def _end(self, reason: events.EndReason, error: WireError | None = None) -> None:
        self.over = True
        self._generation.close()
        self._seat.leave()
        self._tally.close(self._p.now())
        self.egress.cut(self._intake.generation, last=True)
        if error is not None:
            self.egress.event(events.Error.of(error))
        self.egress.event(events.End(reason=reason, usage=self.usage()))
        self.scribe.close()
        self._leave(reason, None if error is None else error.code)

    def _leave(self, reason: events.Parting, error: ErrorCode | None = None) -> None:
        self.audience.leave()
        if self.egress.shed:
            self._p.telemetry.shed(self.egress.shed)
        self._p.telemetry.session_ended(self._span, reason, self.usage(), error)

    def usage(self) -> events.Usage:
        return self._tally.usage(1000.0 * self.egress.pts / self.settled.format.sample_rate)

    def _idle_s(self, now: float) -> float:
        """How long the session has waited for its producer; 0 while there is something to say."""
        generation = self._generation
        if generation.finished or generation.reading or generation.at_work:
            return 0.0
        return now - max(self._texted_at, self.egress.audio_at)

    # --- to the engine --------------------------------------------------------------------------------------------

    def _submit(self, command: sched.Command) -> None:
        """What the engine cannot be told is lost, and with it the session."""
        if self.over:
            return
        if isinstance(command, sched.Credit) and self._credit_ms is not None:
            self._credit_ms += command.ms
            self.scribe.counted()
        try:
            self._p.submit(command)
        except InboxFull:
            self._give_up(WireError("over_limit", "the worker is busy"))
