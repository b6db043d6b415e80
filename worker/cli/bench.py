"""``antiphon bench``: many live sessions through a real NATS server, or one very long one, and what they show."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import CliPositionalArg, CliToggleFlag

from worker.cli.command import Command, CommandError
from worker.cli.formats import Format, usual_rate
from worker.measure import report
from worker.measure.ladder import Climb, climb
from worker.measure.live import LivePlan, measure_live
from worker.measure.live_report import live_document, show_live
from worker.measure.load import Mode, Plan
from worker.measure.machine import Machine, this_machine
from worker.measure.rig import Rig, rigged
from worker.measure.soak import Soak, SoakFailed
from worker.measure.stalls import Phase
from worker.measure.texts import UTTERANCES, read_texts
from worker.sections import Token
from worker.wire.offer import FORMATS
from worker.wire.requests import AudioFormat

if TYPE_CHECKING:
    from rich.console import Console

STDOUT = Path("-")
PROGRESS_S = 10.0
OWN_ONLY = {
    "soak": "looks into the worker's process",
    "live": "hangs up on the worker and burdens the server",
}


class Bench(Command):
    """Measure how many sessions speak at once and how promptly, or whether the worker's memory grows.

    "sessions": N slots, each of which opens a session with a whole text (or types it), hears it on an ideal player,
    and opens the next when it has ended; all N begin in the same instant. "live": N callers who type, stall, interrupt,
    hang up, join all at once and have slow listeners. "soak": one session at pace fast. Unless told otherwise, a
    nats-server and a worker are started for it, each a process of its own.

    Exit code 1: nothing could be measured; live: a session or a frame was lost; soak: the memory grows.
    """

    what: CliPositionalArg[Literal["sessions", "live", "soak"]] = Field(
        default="sessions", description="sessions, live or soak"
    )
    sessions: int = Field(default=16, ge=1, le=4096, description="sessions at once")
    seconds: float = Field(default=60.0, gt=0, description="for how long sessions follow each other")
    mode: Mode = Field(default="whole", description="give each text at once, or type it")
    char_ms: float = Field(default=20.0, ge=0, description="time between two characters, if typed")
    token_ms: float = Field(default=25.0, ge=0, description="live: time between two words")
    text_file: Path | None = Field(default=None, description="UTF-8 file; each paragraph is a session's text")
    format: Format = Field(default="pcm_s16le", description="of the audio; live and soak take pcm_s16le")
    rate: int | None = Field(default=None, description="samples per second (default: 24000; 8000 in mulaw and alaw)")
    find_limit: CliToggleFlag[bool] = Field(
        default=False, description="more and more sessions, from --sessions on, until the first underrun or refusal"
    )
    step: int = Field(default=2, ge=1, description="sessions added at a time")
    minutes: float = Field(default=20.0, gt=0, description="soak: minutes of audio")
    server: Literal["own", "configured"] = Field(
        default="own", description="a server and a worker of our own, or the configured server and who serves there"
    )
    tenant: Token = Field(default="default", description="whose sessions, on the configured server")
    seed: int = Field(default=0, ge=0, description="of the speech and of the order of the texts")
    idle_seconds: float = Field(default=2.0, ge=0, description="watch the machine alone for so long before the load")
    log: Path | None = Field(default=None, description="file for the log of our own worker")
    json_file: Path | None = Field(default=None, alias="json", description="write all figures to a file; -: to stdout")

    @field_validator("rate")
    @classmethod
    def _known_rate(cls, value: int | None, info: ValidationInfo) -> int | None:
        rates = FORMATS[info.data.get("format", "pcm_s16le")]
        if value is not None and value not in rates:
            raise PydanticCustomError("rate", f"unsupported_format: one of {', '.join(map(str, rates))}")
        return value

    async def cli_cmd(self) -> int:
        if self.server != "own" and self.what in OWN_ONLY:
            raise CommandError(f"--server: {self.what} {OWN_ONLY[self.what]}, so it starts its own")
        texts = UTTERANCES if self.text_file is None else await asyncio.to_thread(_texts, self.text_file)
        machine = await asyncio.to_thread(this_machine)
        self._tell("starting a nats-server and a worker" if self.server == "own" else "connecting")
        own = self.server == "own"
        async with rigged(self, texts, own=own, tenant=self.tenant, seed=self.seed, log=self.log) as rig:
            kinds = {"sessions": self._sessions, "live": self._live, "soak": self._soak}
            return await rig.guarded(kinds[self.what](rig, machine))

    async def _sessions(self, rig: Rig, machine: Machine) -> int:
        await rig.warm_up()
        idle = await rig.watch(self.idle_seconds)
        climbed = await climb(lambda n: self._run(rig, n, idle), self.sessions, self.step, once=not self.find_limit)
        figures = report.document(self._plan(), machine, idle, climbed.runs)
        if self.find_limit:
            figures["limit"] = climbed.as_dict()
            self._console().print(_told(climbed))
        await asyncio.to_thread(self._write, figures)
        return 0 if climbed.runs[0].summary.opened else 1

    async def _run(self, rig: Rig, sessions: int, idle: Phase) -> report.Run:
        self._tell(f"{sessions} sessions for {self.seconds:g} s")
        rate = self.rate or usual_rate(self.format)
        form = AudioFormat(encoding=self.format, sample_rate=rate)
        run = await rig.measure(Plan(sessions, self.seconds, self.mode, self.char_ms, form))
        report.show(self._console(), run, idle)
        return run

    async def _live(self, rig: Rig, machine: Machine) -> int:
        await rig.warm_up()
        idle = await rig.watch(self.idle_seconds)
        self._tell(f"{self.sessions} callers for {self.seconds:g} s")
        run = await measure_live(rig, LivePlan(self.sessions, self.seconds, self.token_ms), self.worker.pool)
        show_live(self._console(), run, idle)
        await asyncio.to_thread(self._write, live_document(self._plan(), machine, idle, run))
        return 0 if run.summary.last_frame is not None and not run.summary.faults else 1

    async def _soak(self, rig: Rig, machine: Machine) -> int:
        soak = rig.soak(self.minutes)
        self._tell(f"{self.minutes:g} minutes of audio")
        telling = asyncio.create_task(self._tell_progress(soak))
        try:
            await soak.run()
            growth = soak.samples.judge()
        except (SoakFailed, ValueError) as error:
            raise CommandError(f"soak: {error}") from None
        finally:
            telling.cancel()
        for line in report.soak_lines(soak, growth):
            self._console().print(line)
        figures = {"plan": self._plan(), "machine": report.machine_dict(machine), **report.soak_dict(soak, growth)}
        await asyncio.to_thread(self._write, figures)
        return 0 if growth.flat else 1

    def _plan(self) -> dict[str, object]:
        """What was asked for, and the settings that were not the defaults."""
        own = set(type(self).model_fields) - set(Command.model_fields) - {"json_file", "log"}
        asked = self.model_dump(mode="json", include=own)
        sections = set(Command.model_fields) - {"config", "print_config", "nats"}
        settings = self.model_dump(mode="json", include=sections, exclude_unset=True)
        return {**asked, "settings": settings, "warm_up_sessions": 1}

    def _write(self, figures: Mapping[str, object]) -> None:
        if self.json_file is not None:
            text = json.dumps(figures, indent=1) + "\n"
            if self.json_file == STDOUT:
                sys.stdout.write(text)
            else:
                self.json_file.write_text(text, encoding="utf-8")

    def _console(self) -> Console:
        from rich.console import Console

        return Console(file=sys.stderr if self.json_file == STDOUT else sys.stdout, highlight=False, soft_wrap=True)

    async def _tell_progress(self, soak: Soak) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            self._tell(f"{soak.player.audio_s / 60:.1f} of {self.minutes:g} minutes")

    def _tell(self, what: str) -> None:
        print(f"bench: {what}", file=sys.stderr, flush=True)


def _texts(path: Path) -> tuple[str, ...]:
    try:
        return read_texts(path)
    except ValueError as error:
        raise CommandError(f"--text-file: {path}: {error}") from None


def _told(climbed: Climb) -> str:
    reached = "not even the first load went" if climbed.clean is None else f"{climbed.clean} sessions at once went"
    return f"{reached} without a fault; then {climbed.limit}"
