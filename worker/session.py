"""One live session: the producer's messages and the engine's events in, the listeners' events out.

| state     | text, flush, finish        | cancel                    | engine                              |
|-----------|----------------------------|---------------------------|-------------------------------------|
| speaking  | taken in order of seq      | ``cancelled``, then ended | frames; stall -> ``need_text``      |
| finished  | text is refused            | the same                  | last frame -> ``end`` (finished)    |
| cancelled | taken (a new generation)   | with ``keep`` only        | old frames are dropped              |
| over      | ``no_session``             | ignored                   | ignored                             |

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
from worker.generation import Generation
from worker.intake import Intake
from worker.narration import Opening
from worker.plumbing import Plumbing, Stage
from worker.tally import Tally
from worker.telemetry import SessionSpan
from worker.wire import events, requests
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
    ) -> None:
        self.id = session
        self.settled = settled
        self.egress = egress
        self.over = False
        """``end`` is sent; the row may still be on its way back."""
        self.audience = Audience(
            egress.route, hold=self._hold, resume=self._resume, probe=self._ask, gone=lambda: self.close("gone")
        )
        self._options, self._span, self._p = options, span, plumbing
        self._tally = Tally(plumbing.now())
        self._intake = Intake()
        self._stage = Stage(
            session,
            settled,
            opening,
            egress,
            self._intake,
            span,
            self._tally,
            plumbing,
            self._submit,
            self._give_up,
        )
        self._generation = Generation(0, self._stage)
        self._heard_at = self._texted_at = plumbing.now()  # of the producer: anything, anything but pings
        self._pinged = False
        self._last_cancel: events.Cancelled | None = None

    # --- the worker's side ----------------------------------------------------------------------------------------

    def begin(self, ready: events.Ready) -> None:
        """Ask for a row and answer the open. Raises InboxFull or WireError; then nothing was sent, nothing is held."""
        try:
            self._ask_for_row()
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
            self._generation.feed(self.settled.text)
        if self.settled.final:
            self._generation.finish()

    def _ask_for_row(self) -> None:
        credit = self.settled.credit_ms
        pace = sched.Pace.FAST if self.settled.pace == "fast" else sched.Pace.LIVE
        self._p.submit(sched.Open(self.id, self._options, pace, self.settled.lead_ms, credit))

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

    def close(self, reason: events.EndReason) -> None:
        """End the session from the worker's side."""
        if not self.over:
            self._submit(sched.Cancel(self.id))
            self._end(reason)

    # --- the producer's side --------------------------------------------------------------------------------------

    def receive(self, message: requests.Input) -> None:
        """Raises WireError for a message that is not taken."""
        self._heard_at = self._p.now()
        if not isinstance(message, requests.Ping):
            self._texted_at = self._heard_at
        match message:
            case requests.Text():
                self._text(message)
            case requests.Flush():
                if self._is_due(message):
                    self._generation.flush()
            case requests.Finish():
                if self._is_due(message):
                    self._generation.finish()
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
        if len(message.text) > self._p.text_chars:
            raise too_large("text", self._p.text_chars, "characters")
        if generation.unspoken_characters + len(message.text) > self._p.buffer_chars:
            raise too_large("text", self._p.buffer_chars, "characters unspoken", retryable=True)
        self._intake.take()
        generation.feed(message.text)

    def _is_due(self, message: requests.Flush | requests.Finish) -> bool:
        in_order = self._intake.is_current(message.gen) and self._intake.in_order(message.seq)
        return in_order and not self._generation.finished

    def _cancel(self, message: requests.Cancel) -> None:
        if message.gen is not None and message.gen < self._intake.generation:
            if self._last_cancel is not None and message.gen == self._intake.generation - 1:
                self.egress.event(self._last_cancel)
            return
        if not self._intake.is_current(message.gen):
            return
        spoken, unspoken = self._generation.split(message.played_ms)
        self._generation.close()
        self._intake.begin_next()
        number = self._intake.generation
        self.egress.cut(number - 1, last=not message.keep)
        self._tally.resume(self._p.now())
        self._p.telemetry.cancelled(self._span, number)
        self._last_cancel = self.egress.fitted(events.Cancelled(gen=number, spoken=spoken, unspoken=unspoken))
        self.egress.event(self._last_cancel)
        if not message.keep:
            self.close("cancelled")
            return
        self._options = dataclasses.replace(self._options, generation=number)
        self._submit(sched.Cancel(self.id, self._options))
        self._generation = Generation(number, self._stage)

    # --- the engine's side ----------------------------------------------------------------------------------------

    def handle(self, event: sched.Event) -> None:
        if self.over:
            return
        generation = self._generation
        match event:
            case sched.Started():
                self._tally.queued_s = event.queued_s
            case sched.FirstStep():
                self._p.telemetry.first_step(self._span, event.queued_s)
            case sched.Frame() if event.generation == generation.number:
                generation.frame(event.frame, event.lateness_s)
                if event.frame.pcm and self.settled.pace == "fast" and self._p.egress_full():
                    self.audience.hold()
            case sched.Stalled() if event.generation == generation.number:
                generation.stalled()
            case sched.Flushed() if event.generation == generation.number:
                generation.flushed()
            case sched.Ended() if event.generation == generation.number:
                generation.ended()
                self._end("finished")
            case sched.Failed():
                self._fail(WireError("model_failure", "the model failed in this session"))
            case sched.Refused():
                self._fail(WireError("no_capacity", "no free slot"))

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
        self.egress.event(events.Error.of(error))
        self._end("failed", error.code)

    def _end(self, reason: events.EndReason, error: ErrorCode | None = None) -> None:
        self.over = True
        self._generation.close()
        self._tally.resume(self._p.now())
        self.egress.cut(self._intake.generation, last=True)
        self.egress.event(events.End(reason=reason, usage=self.usage()))
        self._leave(reason, error)

    def _leave(self, reason: events.EndReason, error: ErrorCode | None) -> None:
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
        try:
            self._p.submit(command)
        except InboxFull:
            self._give_up(WireError("over_limit", "the worker is busy"))
