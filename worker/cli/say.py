"""``antiphon say``: speak a text, a file or what is typed, into a WAV file or a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import CliPositionalArg, CliSuppress, CliToggleFlag, NoDecode, SettingsConfigDict

from worker import logs
from worker.cli.captions import is_kind, written
from worker.cli.command import Command, CommandError
from worker.cli.formats import CONTAINERS, ENDINGS, Format, by_ending, clash, usual_ending, usual_rate
from worker.cli.manuscript import manuscript
from worker.cli.reach import pool, refusal
from worker.cli.recital import CREDIT_MS, Recital, progress_line
from worker.cli.sink import Sink, file_sink, stdout_sink
from worker.client import Client, Speech
from worker.errors import WireError
from worker.layers import Problem, SettingsError, flag
from worker.sections import TelemetrySettings
from worker.wire.offer import FORMATS
from worker.wire.requests import AudioFormat, Open

DEFAULT_OUT = "speech"
LONG_CHARS = 1_000
"""From here on a progress line is worth it."""
OPEN_S = 35.0
"""Longer than a worker waits for a voice that it has to fetch first."""
LONG_S = 86_400.0
"""How long a user may type, or a text take, if the worker allows it."""
TERMINATED = 143
"""What a shell reports for a process that SIGTERM ends."""
PASSED_ON = (
    "voice",
    "language",
    "seed",
    "temperature",
    "top_k",
    "cfg",
    "padding_bonus",
    "padding_between",
    "max_padding",
    "gain_db",
    "trim_silence",
)
"""Options of ``open`` that have the same name here."""


def _pairs(value: object) -> object:
    """Repeated flags arrive joined by commas; a comma inside a spelling is followed by no ``word=``."""
    if not isinstance(value, str):
        return value
    pairs = [pair.strip() for pair in re.split(r",(?=[^\s,=]+=)", value)]
    if not all(re.match(r"[^\s=]+=.", pair) for pair in pairs):
        raise PydanticCustomError("pair", "is WORD=SPELLING, e.g. --pronounce 'nginx=engine x'")
    return pairs


class Say(Command):
    """Speak TEXT, a file, or what comes through standard input while it is being written.

    The speech goes to speech.wav, or to --out FILE; where standard output is a pipe or a file and --out is not given,
    it goes there. The format is --format's or the file name's: .wav, .opus, .ogg, .ul, .al, .pcm; without either it is
    WAV, in a pipe as a stream; --raw means bare samples. Whatever else there is to say goes to standard error. A file
    appears whole or not at all.

    Speech is made as fast as the machine can, no more than ten seconds ahead of what is taken from us, so a player at
    the end of a pipe sets the pace; with --pace live it comes as it is heard.

    The worker is one of the configured server's; if none is configured and none serves the pool at the default server,
    one runs in this process for the occasion.

    Several voices, where the model knows that, are --voice ANNA,BERT; a line that begins with [2] is then the second
    one's, and so is all that follows until another mark.
    """

    model_config = SettingsConfigDict(cli_shortcuts={"file": "f", "out": "o"})

    text: CliPositionalArg[str | None] = Field(default=None, description="what to say; - or nothing: standard input")
    file: str | None = Field(default=None, description="say what this file holds; - is standard input")
    raw: CliToggleFlag[bool] = Field(default=False, description="samples without a header, for programs")
    format: Format | None = Field(default=None, description="of the speech (default: by the file's name, else wav)")
    out: str | None = Field(
        default=None, description="where the speech goes; - is standard output (default: speech.wav, or the pipe)"
    )
    voice: str | None = Field(
        default=None, description="one of those that `antiphon voices` lists, or several, separated by commas"
    )
    language: str | None = Field(default=None, description="of the text")
    rate: int | None = Field(
        default=None, description="samples per second (default: 24000; 8000 in mulaw and alaw)", validate_default=True
    )
    pace: Literal["fast", "live"] = Field(default="fast", description="as fast as possible, or as it is heard")
    seed: int | None = Field(default=None, description="the same seed gives the same speech; unset: random")
    temperature: float | None = Field(default=None, description="how freely it speaks; 0: the likeliest way")
    top_k: int | None = Field(default=None, description="candidates for every sound")
    cfg: float | None = Field(default=None, description="how closely it follows the voice")
    padding_bonus: float | None = Field(default=None, description="above 0 speaks slower, below 0 faster")
    padding_between: int | None = Field(default=None, description="frames of 80 ms to wait after every word")
    max_padding: int | None = Field(default=None, description="frames after which the next word comes at the latest")
    gain_db: float = Field(default=0.0, description="louder or softer")
    trim_silence: CliToggleFlag[bool] = Field(default=False, description="leave out the silence at the beginning")
    pronounce: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_pairs)] = Field(
        default=(), description="WORD=SPELLING: say a word as it is spelt there; may be repeated"
    )
    marks: str | None = Field(
        default=None, description="write when each word is heard: FILE.json, or captions to FILE.srt or FILE.vtt"
    )
    session: str | None = Field(
        default=None, description="a name, 16 to 64 letters and digits, under which others may hear it: antiphon listen"
    )
    tenant: str = Field(default="default", description="whose session it is")
    speed: CliSuppress[str | None] = None

    @field_validator("file")
    @classmethod
    def _one_text(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("text") is not None:
            raise PydanticCustomError("conflict", "cannot be combined with a text")
        return value

    @field_validator("format")
    @classmethod
    def _has_no_header(cls, value: Format | None, info: ValidationInfo) -> Format | None:
        if value in CONTAINERS and info.data.get("raw"):
            raise PydanticCustomError("format", f"{value} has a header, which --raw leaves out")
        return value

    @field_validator("out")
    @classmethod
    def _known_kind(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None or info.data.get("raw"):
            return value
        form, suffix = info.data.get("format"), Path(value).suffix
        if form is None and suffix and by_ending(value) is None:
            raise PydanticCustomError("format", f"an unknown ending: one of {' '.join(ENDINGS)}, or name a --format")
        if form is not None and (why := clash(form, value)) is not None:
            raise PydanticCustomError("format", why)
        return value

    @field_validator("marks")
    @classmethod
    def _known_captions(cls, value: str | None) -> str | None:
        if value is not None and not is_kind(value):
            raise PydanticCustomError("marks", "is a file whose name ends in .json, .srt or .vtt")
        return value

    @field_validator("rate")
    @classmethod
    def _known_rate(cls, value: int | None, info: ValidationInfo) -> int:
        form = _format(info.data.get("format"), info.data.get("out"), raw=info.data.get("raw", False))
        if value is not None and value not in FORMATS[form]:
            rates = ", ".join(map(str, FORMATS[form]))
            raise PydanticCustomError("rate", f"unsupported_format: one of {rates} in {form}")
        return value or usual_rate(form)

    @field_validator("speed")
    @classmethod
    def _no_speed(cls, value: str | None) -> None:
        if value is not None:
            raise PydanticCustomError(
                "speed", "unsupported_option: the voice has no speed; --padding-bonus makes it slower or faster"
            )

    async def cli_cmd(self) -> int:
        logs.configure(self._quiet())
        request = self._request()
        with _ended_by_sigterm() as ended:
            try:
                await self._say(request)
            except asyncio.CancelledError:
                if not ended():
                    raise
                return TERMINATED
        return 0

    async def _say(self, request: Open) -> None:
        out = self._out()
        text = await manuscript(self.text, self.file)
        await text.check()
        typed = text.chars is None and self.file in (None, "-") and sys.stdin.isatty()
        if typed:
            print("type what is to be said; Ctrl-D ends it", file=sys.stderr)
        shown = sys.stderr.isatty() and not typed and (text.chars is None or text.chars >= LONG_CHARS)
        async with self._sink(out) as sink, self._marks_file() as file, pool(self, self.tenant) as client:
            recital = Recital(text, sink, len(request.voices))
            await recital.begin()
            async with await self._open(client, request) as speech:
                with progress_line(shown) as progress:
                    told = await recital.perform(speech, progress)
            if file is not None:
                await file.write(written(self.marks or "", recital.marks, recital.audio_ms))
        print(told if out == "-" else f"{told}; {out}", file=sys.stderr)

    async def _open(self, client: Client, request: Open) -> Speech:
        try:
            return await client.open(request, timeout_s=OPEN_S, retries=0)
        except WireError as error:
            raise await refusal(client, error, self) from None

    def _quiet(self) -> TelemetrySettings:
        """What a worker of our own does is worth no line, unless the user says so."""
        level = self.telemetry.log_level if "log_level" in self.telemetry.model_fields_set else "warning"
        return self.telemetry.model_copy(update={"log_level": level})

    def _request(self) -> Open:
        """Raises SettingsError, with the names that the options have here."""
        options: dict[str, Any] = {name: getattr(self, name) for name in PASSED_ON}
        if self.voice is not None and "," in self.voice:
            options["voice"] = [name.strip() for name in self.voice.split(",")]
        try:
            return Open(
                **options,
                format=AudioFormat(encoding="pcm_s16le" if self._form == "wav" else self._form, sample_rate=self._rate),
                pronunciations=dict(pair.split("=", 1) for pair in self.pronounce),
                pace=self.pace,
                session=self.session,
                fanout=self.session is not None,
                marks=self.marks is not None,
                credit_ms=CREDIT_MS,
                idle_timeout_s=LONG_S,
                max_session_s=LONG_S,
            )
        except ValidationError as error:
            raise SettingsError(*_problems(error)) from None

    @property
    def _form(self) -> Format:
        return _format(self.format, self.out, raw=self.raw)

    @property
    def _rate(self) -> int:
        assert self.rate is not None, "validated"
        return self.rate

    def _out(self) -> str:
        """Raises CommandError."""
        tty = sys.stdout.isatty()
        if self.out is None and not (self.raw and tty):
            return DEFAULT_OUT + usual_ending(self._form) if tty else "-"
        if tty and self.out in (None, "-"):
            raise CommandError("standard output is a terminal: send it through a pipe, or name a file with --out")
        assert self.out is not None
        return self.out

    def _marks_file(self) -> AbstractAsyncContextManager[Sink | None]:
        if self.marks is None:
            return contextlib.nullcontext()
        return file_sink(Path(self.marks).expanduser(), self._rate, raw=True)

    def _sink(self, out: str) -> AbstractAsyncContextManager[Sink]:
        """A WAV's header is ours, for its sizes; every other format is written as it comes."""
        bare = self._form != "wav"
        if out == "-":
            return stdout_sink(self._rate, raw=bare)
        return file_sink(Path(out).expanduser(), self._rate, raw=bare)


def _format(chosen: Format | None, out: str | None, *, raw: bool) -> Format:
    if chosen is not None or raw:
        return chosen or "pcm_s16le"
    return by_ending(out or "") or "wav"


def _problems(error: ValidationError) -> Iterator[Problem]:
    """One for each option, by the name of its flag; never with a value."""
    seen = set()
    for detail in error.errors(include_url=False, include_input=False):
        name = str(detail["loc"][0])
        name = "pronounce" if name == "pronunciations" else name
        if name not in seen:
            seen.add(name)
            yield Problem(flag((name,)), detail["msg"])


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[Callable[[], bool]]:
    """SIGTERM cancels the task, so that a file that is not whole goes away; the value says whether it came."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    came = False

    def end() -> None:
        nonlocal came
        came = True
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield lambda: came
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
