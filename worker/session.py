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
import enum
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from engine.contract import Entry, SlotFrame, SlotOptions
from scheduler import messages as sched
from scheduler.errors import InboxFull
from worker.egress import Egress
from worker.errors import ErrorCode, MessageTooLarge, WireError, bad_request, too_large, unsupported_option
from worker.narration import Narration, Opening, Outlet
from worker.playhead import Playhead
from worker.tally import Tally
from worker.telemetry import SessionSpan, Telemetry
from worker.wire import events, requests
from worker.wire.requests import Open

GONE_AFTER_S = 3.0
PING_AFTER_S = 1.0
PRODUCER_GONE_AFTER_S = 3.5
"""A producer that pings does so every second; the half is for the way."""


class Phase(enum.Enum):
    OPEN = enum.auto()
    FINISHED = enum.auto()
    """No more text will come in this generation."""
    OVER = enum.auto()
    """``end`` is sent; the row may still be on its way back."""


@dataclass(frozen=True, slots=True)
class Plumbing:
    """What a session needs of its worker."""

    submit: Callable[[sched.Command], None]
    """To the step loop. Raises InboxFull, but not for a ``Cancel`` that frees the row."""
    reader: Executor
    """Where long texts are read."""
    telemetry: Telemetry
    now: Callable[[], float]
    frame_samples: int
    sample_rate: int
    text_chars: int
    buffer_chars: int
    egress_full: Callable[[], bool]
    """Whether so much waits to be sent that sessions without a beat should pause."""


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
        self.phase = Phase.OPEN
        self._options, self._opening, self._span, self._p = options, opening, span, plumbing
        self._tally = Tally(plumbing.now() if opened_at is None else opened_at)
        self._heard_at = self._texted_at = plumbing.now()  # of the producer: anything, anything but pings
        self._pinged = False
        self._at_work = False  # the engine has something to say
        self._needy = False  # the engine waits for text, and the producer has not been told
        self._generation = 0
        self._text_seq = 0
        self._gap_told = False
        self._flush_seqs: deque[int] = deque()
        self._playhead = Playhead()
        self._last_cancel: events.Cancelled | None = None
        self._unheard_since: float | None = None
        self._unheard_in_probe = False
        self._held = False
        self._narration = self._new_narration()

    # --- the worker's side ----------------------------------------------------------------------------------------

    def begin(self, ready: events.Ready) -> None:
        """Ask for a row and answer the open. Raises InboxFull or WireError; then nothing was sent, nothing is held."""
        try:
            self._ask_for_row()
            try:
                self.egress.event(ready)
            except MessageTooLarge as error:
                self._p.submit(sched.Cancel(self.id))
                raise too_large("the options, which ready repeats", error.limit, "bytes") from None
        except (InboxFull, WireError) as error:
            self._leave("failed", error.code if isinstance(error, WireError) else "no_capacity")
            raise
        if self.settled.text:
            self._take_text(self.settled.text)
        if self.settled.final:
            self._finish()

    def _ask_for_row(self) -> None:
        credit = self.settled.credit_ms
        pace = sched.Pace.FAST if self.settled.pace == "fast" else sched.Pace.LIVE
        self._p.submit(sched.Open(self.id, self._options, pace, self.settled.lead_ms, credit))

    def tick(self, now: float) -> None:
        """Once a second: silence, absent listeners, time limits."""
        if self.phase is Phase.OVER:
            return
        if self._unheard_since is not None:
            self._watch_for_listener(now)
        elif now - self.egress.sent_at >= PING_AFTER_S:
            self.egress.event(events.Pulse(text_seq=self._text_seq), probe=True)
        if now - self._tally.opened_at > self.settled.max_session_s:
            self.close("limit")
        elif self._idle_s(now) > self.settled.idle_timeout_s:
            self.close("idle")
        elif self._pinged and self.phase is Phase.OPEN and now - self._heard_at > PRODUCER_GONE_AFTER_S:
            self.close("gone")

    def close(self, reason: events.EndReason) -> None:
        """End the session from the worker's side."""
        if self.phase is not Phase.OVER:
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
                self._flush(message)
            case requests.Finish():
                if self._is_current(message.gen) and self._in_order(message.seq) and self.phase is Phase.OPEN:
                    self._finish()
            case requests.Cancel():
                self._cancel(message)
            case requests.Credit():
                self._submit(sched.Credit(self.id, message.ms))
            case requests.Ping():
                self._pinged = True
                self.egress.event(events.Pulse(text_seq=self._text_seq), probe=True)

    def _text(self, message: requests.Text) -> None:
        if not self._is_current(message.gen):
            return
        if message.seq is not None and message.seq < self._text_seq:
            return
        if not self._in_order(message.seq):
            return
        if self.phase is Phase.FINISHED:
            raise bad_request("no text after finish")
        if len(message.text) > self._p.text_chars:
            raise too_large("text", self._p.text_chars, "characters")
        if self._narration.unspoken_characters + len(message.text) > self._p.buffer_chars:
            raise too_large("text", self._p.buffer_chars, "characters unspoken", retryable=True)
        if message.speaker is not None and message.speaker >= len(self.settled.voices or ("",)):
            raise unsupported_option("speaker", "the session has no such voice")
        self._text_seq += 1
        self._gap_told = False
        self._take_text(message.text, message.speaker)

    def _flush(self, message: requests.Flush) -> None:
        if self._is_current(message.gen) and self._in_order(message.seq) and self.phase is Phase.OPEN:
            self._flush_seqs.append(self._text_seq)
            generation = self._generation
            self._p.telemetry.flushed(self._span)
            self._narration.flush(lambda: self._set_to_work(sched.Flush(self.id, generation)))

    def _is_current(self, generation: int | None) -> bool:
        """An older generation's message is ignored. Raises WireError (text_gap) for a cancel that was lost."""
        if generation is not None and generation > self._generation:
            raise WireError("text_gap", "a later generation than the current one", detail={"gen": self._generation})
        return generation is None or generation == self._generation

    def _in_order(self, seq: int | None) -> bool:
        """Raises WireError (text_gap) at a gap's first sign, and is False until it is mended."""
        if seq is None or seq <= self._text_seq:
            return True
        if self._gap_told:
            return False
        self._gap_told = True
        raise WireError("text_gap", "text was lost before this message", detail={"expected": self._text_seq})

    def _take_text(self, text: str, speaker: int | None = None) -> None:
        self._tally.characters += len(text)
        self._narration.feed(text, speaker)

    def _finish(self) -> None:
        self.phase = Phase.FINISHED
        generation = self._generation
        self._narration.finish(lambda: self._set_to_work(sched.Finish(self.id, generation)))

    def _cancel(self, message: requests.Cancel) -> None:
        if message.gen is not None and message.gen < self._generation:
            if self._last_cancel is not None and message.gen == self._generation - 1:
                self.egress.event(self._last_cancel)
            return
        if not self._is_current(message.gen):
            return
        heard = None if message.played_ms is None else self.egress.samples_heard(message.played_ms)
        spoken, unspoken = self._narration.split(self._playhead.heard(heard))
        self._narration.close()
        self._generation += 1
        self._text_seq, self._gap_told = 0, False
        self._flush_seqs.clear()
        self.egress.drop_pending()
        self._playhead = Playhead()
        self._at_work = self._needy = False
        self._tally.resume(self._p.now())
        self._p.telemetry.cancelled(self._span, self._generation)
        self._last_cancel = self.egress.fitted(events.Cancelled(gen=self._generation, spoken=spoken, unspoken=unspoken))
        self.egress.event(self._last_cancel)
        if not message.keep:
            self.close("cancelled")
            return
        self.phase = Phase.OPEN
        self._options = dataclasses.replace(self._options, generation=self._generation)
        self._submit(sched.Cancel(self.id, self._options))
        self._narration = self._new_narration()

    # --- the engine's side ----------------------------------------------------------------------------------------

    def handle(self, event: sched.Event) -> None:
        if self.phase is Phase.OVER:
            return
        match event:
            case sched.Started():
                self._tally.queued_s = event.queued_s
            case sched.FirstStep():
                self._p.telemetry.first_step(self._span, event.queued_s)
            case sched.Frame() if event.generation == self._generation:
                self._frame(event.frame, event.lateness_s)
            case sched.Stalled() if event.generation == self._generation:
                self._stalled()
            case sched.Flushed() if event.generation == self._generation:
                self._flushed()
            case sched.Ended() if event.generation == self._generation:
                self.egress.tail(self._generation)
                self._end("finished")
            case sched.Failed():
                self._fail(WireError("model_failure", "the model failed in this session"))
            case sched.Refused():
                self._fail(WireError("no_capacity", "no free slot"))

    def _frame(self, frame: SlotFrame, lateness_s: float) -> None:
        now = self._p.now()
        self._at_work = True
        self._tally.resume(now)
        if frame.word:
            self._tally.words += 1
            self._narration.word_taken((frame.step - 1) * self._p.frame_samples)
        if not frame.pcm:
            return
        self._playhead.send(frame)
        self._tally.frames += 1
        self._p.telemetry.frame(self._span, len(frame.pcm) / 2 / self._p.sample_rate, lateness_s)
        if self.egress.audio(frame.pcm, self._generation) and self._tally.first_audio_at is None:
            self._tally.first_audio_at = now
            self._p.telemetry.first_audio(self._span, now - self._tally.opened_at)
        if self.settled.pace == "fast" and self._p.egress_full():
            self.hold()

    def _stalled(self) -> None:
        if self.phase is Phase.FINISHED or self._flush_seqs:
            return  # it crossed with our finish or flush
        self._at_work = False
        self._needy = True
        self._tell_need()

    def _tell_need(self) -> None:
        """Once what has come is read, and there was no word in it."""
        if self._needy and not self._narration.busy:
            self._needy = False
            self._tally.stalled_since = self._p.now()
            self._p.telemetry.stalled(self._span)
            self.egress.event(events.NeedText(text_seq=self._text_seq))

    def _flushed(self) -> None:
        self._at_work = False
        self.egress.tail(self._generation)
        seq = self._flush_seqs.popleft() if self._flush_seqs else self._text_seq
        self.egress.event(events.Flushed(text_seq=seq, pts=self.egress.pts))

    # --- listeners ------------------------------------------------------------------------------------------------

    def unheard(self) -> None:
        """A 503 came back: nobody listens."""
        self._unheard_in_probe = True
        if self.phase is not Phase.OVER and self._unheard_since is None:
            self._unheard_since = self._p.now()
            self.hold()

    def _watch_for_listener(self, now: float) -> None:
        assert self._unheard_since is not None
        if now - self._unheard_since >= GONE_AFTER_S:
            self.close("gone")
        elif self._unheard_in_probe:
            self._unheard_in_probe = False
            self.egress.event(events.Pulse(text_seq=self._text_seq), probe=True)
        else:
            self._unheard_since = None
            self.resume()

    def hold(self) -> None:
        if not self._held and self.phase is not Phase.OVER:
            self._held = True
            self._submit(sched.Hold(self.id))

    def resume(self) -> None:
        """Go on, unless nobody listens."""
        if self._held and self._unheard_since is None and self.phase is not Phase.OVER:
            self._held = False
            self._submit(sched.Resume(self.id))

    # --- the end --------------------------------------------------------------------------------------------------

    def _give_up(self, error: WireError) -> None:
        """For a fault on this side: the engine is told."""
        self._p.submit(sched.Cancel(self.id))
        self._fail(error)

    def _fail(self, error: WireError) -> None:
        self.egress.event(events.Error.of(error))
        self._end("failed", error.code)

    def _end(self, reason: events.EndReason, error: ErrorCode | None = None) -> None:
        self.phase = Phase.OVER
        self._narration.close()
        self._tally.resume(self._p.now())
        self.egress.event(events.End(reason=reason, usage=self.usage()))
        self._leave(reason, error)

    def _leave(self, reason: events.EndReason, error: ErrorCode | None) -> None:
        self.egress.close()
        if self.egress.shed:
            self._p.telemetry.shed(self.egress.shed)
        self._p.telemetry.session_ended(self._span, reason, self.usage(), error)

    def usage(self) -> events.Usage:
        return self._tally.usage(1000.0 * self.egress.pts / self.settled.format.sample_rate)

    def _idle_s(self, now: float) -> float:
        """How long the session has waited for its producer; 0 while there is something to say."""
        if self.phase is not Phase.OPEN or self._narration.busy or self._at_work:
            return 0.0
        return now - max(self._texted_at, self.egress.audio_at)

    # --- to the engine --------------------------------------------------------------------------------------------

    def _new_narration(self) -> Narration:
        return Narration(self._opening, self._p.reader, Outlet(self._push, self._tell_need, self._unreadable))

    def _unreadable(self) -> None:
        self._give_up(WireError("internal", "the text could not be read"))

    def _push(self, entries: tuple[Entry, ...]) -> None:
        self._set_to_work(sched.Push(self.id, self._generation, entries))

    def _set_to_work(self, command: sched.Push | sched.Flush | sched.Finish) -> None:
        self._at_work, self._needy = True, False
        self._submit(command)

    def _submit(self, command: sched.Command) -> None:
        """What the engine cannot be told is lost, and with it the session."""
        if self.phase is Phase.OVER:
            return
        try:
            self._p.submit(command)
        except InboxFull:
            self._give_up(WireError("over_limit", "the worker is busy"))
