"""A session's way from one worker to another: what is counted of it here, and how it begins again there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from engine.contract import SlotFrame
from scheduler import messages as sched
from worker.generation import Generation
from worker.ledger import Ledger
from worker.plumbing import Stage
from worker.wire.events import Usage
from worker.wire.journal import Counters, OrderKind

Text = sched.Push | sched.Flush | sched.Finish


class Passage:
    """The generation is read and heard again from its beginning, by the code that did it the first time, so that marks,
    filters and encoders are what they were; only that the engine keeps its text until it has all of it, and that
    nothing of it is sent."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._origin: Counters | None = None
        self._script: list[Text] | None = None

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

    def retell(self, generation: Generation, frames: Sequence[SlotFrame]) -> None:
        route = self._stage.egress.route
        route.muted = True
        for frame in frames:
            generation.retell(frame)
        route.muted = False

    def restored(self) -> None:
        if self._origin is not None:
            self._stage.egress.resume_at(self._origin.seq, self._origin.pts)
            self._origin = None
