"""How a command comes to a pool of workers: at the server that is configured, or with a worker of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from worker.cli.command import CommandError
from worker.client import Client
from worker.connection import BusOptions
from worker.errors import BusError, BusUnavailable, NoResponders, WireError
from worker.sections import Section, Settings

PROBE_S = 0.5
"""For a server that nobody has configured."""
CONNECT_S = 5.0
NATS_PORT = 4222
LONG_S = 86_400.0


async def pool_in_reach(settings: Settings, tenant: str) -> Client | None:
    """A client of the pool, or None where the settings leave it to us and nobody serves the pool at the default server.

    Raises BusUnavailable if a server is configured and does not answer.
    """
    from worker.service import bus_options

    nats = settings.nats
    if nats.embedded == "on":
        return None
    options = bus_options(nats)
    if nats.url_is_set or nats.embedded == "off":
        if not any([await _is_open(url) for url in nats.url]):
            raise BusUnavailable(f"{options.where()}: nobody listens there")
        return await _connect(options, settings, tenant)
    if not await _is_open(nats.url[0]):
        return None
    try:
        client = await _connect(options, settings, tenant, timeout_s=PROBE_S)
    except BusError:
        return None
    try:
        await client.info(PROBE_S)
    except (BusError, WireError):
        await client.close()
        return None
    return client


@contextlib.asynccontextmanager
async def pool(settings: Settings, tenant: str) -> AsyncIterator[Client]:
    """A client of the pool; where none is in reach, of a worker that runs in this process as long as the block.

    Raises BusUnavailable, ServerError, EngineError.
    """
    client = await pool_in_reach(settings, tenant)
    if client is not None:
        async with client:
            yield client
        return
    from worker.service import running

    async with running(_own(settings)) as service, await _connect(service.bus_options, settings, tenant) as client:
        yield client


async def refusal(client: Client, error: WireError, settings: Settings) -> CommandError:
    """What to tell a user whose session was refused: the choices that there are, and why there is no capacity."""
    if error.code == "no_capacity":
        where = ", ".join(settings.nats.url)
        with contextlib.suppress(BusError, WireError):
            try:
                await client.info()
            except NoResponders:
                return CommandError(
                    f"no worker serves the pool {settings.worker.pool!r} at {where}; start one with: antiphon serve"
                )
            return CommandError(f"every slot of the pool {settings.worker.pool!r} is taken; try again later")
    choices = [f"{name.replace('_', ' ')}: {', '.join(map(str, value))}" for name, value in _lists(error)]
    return CommandError("; ".join([str(error), *choices]))


def _lists(error: WireError) -> list[tuple[str, list[Any]]]:
    return [(name, value) for name, value in error.detail.items() if isinstance(value, list) and name != "fields"]


async def _connect(options: BusOptions, settings: Settings, tenant: str, *, timeout_s: float = CONNECT_S) -> Client:
    return await Client.connect(options, tenant=tenant, pool=settings.worker.pool, timeout_s=timeout_s)


async def _is_open(url: str) -> bool:
    """Whether anything listens there. A NATS client would keep trying for a while."""
    address = urlsplit(url)
    if address.scheme in ("ws", "wss"):
        return True  # behind a proxy as likely as not
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(address.hostname, address.port or NATS_PORT)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def _own(settings: Settings) -> Settings:
    """Of a worker for one command: it keeps to itself, and as long as its user types, it waits."""
    return settings.model_copy(
        update={
            "nats": settings.nats.model_copy(update={"embedded": "on"}),
            "probes": settings.probes.model_copy(update={"port": None}),
            "worker": _unless_set(settings.worker, {"max_session_s": LONG_S, "idle_timeout_s": LONG_S}),
        }
    )


def _unless_set(section: Section, values: Mapping[str, Any]) -> Section:
    return section.model_copy(
        update={name: value for name, value in values.items() if name not in section.model_fields_set}
    )
