"""A worker for two tenants, acme and globex, on a real server: both configured by the files that deploy/ ships."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from engine.fake import FakeEngine
from scheduler.loop import LoopRules
from tests.integration.live import PATIENCE_S, Session
from worker.embedded import EmbeddedServer
from worker.service import Service, running
from worker.settings import load

FOLDER = Path(__file__).parents[2] / "deploy" / "nats"
SETUPS = ("one-account", "accounts")
PASSWORDS = {"worker": "w-secret", "acme": "a-secret", "globex": "g-secret"}
SLOTS = 8


def set_passwords(patch: pytest.MonkeyPatch) -> None:
    """Where the shipped files look for them."""
    for user, password in PASSWORDS.items():
        patch.setenv(f"ANTIPHON_{user.upper()}_PASSWORD", password)


def shipped(setup: str) -> str:
    """The tenants' part of the server's configuration; the rest is ``nats-server.conf``, which names a port."""
    text = (FOLDER / f"tenants-{setup}.conf").read_text()
    assert text.count('include "nats-server.conf"') == 1
    return text.replace('include "nats-server.conf"', "max_payload: 1MB")


async def reached(client: Client) -> None:
    """The server has taken all that the client has said; a flush alone may overtake what was said just now."""
    await asyncio.sleep(0)
    await client.flush(int(PATIENCE_S))


@dataclass
class Town:
    setup: str
    url: str
    service: Service
    clients: list[Client] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """What the server said to tenants."""

    async def tenant(self, name: str, *, inbox: str = "_INBOX") -> Client:
        """A stock client with the tenant's own password. ``inbox``: for its requests; a ``Session`` has its own."""

        async def complain(error: Exception) -> None:
            self.complaints.append(str(error))

        client = await nats.connect(
            self.url, user=name, password=PASSWORDS[name], error_cb=complain, inbox_prefix=inbox
        )
        self.clients.append(client)
        return client

    async def session(self, tenant: str, client: Client | None = None, **fields: Any) -> Session:
        session = Session(client or await self.tenant(tenant), tenant=tenant)
        return await session.open(fields)

    async def settle(self) -> None:
        """What tenants have said has come to the worker, and what it said has come to them."""
        for client in self._present():
            await reached(client)
        await self.service.bus.barrier(PATIENCE_S)
        for client in self._present():
            await reached(client)

    def _present(self) -> list[Client]:
        return [client for client in self.clients if not client.is_closed]

    def count(self, metric: str, **labels: str) -> float:
        registry = self.service.telemetry.registry
        assert registry is not None
        return registry.get_sample_value(f"{metric}_total", {"pool": "std", **labels}) or 0.0


@contextlib.asynccontextmanager
async def town(
    setup: str, store_dir: Path, *flags: str, slots: int = SLOTS, config: str | None = None
) -> AsyncIterator[Town]:
    """``flags``: settings over those of the shipped file; ``config``: of the server, if it is not what is shipped."""
    place = ("--nats.embedded", "off", "--probes.port", "off", "--worker.id", "w1")
    extra = await asyncio.to_thread(shipped, setup) if config is None else config
    async with EmbeddedServer(store_dir=store_dir, extra=extra) as server:
        env = {"ANTIPHON_NATS__PASSWORD": PASSWORDS["worker"]}
        settings = await asyncio.to_thread(
            load, ("--nats.url", server.url, *place, *flags), env, FOLDER / f"worker-{setup}.toml"
        )
        rules = LoopRules(headroom=100.0)
        async with running(settings, load=lambda: FakeEngine(slots), rules=rules) as service:
            one = Town(setup, server.url, service)
            try:
                yield one
            finally:
                for client in one.clients:
                    await client.close()


def shortened(setup: str, threshold: str) -> str:
    """The shipped file, but for how long the way back of a silent session is kept."""
    text, count = re.subn(r'(\.open\.\*".*response_threshold: )"2m"', rf'\1"{threshold}"', shipped(setup))
    assert count == 1
    return text
