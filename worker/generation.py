"""One generation of a session: its text on the way to the engine, its audio on the way out."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable

from engine.contract import Entry, SlotFrame
from scheduler import messages as sched
from worker.errors import WireError
from worker.marks import Marks
from worker.narration import Narration, Outlet
from worker.plumbing import Stage
from worker.wire import events


class Phase(enum.Enum):
    """The states of ARCHITECTURE.md's table."""

    QUIET = "quiet"
    SPEAKING = "speaking"
    STALLED = "stalled"
    FLUSHED = "flushed"
    FINISHING = "finishing"
    OVER = "over"


class Generation:
    """Begins with the session or with a ``cancel`` that keeps it. The session calls it with messages and events of this
    generation alone; after ``close`` nothing of it reaches engine or listener."""

    def __init__(self, number: int, stage: Stage, noise: int | None = None, before: str = "", speaker: int = 0) -> None:
        """``noise``: what the engine knows it by, if a take-over has raised its number. ``before``: text of it that is
        spoken and forgotten. ``speaker``: whose text comes first."""
        self.number = number
        self.noise = number if noise is None else noise
        self.finished = False
        """No more text will come."""
        self.told = 0
        """Commands about text that went to the engine."""
        self.begun = False
        """The engine was given something to say."""
        self.at_work = False
        """The engine has something to say, or to answer."""
        self.stalled = False
        """The engine waits for text."""
        self._before = before
        self._needy = False  # the engine waits for text, and the producer has not been told
        self._stage = stage
        self._flushes: deque[int] = deque()  # the text_seq of each that is not answered yet
        self._more = False  # the engine was given text behind the last flush
        self._marks = Marks(stage.egress.media_ms)
        outlet = Outlet(self._push, self._tell_need, self._unreadable)
        self._narration = Narration(stage.opening, stage.plumbing.reader, outlet, self._marks, speaker)
        self._samples = 0  # that the engine has charged for
        self._credited_ms = 0.0
        self._from_pts = stage.egress.pts

    @property
    def phase(self) -> Phase:
        if self.finished:
            return Phase.FINISHING
        if not self.begun:
            return Phase.QUIET
        if self.at_work:
            return Phase.SPEAKING
        return Phase.STALLED if self.stalled else Phase.FLUSHED

    # --- text -----------------------------------------------------------------------------------------------------

    @property
    def reading(self) -> bool:
        """Text is still on its way to the engine."""
        return self._narration.busy

    async def read(self) -> None:
        """Return when the engine was told all of the text."""
        await self._narration.read()

    @property
    def silent(self) -> bool:
        """Nothing at all has been said in it."""
        return not (self._narration.characters or self._flushes or self.finished)

    @property
    def unspoken_characters(self) -> int:
        return self._narration.unspoken_characters

    @property
    def speaker(self) -> int:
        """Whose the text is that comes next, if nothing else is said."""
        return self._narration.speaker

    def feed(self, text: str, speaker: int | None = None) -> None:
        before = self._narration.characters
        self._narration.feed(text, speaker)
        self._stage.tally.characters += self._narration.characters - before

    def flush(self) -> None:
        self._flushes.append(self._stage.intake.text_seq)
        self._stage.plumbing.telemetry.flushed(self._stage.span)
        self._narration.flush(self._flush)

    def finish(self) -> None:
        self.finished = True
        self._narration.finish(lambda: self._set_to_work(sched.Finish(self._stage.session, self.noise)))

    def split(self, played_ms: float | None) -> tuple[str, str]:
        """The text that was spoken, and the rest: by a listener's media time, or by what was sent."""
        spoken, unspoken = self._narration.split(played_ms)
        return self._before + spoken, unspoken

    @property
    def read_to(self) -> int:
        """Characters of the text up to the end of the last word that is begun."""
        return len(self._before) + self._narration.read_to

    def close(self) -> None:
        self._narration.close()

    # --- engine events --------------------------------------------------------------------------------------------

    def frame(self, frame: SlotFrame, lateness_s: float) -> None:
        stage, tally, plumbing = self._stage, self._stage.tally, self._stage.plumbing
        now = plumbing.now()
        self.at_work, self.stalled = True, False
        tally.resume(now)
        if frame.word:
            tally.words += 1
            self._narration.word_taken((frame.step - 1) * plumbing.frame_samples)
        if frame.pause:
            self._marks.pause((frame.step - 1) * plumbing.frame_samples)
        if not frame.pcm:
            return
        self._samples += len(frame.pcm) // 2
        self._marks.send(frame)
        tally.frames += 1
        plumbing.telemetry.frame(stage.span, len(frame.pcm) / 2 / plumbing.sample_rate, lateness_s)
        if stage.egress.audio(frame.pcm, self.number, self._tell_marks) and tally.first_audio_at is None:
            tally.first_audio_at = now
            plumbing.telemetry.first_audio(stage.span, now - tally.opened_at)
        self._credit(1000.0 * stage.egress.trimmed / plumbing.sample_rate)

    def retell(self, frame: SlotFrame) -> None:
        """One that another worker has sent: all that it changed here, and nothing for anybody else."""
        stage = self._stage
        if frame.word:
            self._narration.word_taken((frame.step - 1) * stage.plumbing.frame_samples)
        if frame.pause:
            self._marks.pause((frame.step - 1) * stage.plumbing.frame_samples)
        if frame.pcm:
            self._samples += len(frame.pcm) // 2
            self._marks.send(frame)
            stage.egress.audio(frame.pcm, self.number, self._tell_marks)
            self._credited_ms = max(self._credited_ms, 1000.0 * stage.egress.trimmed / stage.plumbing.sample_rate)
        if frame.flushed:
            self._end_utterance()

    def answered(self, flushes: int) -> None:
        """So many of the flushes so far were answered by another worker."""
        for _ in range(flushes):
            self._flushes.popleft()
        self.at_work = bool(self._flushes) or self._more or self.finished

    def wants_text(self) -> None:
        if self.finished or self._flushes:
            return  # it crossed with our finish or flush
        self.at_work = False
        self.stalled = self._needy = True
        self._tell_need()

    def _tell_need(self) -> None:
        """Once what has come is read, and there was no word in it."""
        stage = self._stage
        if self._needy and not self._narration.busy:
            self._needy = False
            stage.tally.stalled.start(stage.plumbing.now())
            stage.plumbing.telemetry.stalled(stage.span)
            stage.egress.event(events.NeedText(text_seq=stage.intake.text_seq))

    def flushed(self) -> None:
        egress = self._stage.egress
        self._end_utterance()
        seq = self._flushes.popleft() if self._flushes else self._stage.intake.text_seq
        self.at_work = bool(self._flushes) or self._more or self.finished
        egress.event(events.Flushed(text_seq=seq, pts=egress.pts))

    def ended(self) -> None:
        self._end_utterance(last=True)

    def _end_utterance(self, *, last: bool = False) -> None:
        self._stage.egress.tail(self.number, self._tell_marks, last=last)
        self._tell(self._marks.rest(self._sent_ms))

    # --- marks ----------------------------------------------------------------------------------------------------

    @property
    def _sent_ms(self) -> float:
        return 1000.0 * self._stage.egress.pts / self._stage.settled.format.sample_rate

    def _tell_marks(self) -> None:
        """Audio is about to go out; ``pts`` counts it already."""
        self._tell(self._marks.due(self._sent_ms))

    def _tell(self, marks: Iterable[events.Mark]) -> None:
        if self._stage.settled.marks:
            for mark in marks:
                offset = len(self._before) + mark.offset
                self._stage.egress.event(mark.model_copy(update={"offset": offset}) if self._before else mark)

    # --- credit ---------------------------------------------------------------------------------------------------

    def refund(self) -> None:
        """The generation is cut: what was made and not sent costs nothing."""
        stage = self._stage
        sent_ms = 1000.0 * (stage.egress.pts - self._from_pts) / stage.settled.format.sample_rate
        self._credit(1000.0 * self._samples / stage.plumbing.sample_rate - sent_ms)

    def _credit(self, unsent_ms: float) -> None:
        """``unsent_ms``: of this generation, in all."""
        if self._stage.settled.credit_ms is not None and unsent_ms > self._credited_ms:
            self._stage.submit(sched.Credit(self._stage.session, unsent_ms - self._credited_ms))
            self._credited_ms = unsent_ms

    # --- to the engine --------------------------------------------------------------------------------------------

    def _push(self, entries: tuple[Entry, ...]) -> None:
        self.begun = self._more = True
        self._set_to_work(sched.Push(self._stage.session, self.noise, entries))

    def _flush(self) -> None:
        self._more = False
        self._set_to_work(sched.Flush(self._stage.session, self.noise))

    def _set_to_work(self, command: sched.Push | sched.Flush | sched.Finish) -> None:
        self.at_work, self.stalled, self._needy = True, False, False
        self._stage.set_to_work(command)

    def _unreadable(self) -> None:
        self._stage.fail(WireError("internal", "the text could not be read"))
