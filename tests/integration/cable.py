"""A way to a server that can be cut without anybody being told."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit

from tests.integration.mailbox import relay_to

BLACKHOLE = "TESTS_MAY_CHANGE_ROUTES"
"""Set in a network namespace of its own (``unshare --user --map-root-user --net``), where routes may be changed: then
packets are dropped by the kernel; otherwise a relay stops forwarding."""
SECOND_ADDRESS = "127.0.0.2"
LISTEN_EVERYWHERE = 'host: "0.0.0.0"'
"""What a server needs in its configuration to be reached there."""


class Cable(Protocol):
    @property
    def url(self) -> str: ...

    def cut(self) -> None: ...

    def mend(self) -> None: ...


class Blackhole:
    """Of one address of this namespace. Both directions of what was connected there before."""

    def __init__(self, url: str) -> None:
        self.url = f"nats://{SECOND_ADDRESS}:{urlsplit(url).port}"

    def cut(self) -> None:
        _route("add")

    def mend(self) -> None:
        _route("del")


def _route(verb: str) -> None:
    subprocess.run(["ip", "route", verb, "blackhole", f"{SECOND_ADDRESS}/32", "table", "local"], check=True)


@asynccontextmanager
async def cable_to(url: str) -> AsyncIterator[Cable]:
    if os.environ.get(BLACKHOLE):
        yield Blackhole(url)
    else:
        async with relay_to(url) as relay:
            yield relay


async def in_a_namespace(*command: str) -> tuple[int, str]:
    """Runs a command where routes may be changed; its exit code and what it said. 77 if this machine does not allow
    it."""
    inside = "ip link set lo up || exit 77; exec " + " ".join(command)
    try:
        process = await asyncio.create_subprocess_exec(
            *("unshare", "--user", "--map-root-user", "--net", "sh", "-c", inside),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, BLACKHOLE: "1"},
        )
    except FileNotFoundError:
        return 77, "no unshare"
    output, _ = await process.communicate()
    assert process.returncode is not None
    refused = b"unshare: " in output or b"ip: not found" in output
    return 77 if refused else process.returncode, output.decode(errors="replace")
