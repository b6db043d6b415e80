"""One session, seen by the client that opened it: text out, events in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

from worker.bus import Bus, Message
from worker.client_events import AudioGap, Gap, Inlet, Moved, SpeechEvent, TimedAudio, WorkerGone
from worker.client_line import Line, Patience
from worker.client_outbox import Outbox, check_speaker, check_text
from worker.client_resume import Resumption
from worker.errors import WireError
from worker.wire.codec import decode_event
from worker.wire.events import Audio, Cancelled, ControlEvent, End, Error, Flushed, Mark, NeedText, Pulse, Ready, Usage
from worker.wire.requests import Cancel, Open, Ping

log = logging.getLogger(__name__)

REFUSALS = 5


class Speech:
    """A session; made by ``Client.open``, used on the event loop's thread by one reader.

    As an async iterator it gives every event in order, ``End`` last (``Mark`` too, of a session opened with ``marks``);
    ``audio`` gives the audio alone. As a context manager it cancels the session if the block is left before the end.

    Guarantees to the producer: what it says arrives once and in order, whatever is lost on the way (a delta, a
    reconnect on either side), or the session fails with an error. To the listener: the guarantees of ``Inlet``, and
    after ``cancel`` no audio of what was cancelled, even if it has been received already.
    """

    def __init__(
        self,
        bus: Bus,
        reply: str,
        opening: Open,
        patience: Patience,
        *,
        opened_at: float,
        queue_bytes: int,
        pings: bool,
        on_over: Callable[[], None],
        reopen: Callable[[], None],
    ) -> None:
        """``reopen``: publishes an open that has another worker take the session over."""
        self.opened_at = opened_at
        """Loop time just before ``open`` was published, for the first time if it had to be repeated."""
        self.first_audio_at: float | None = None
        """Loop time when the first audio arrived."""
        self._bus, self._patience, self._pings, self._on_over = bus, patience, pings, on_over
        self._inlet = Inlet(queue_bytes)
        self._outbox = Outbox(len(opening.text or ""), finished=opening.final)
        self._line = Line(bus, reply, self._outbox, patience)
        self._answer: asyncio.Future[Ready | Exception] = asyncio.get_running_loop().create_future()
        self._ready: Ready | None = None
        self._end: End | None = None
        self._failure: Exception | None = None
        self._abandoned = self._cancelled = False
        self._starved = False  # the model waits for text
        self._refusals = 0  # of text, since the last audio
        self._ticks = self._quiet_ticks = 0
        self._resumption: Resumption | None = None
        if opening.resume:
            self._resumption = Resumption(ping=self._ask, reopen=reopen, give_up=self.fail)

    # --- what is known ------------------------------------------------------------------------------------------

    @property
    def ready(self) -> Ready:
        assert self._ready is not None, "Client.open returns opened sessions only"
        return self._ready

    @property
    def end(self) -> End | None:
        """As soon as it has arrived, which may be before it is read."""
        return self._end

    @property
    def usage(self) -> Usage | None:
        return None if self._end is None else self._end.usage

    @property
    def gen(self) -> int:
        """The generation that text belongs to now."""
        return self._outbox.gen

    @property
    def over(self) -> bool:
        return self._end is not None or self._failure is not None

    @property
    def given_up(self) -> bool:
        return isinstance(self._failure, WorkerGone)

    # --- the producer -------------------------------------------------------------------------------------------

    async def send(self, text: str, speaker: int | None = None) -> None:
        """More text, cut anywhere. Waits while the worker has as much unspoken text as it takes.

        ``speaker``: which of the voices, from 0 on; None: who spoke last. Raises WireError (bad_request for what is no
        text or comes after ``finish``, unsupported_option, no_session after the end) or what ended the session.
        """
        self._check_open()
        check_speaker(speaker, self.ready.voices)
        pieces = self._line.pieces(text)
        if len(pieces) > 1:
            check_text(text)  # before any of it is sent
        for piece in pieces:
            await self._line.room(len(piece))
            self._check_open()
            self._line.say(self._outbox.text(piece, speaker))
            if len(pieces) > 1:
                await asyncio.sleep(0)  # saying never waits

    async def flush(self) -> None:
        """Speak everything given so far. ``Flushed`` follows. Raises as ``send``."""
        self._check_open()
        self._line.say(self._outbox.flush())

    async def finish(self) -> None:
        """No more text. ``End`` follows when all is spoken."""
        if not self.over and not self._outbox.finished:
            self._line.say(self._outbox.finish())

    async def cancel(self, played_ms: float | None = None, keep: bool = False, gen: int | None = None) -> None:
        """Stop speaking now. ``Cancelled`` follows; then ``End``, or with ``keep`` the session waits for new text.

        ``played_ms``: session media time that the listener has heard. ``gen``: the generation to end, if that may have
        changed meanwhile; one that has ended already is left alone.
        """
        if self.over or self._cancelled or self._ready is None or (gen is not None and gen < self.gen):
            return
        self._cancelled = not keep
        self._line.say(self._outbox.cancel(played_ms, keep))
        self._inlet.begin(self._outbox.gen)
        self._line.progress()

    async def credit(self, ms: float) -> None:
        """Let the worker send ``ms`` more of audio."""
        if not self.over:
            self._line.credit(round(1000 * ms))

    async def ping(self) -> None:
        """Ask for a ``Pulse``. Who has begun should go on every second; ``Client.open`` can do that."""
        if not self.over:
            self._line.say(Ping())

    # --- the listener -------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SpeechEvent:
        """Raises WorkerGone, or another error that ended the session without an ``End``. Safe to cancel."""
        event = await self._inlet.get()
        if event is None:
            raise StopAsyncIteration
        return event

    async def audio(self, on_mark: Callable[[Mark], None] | None = None) -> AsyncIterator[TimedAudio]:
        """Audio up to the end, whatever the reason of the end. ``on_mark`` is called with each mark on the way.

        Raises AudioGap where some is missing; at the end the WireError that a session failed with, or that said that
        something was not taken; or as ``__anext__``.
        """
        error: WireError | None = None
        async for event in self:
            match event:
                case TimedAudio(payload=payload) if payload:
                    yield event
                case Mark() if on_mark is not None:
                    on_mark(event)
                case Gap():
                    raise AudioGap(event.seq, event.missing)
                case Error():
                    error = error or event.as_exception()
                case End(reason="failed") if error is None:
                    error = WireError("internal", "the session failed")
        if error is not None:
            raise error

    # --- the client's side --------------------------------------------------------------------------------------

    async def opened(self) -> None:
        """Waits for the worker's answer. Raises WireError."""
        answer = await self._answer
        if isinstance(answer, Exception):
            raise answer

    def abandon(self) -> None:
        """Nobody waits for the answer any more: a session that comes to life is cancelled."""
        self._abandoned = True
        if self._ready is not None and not self.over:
            self._line.say(Cancel(gen=0))

    def hear(self, message: Message, credit_us: int, at: float) -> None:
        """A message to this session's own subject. ``credit_us``: the credit that a 503 says nobody received."""
        if self.over:
            self._turn_away(message)
            return
        if message.no_responders:
            self._unheard(credit_us)
            return
        try:
            event = decode_event(message.headers, message.payload)
        except WireError:
            log.warning("what arrived for a session is no event of the wire contract; passed over")
            return
        self._quiet_ticks = 0
        self._line.heard()
        if self._resumption is not None:
            self._resumption.heard()
        if self._ready is None:
            self._hear_answer(event)
        else:
            self._hear_event(event, at)

    def _turn_away(self, message: Message) -> None:
        """A worker that was given up is back: it is told to stop, once."""
        if self.given_up and self._ready is not None and not self._cancelled and not message.no_responders:
            self._cancelled = True
            self._line.say(Cancel())

    def tick(self) -> None:
        """Every ``Patience.tick_s``."""
        if self.over or self._ready is None:
            return
        self._ticks += 1
        if self._pings and self._ticks % max(1, round(self._patience.ping_s / self._patience.tick_s)) == 0:
            self._line.say(Ping())
        box = self._outbox
        due = self._pings or box.finished or box.unspoken_chars > 0 or box.oldest is not None
        self._quiet_ticks = self._quiet_ticks + 1 if due else 0
        if self._resumption is not None:
            self._resumption.quiet(self._quiet_ticks * self._patience.tick_s)
        elif self._quiet_ticks * self._patience.tick_s > self._patience.silence_s:
            where = "" if self._bus.connected else "; the connection to NATS is lost"
            self.fail(WorkerGone(f"nothing heard for {self._patience.silence_s:g} s{where}"))

    def online(self) -> None:
        """The connection is back; what was said last may not have arrived."""
        self._line.repeat_in(0.0)

    def fail(self, error: Exception) -> None:
        """End the session on this side. The reader gets what has arrived, then the error."""
        if not self.over:
            self._failure = error
            self._inlet.fail(error)
            self._close()

    def _ask(self) -> None:
        self._line.say(Ping())

    # --- inbound ------------------------------------------------------------------------------------------------

    def _hear_answer(self, event: ControlEvent | Audio) -> None:
        match event:
            case Ready():
                self._ready = event
                self._line.open(event)
                if self._abandoned:
                    self._line.say(Cancel(gen=0))
                else:
                    self._settle(event)
            case Error():
                self.fail(event.as_exception())

    def _hear_event(self, event: ControlEvent | Audio, at: float) -> None:
        match event:
            case Audio():
                self._hear_audio(event, at)
            case Ready() if self._resumption is not None and event.input != self.ready.input:
                self._move(event)
            case Ready() if not self._outbox.awaits_cancelled:  # said again for those who come late
                self._outbox.taken(event.text_seq)
                self._line.progress()
            case Cancelled():
                if self._outbox.cancelled(event.gen):
                    self._inlet.begin(self._outbox.gen)
                    self._put(event)
            case Error():
                self._hear_error(event)
            case End():
                self._end = event
                self._inlet.end(event)
                self._close()
            case Mark() if not self._outbox.awaits_cancelled:
                self._put(event)
            case NeedText() | Flushed() | Pulse() if not self._outbox.awaits_cancelled:
                self._hear_progress(event)

    def _move(self, ready: Ready) -> None:
        """Another worker has the session."""
        assert self._resumption is not None
        self._resumption.done()
        self._ready = ready
        self._line.open(ready)
        if ready.gen is None or ready.since_gen is None:  # it knows nothing of the session, and has begun a new one
            self._line.say(Cancel())
            self.fail(WorkerGone("nobody remembers the session"))
        elif not self._outbox.adopt(ready.gen, ready.since_gen, ready.text_seq):
            self._line.say(Cancel())
            self.fail(WorkerGone("the session's new worker misses text that was confirmed"))
        else:
            self._inlet.moved(ready.gen)
            if self._outbox.awaits_cancelled:
                self._inlet.begin(self._outbox.gen)
            self._line.repeat_in(0.0)
            self._put(Moved(ready.worker, bool(ready.exact)))

    def _hear_audio(self, audio: Audio, at: float) -> None:
        self._starved = False
        self._refusals = 0
        self._line.audio()
        if audio.payload and self.first_audio_at is None:
            self.first_audio_at = at
        self._inlet.put_audio(TimedAudio(audio.payload, audio.seq, audio.pts, audio.gen, audio.encoding, at))

    def _hear_progress(self, event: NeedText | Flushed | Pulse) -> None:
        match event:
            case NeedText():
                self._starved = True
                self._outbox.spoken(event.text_seq)
                self._put(event)
            case Flushed() if self._outbox.awaits_flushed:
                self._outbox.flushed(event.text_seq)
                self._put(event)
            case Pulse():
                self._line.pulse(event.text_seq)
                self._put(event)

    def _hear_error(self, error: Error) -> None:
        match error.code:
            case "text_gap" | "over_limit" if self._line.mends(error):
                pass
            case "too_large" if error.retryable and self._may_have_room_later():
                self._line.refused()
            case "text_gap" | "too_large" if error.retryable:  # text that is gone here, or for which is never room
                self._line.say(Cancel())
                self.fail(error.as_exception())
            case "no_capacity" if self._resumption is not None:
                self._resumption.refused()
            case "no_session" if self._resumption is not None:
                if not self._resumption.asking:
                    self._resumption.unheard()
            case "no_session":
                self.fail(error.as_exception())
            case _:
                self._put(error)

    def _may_have_room_later(self) -> bool:
        """Not if the worker refuses text again and again while it is silent for want of text: a word without end."""
        self._refusals += 1
        return not self._starved or self._refusals <= REFUSALS

    def _put(self, event: Moved | Mark | NeedText | Flushed | Cancelled | Error | Pulse) -> None:
        self._inlet.put(event)
        self._line.progress()

    def _unheard(self, credit_us: int) -> None:
        if self._ready is None:
            self.fail(WireError("no_capacity", "no worker of the pool has room"))
        elif self._resumption is not None:
            self._line.unheard(credit_us)
            self._resumption.unheard()
        elif not self._line.unheard(credit_us):
            self.fail(WorkerGone("nobody receives the session's text"))

    # --- the end ------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._end is not None or self._cancelled:
            raise WireError("no_session", "the session has ended")

    def _settle(self, answer: Ready | Exception) -> None:
        if not self._answer.done():
            self._answer.set_result(answer)

    def _close(self) -> None:
        if self._failure is not None:
            self._settle(self._failure)
        self._line.close()
        if self._resumption is not None:
            self._resumption.close()
        self._on_over()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cancel()
