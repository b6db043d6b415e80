"""One text spoken to its end: pieces in as they are written, audio out as it is taken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from worker.audio.extent import samples_in
from worker.cli.command import CommandError
from worker.cli.dialogue import Dialogue
from worker.cli.manuscript import Manuscript
from worker.cli.sink import Sink
from worker.client import Speech, TimedAudio
from worker.errors import WorkerError
from worker.wire.events import Mark

CREDIT_MS = 10_000.0
"""Audio that the worker may be ahead of the sink."""
GRANT_MS = CREDIT_MS / 4

Progress = Callable[[float, float], None]
"""Called with the seconds of audio so far and the seconds since the session was opened."""


class Recital:
    """Memory stays flat however long the text is: the worker's room holds back the text, the sink the audio."""

    def __init__(self, text: Manuscript, sink: Sink, voices: int = 1) -> None:
        self._pieces = aiter(text)
        self._dialogue = Dialogue(voices)
        self._sink = sink
        self._first = ""
        self.marks: list[Mark] = []
        """Those of a session opened with marks, as they came."""
        self._audio_s = 0.0
        self._heard_at = 0.0

    @property
    def audio_ms(self) -> float:
        return 1000.0 * self._audio_s

    async def begin(self) -> None:
        """Wait for the first words. Raises CommandError if there are none."""
        async for piece in self._pieces:
            self._first = (self._first + piece).lstrip()
            if self._first:
                return
        raise CommandError("there is nothing to say: the text is empty")

    async def perform(self, speech: Speech, progress: Progress) -> str:
        """Returns how it went, for people. Raises CommandError, WorkerError or OSError, in a group."""
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self._write(speech))
            await self._listen(speech, progress)
            writing.cancel()
        return self._told(speech)

    async def _write(self, speech: Speech) -> None:
        try:
            await self._send(speech, self._first)
            async for piece in self._pieces:
                await self._send(speech, piece)
            await self._send(speech, "", last=True)
            await speech.finish()
        except WorkerError:
            if not speech.over:  # else the listener tells why
                raise

    async def _send(self, speech: Speech, piece: str, *, last: bool = False) -> None:
        for speaker, text in self._dialogue.take(piece, last=last):
            if text:
                await speech.send(text, speaker)

    async def _listen(self, speech: Speech, progress: Progress) -> None:
        owed_ms = 0.0
        async for audio in speech.audio(self.marks.append):
            await self._sink.write(audio.payload)
            length_s = _seconds(speech, audio)
            self._audio_s += length_s
            self._heard_at = audio.at
            progress(self._audio_s, audio.at - speech.opened_at)
            owed_ms += 1000 * length_s
            if owed_ms >= GRANT_MS:
                await speech.credit(owed_ms)
                owed_ms = 0.0
        if speech.end is not None and speech.end.reason != "finished":
            raise CommandError(f"the worker ended the session before the text: {speech.end.reason}")
        if not self._audio_s:
            raise CommandError("nothing in the text can be spoken")

    def _told(self, speech: Speech) -> str:
        assert speech.first_audio_at is not None
        first_ms = 1000 * (speech.first_audio_at - speech.opened_at)
        took_s = self._heard_at - speech.opened_at
        return (
            f"first audio after {first_ms:.0f} ms; {self._audio_s:.2f} s of speech in {took_s:.2f} s, "
            f"real-time factor {took_s / self._audio_s:.2f}"
        )


def _seconds(speech: Speech, audio: TimedAudio) -> float:
    form = speech.ready.format
    samples = samples_in(audio.payload, encoding=form.encoding, sample_rate=form.sample_rate, pts=audio.pts)
    return samples / form.sample_rate


@contextlib.contextmanager
def progress_line(shown: bool) -> Iterator[Progress]:
    """A line on standard error that is gone when the block ends."""
    if not shown:
        yield lambda audio_s, took_s: None
        return
    from rich.console import Console
    from rich.progress import Progress as Line
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Line(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as line:
        task = line.add_task("no speech yet", total=None)

        def update(audio_s: float, took_s: float) -> None:
            line.update(task, description=f"{audio_s:.1f} s of speech, {audio_s / took_s:.1f} times as fast as heard")

        yield update
