"""One generation of a session: its text on the way to the engine, its audio on the way out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from engine.contract import Entry, SlotFrame
from scheduler import messages as sched
from worker.errors import WireError
from worker.marks import Marks
from worker.narration import Narration, Outlet
from worker.plumbing import Stage
from worker.wire import events


class Generation:
    """Begins with the session or with a ``cancel`` that keeps it. The session calls it with messages and events of this
    generation alone; after ``close`` nothing of it reaches engine or listener."""

    def __init__(self, number: int, stage: Stage) -> None:
        self.number = number
        self.finished = False
        """No more text will come."""
        self.at_work = False
        """The engine has something to say."""
        self._needy = False  # the engine waits for text, and the producer has not been told
        self._stage = stage
        self._flushes: deque[int] = deque()  # the text_seq of each that is not answered yet
        self._marks = Marks(stage.egress.media_ms)
        outlet = Outlet(self._push, self._tell_need, self._unreadable)
        self._narration = Narration(stage.opening, stage.plumbing.reader, outlet, self._marks)

    # --- text -----------------------------------------------------------------------------------------------------

    @property
    def reading(self) -> bool:
        """Text is still on its way to the engine."""
        return self._narration.busy

    @property
    def unspoken_characters(self) -> int:
        return self._narration.unspoken_characters

    def feed(self, text: str) -> None:
        before = self._narration.characters
        self._narration.feed(text)
        self._stage.tally.characters += self._narration.characters - before

    def flush(self) -> None:
        self._flushes.append(self._stage.intake.text_seq)
        self._stage.plumbing.telemetry.flushed(self._stage.span)
        self._narration.flush(lambda: self._set_to_work(sched.Flush(self._stage.session, self.number)))

    def finish(self) -> None:
        self.finished = True
        self._narration.finish(lambda: self._set_to_work(sched.Finish(self._stage.session, self.number)))

    def split(self, played_ms: float | None) -> tuple[str, str]:
        """The text that was spoken, and the rest: by a listener's media time, or by what was sent."""
        return self._narration.split(played_ms)

    def close(self) -> None:
        self._narration.close()

    # --- engine events --------------------------------------------------------------------------------------------

    def frame(self, frame: SlotFrame, lateness_s: float) -> None:
        stage, tally, plumbing = self._stage, self._stage.tally, self._stage.plumbing
        now = plumbing.now()
        self.at_work = True
        tally.resume(now)
        if frame.word:
            tally.words += 1
            self._narration.word_taken((frame.step - 1) * plumbing.frame_samples)
        if frame.pause:
            self._marks.pause((frame.step - 1) * plumbing.frame_samples)
        if not frame.pcm:
            return
        self._marks.send(frame)
        tally.frames += 1
        plumbing.telemetry.frame(stage.span, len(frame.pcm) / 2 / plumbing.sample_rate, lateness_s)
        if stage.egress.audio(frame.pcm, self.number, self._tell_marks) and tally.first_audio_at is None:
            tally.first_audio_at = now
            plumbing.telemetry.first_audio(stage.span, now - tally.opened_at)

    def stalled(self) -> None:
        if self.finished or self._flushes:
            return  # it crossed with our finish or flush
        self.at_work = False
        self._needy = True
        self._tell_need()

    def _tell_need(self) -> None:
        """Once what has come is read, and there was no word in it."""
        stage = self._stage
        if self._needy and not self._narration.busy:
            self._needy = False
            stage.tally.stalled_since = stage.plumbing.now()
            stage.plumbing.telemetry.stalled(stage.span)
            stage.egress.event(events.NeedText(text_seq=stage.intake.text_seq))

    def flushed(self) -> None:
        self.at_work = False
        egress = self._stage.egress
        self._end_utterance()
        seq = self._flushes.popleft() if self._flushes else self._stage.intake.text_seq
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
                self._stage.egress.event(mark)

    # --- to the engine --------------------------------------------------------------------------------------------

    def _push(self, entries: tuple[Entry, ...]) -> None:
        self._set_to_work(sched.Push(self._stage.session, self.number, entries))

    def _set_to_work(self, command: sched.Push | sched.Flush | sched.Finish) -> None:
        self.at_work, self._needy = True, False
        self._stage.submit(command)

    def _unreadable(self) -> None:
        self._stage.fail(WireError("internal", "the text could not be read"))
