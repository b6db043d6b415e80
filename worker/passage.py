"""A session's way from one worker to another: what is counted of it here, and how it begins again there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from engine.contract import SlotFrame
from scheduler import messages as sched
from worker.errors import WireError
from worker.generation import Generation
from worker.ledger import Ledger
from worker.plumbing import Stage
from worker.scribe import Scribe
from worker.wire.events import Error, Usage
from worker.wire.journal import Counters, Cut, OrderKind
from worker.wire.requests import Input, Ping

Text = sched.Push | sched.Flush | sched.Finish


class Passage:
    """The generation is read and heard again from its beginning, by the code that did it the first time, so that marks,
    filters and encoders are what they were; only that the engine keeps its text until it has all of it, and that
    nothing of it is sent."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._origin: Counters | None = None
        self._script: list[Text] | None = None
        self._deferred: list[Input] = []

    def count(self, usage: Usage, credit_ms: float | None) -> Counters | None:
        """Where the session stands; None while its events are withheld."""
        egress, text_seq = self._stage.egress, self._stage.intake.text_seq
        if egress.route.quiet:
            return None
        if self._origin is not None:  # on its way
            return dataclasses.replace(self._origin, text_seq=text_seq)
        return Counters(
            seq=egress.seq,
            pts=egress.pts,
            text_seq=text_seq,
            credit_ms=credit_ms,
            usage=(usage.characters, usage.words, usage.frames),
            first_audio_ms=usage.first_audio_ms,
            queued_ms=usage.queued_ms,
            stalled_ms=usage.stalled_ms,
        )

    def adopt(self, ledger: Ledger, generation: Generation, age_s: float) -> None:
        """``generation``: a new one. What it would tell the engine is kept."""
        stage = self._stage
        stage.intake.generation, stage.intake.since = ledger.number, ledger.since
        stage.intake.text_seq, stage.egress.seq = ledger.texts_before, ledger.origin_seq
        self._origin, self._script = ledger.counters, []
        for kind, text in ledger.orders:
            self._obey(generation, kind, text)
        generation.answered(ledger.answered)
        stage.intake.text_seq = ledger.counters.text_seq
        stage.tally.adopt(ledger.counters, stage.plumbing.now() - age_s)

    def _obey(self, generation: Generation, kind: OrderKind, text: str) -> None:
        match kind:
            case "opening":
                generation.feed(text)
            case "text":
                self._stage.intake.take()
                generation.feed(text)
            case "speaker":
                generation.feed("", int(text))
            case "flush":
                generation.flush()
            case "finish":
                generation.finish()

    def keeps(self, command: Text) -> bool:
        """Whether it is kept for the script."""
        if self._script is not None:
            self._script.append(command)
        return self._script is not None

    async def script(self, generation: Generation) -> tuple[Text, ...]:
        """All that the engine is to be told of the generation, once it is read."""
        await generation.read()
        script, self._script = self._script or [], None
        return tuple(script)

    def tell(self, generation: Generation, event: sched.Frame, scribe: Scribe) -> None:
        """A frame for the listeners, and for the journal."""
        with self._cut(generation, event.frame) as cuts:
            generation.frame(event.frame, event.lateness_s)
        scribe.frame(event.frame, cuts[0] if cuts else None)

    def retell(self, generation: Generation, frames: Sequence[SlotFrame], scribe: Scribe) -> None:
        """Frames that another worker has sent."""
        route = self._stage.egress.route
        route.muted = True
        for frame in frames:
            with self._cut(generation, frame) as cuts:
                generation.retell(frame)
            for cut in cuts:
                scribe.retold(cut)
        route.muted = False

    @contextmanager
    def _cut(self, generation: Generation, frame: SlotFrame) -> Iterator[list[Cut]]:
        """Filled if the frame that is heard inside begins a word of the text, and not the rest of a number's."""
        egress, cuts = self._stage.egress, list[Cut]()
        cut = Cut(frame.step - 1, generation.read_to, egress.seq, egress.pts)
        yield cuts
        if generation.read_to > cut.offset:
            cuts.append(cut)

    def defers(self, message: Input) -> bool:
        """Whether it has to wait: what was spoken is known when all is heard again. A ping is answered."""
        if self._origin is None or isinstance(message, Ping):
            return False
        self._deferred.append(message)
        return True

    def restored(self, receive: Callable[[Input], None]) -> None:
        """The session goes on. ``receive`` is given what had to wait; it may raise WireError."""
        egress = self._stage.egress
        if self._origin is not None:
            egress.resume_at(self._origin.seq, self._origin.pts)
            self._origin = None
        deferred, self._deferred = self._deferred, []
        for message in deferred:
            try:
                receive(message)
            except WireError as error:
                egress.event(Error.of(error))
