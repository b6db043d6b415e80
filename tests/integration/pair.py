"""Two servers of one cluster, one of which is to stop."""

from __future__ import annotations

import os
import signal
import socket

from tests.integration.conftest import MakeServer
from worker.embedded import EmbeddedServer


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def cluster(make_server: MakeServer) -> tuple[EmbeddedServer, EmbeddedServer]:
    ports = (free_port(), free_port())
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    lines = 'cluster {{ name: pair, listen: "127.0.0.1:{port}", routes: [{routes}] }}'
    one, other = [await make_server(extra=lines.format(port=port, routes=routes)) for port in ports]
    return one, other


def lame(server: EmbeddedServer) -> None:
    """It says that it is to stop, and will close its connections in 10 s."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGUSR2)
