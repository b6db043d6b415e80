"""A command that only the tests have: it proves the pattern that the real ones follow."""

from __future__ import annotations

import asyncio
import sys
from typing import Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg, CliSuppress, SettingsConfigDict

from worker.cli.command import Command, CommandError
from worker.cli.main import Entry
from worker.errors import BusUnavailable
from worker.sections import ProbesSettings

COMMANDS = {
    "parrot": Entry(__name__, "Parrot", "repeat a word"),
    "count": Entry(__name__, "Count", "write numbers for ever"),
}


class Parrot(Command):
    """Repeat a word."""

    model_config = SettingsConfigDict(cli_shortcuts={"times": "n"})

    word: CliPositionalArg[str] = Field(default="silence", description="what to say")
    times: int = Field(default=1, ge=1, description="how often [in brackets]")
    end: Literal["well", "sadly", "missing", "grouped", "socket", "interrupt", "bus", "bug"] = Field(default="well")
    probes: CliSuppress[ProbesSettings] = Field(default_factory=ProbesSettings)

    async def cli_cmd(self) -> int | None:
        print(" ".join([self.word] * self.times), self.scheduler.near_underrun_ms)
        match self.end:
            case "sadly":
                raise CommandError("no seed left")
            case "missing":
                open("/nowhere/seeds").close()  # noqa: ASYNC230
            case "grouped":
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._fail())
            case "socket":
                raise BrokenPipeError(32, "Broken pipe")
            case "interrupt":
                raise KeyboardInterrupt
            case "bus":
                raise BusUnavailable("nobody answers")
            case "bug":
                raise ExceptionGroup("tasks", [CommandError("no seed left"), ZeroDivisionError()])
            case "well":
                return 0
        return 1

    async def _fail(self) -> None:
        raise CommandError("a task found no seed")


class Count(Command):
    """Write numbers, for ever if nobody says how far."""

    to: int | None = Field(default=None, description="the last one")

    def cli_cmd(self) -> int:
        number = 0
        while number != self.to:
            number += 1
            sys.stdout.buffer.write(b"%d\n" % number)
        return 3
