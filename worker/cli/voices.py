"""``antiphon voices``: what a pool of workers offers."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import sys
from collections.abc import Iterator

from pydantic import Field
from pydantic_settings import CliToggleFlag

from worker import logs
from worker.cli.command import Command, CommandError
from worker.cli.reach import pool_in_reach
from worker.errors import NoResponders
from worker.sections import Settings
from worker.wire.events import Info
from worker.wire.offer import Offer

Row = tuple[str, str]


class Voices(Command):
    """List the voices, languages, formats and options of a pool of workers.

    The workers of the configured server are asked; if none is configured and none serves the pool at the default
    server, the list is what a worker started here would offer.
    """

    as_json: CliToggleFlag[bool] = Field(default=False, alias="json", description="as one JSON document")
    tenant: str = Field(default="default", description="whose view of the pool")

    async def cli_cmd(self) -> None:
        logs.configure(self.telemetry)
        info = await self._info()
        if self.as_json:
            print(json.dumps(info.model_dump(exclude={"type"}), indent=2))
        elif sys.stdout.isatty():
            _print_table(info)
        else:
            print("\n".join(f"{name}: {value}" for name, value in _rows(info)))

    async def _info(self) -> Info:
        client = await pool_in_reach(self, self.tenant)
        if client is None:
            return await asyncio.to_thread(own_info, self)
        async with client:
            try:
                return await client.info()
            except NoResponders:
                where = ", ".join(self.nats.url)
                raise CommandError(
                    f"no worker serves the pool {self.worker.pool!r} at {where}; start one with: antiphon serve"
                ) from None


def own_info(settings: Settings) -> Info:
    """What a worker with these settings would say. Reads the model's files, and so blocks. Raises EngineError."""
    from engine.loading import describe
    from worker.service import model_folder

    model = describe(model_folder(settings.model), settings.model.voice_place, settings.model.codebooks)
    return Offer.of(model, settings.worker).info(settings.worker, importlib.metadata.version("antiphon"))


def _rows(info: Info) -> Iterator[Row]:
    """One fact a line, for people and for grep."""
    yield "pool", info.pool
    yield "model", f"{info.model.name} ({info.model.sample_rate} Hz, {info.model.frame_ms:g} ms a frame)"
    yield "engine", info.engine
    yield from (("voice", voice) for voice in info.voices)
    yield from (("language", language) for language in info.languages)
    for encoding, rates in info.formats.items():
        yield "format", f"{encoding} {' '.join(map(str, rates))}"
    yield from (("option", option) for option in info.options)
    yield "limit", f"{info.limits.text_chars} characters in a message"
    yield "limit", f"{info.limits.buffer_chars} characters not yet spoken"
    yield "limit", f"{info.limits.session_s:g} s a session"


def _print_table(info: Info) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False)
    gathered: dict[str, list[str]] = {}
    for name, value in _rows(info):
        gathered.setdefault(name, []).append(value)
    for name, values in gathered.items():
        table.add_row(name, "\n".join(values))
    Console().print(table)
