"""A subscriber that hardly reads: its socket fills, and then what the server keeps for it."""

from __future__ import annotations

import asyncio
import socket
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

RECEIVE_BYTES = 4_096
"""Of the kernel's buffer, so that it soon is full."""
SIP_BYTES = 256
SIP_EVERY_S = 0.1
"""2.5 kB a second, of the 50 that a session sends."""


class Laggard:
    """Entered when the server knows its interest. For a server without accounts or TLS."""

    def __init__(self, url: str, subject: str) -> None:
        self._where = urlsplit(url)
        self._subject = subject
        self._socket: socket.socket | None = None
        self._sipping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._socket = sock = socket.socket()
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            sock.setblocking(False)
            await asyncio.wait_for(self._subscribe(sock), 5.0)
        except BaseException:
            sock.close()
            raise
        self._sipping = asyncio.create_task(_sip(sock))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._sipping is not None
        assert self._socket is not None
        self._sipping.cancel()
        await asyncio.gather(self._sipping, return_exceptions=True)
        self._socket.close()

    async def _subscribe(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, (self._where.hostname, self._where.port))
        hello = f'CONNECT {{"verbose":false,"headers":true}}\r\nSUB {self._subject} 1\r\nPING\r\n'
        await loop.sock_sendall(sock, hello.encode())
        told = b""
        while b"PONG\r\n" not in told:
            more = await loop.sock_recv(sock, RECEIVE_BYTES)
            if not more:
                raise ConnectionError("the server turned the slow subscriber away")
            told += more


async def _sip(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    more = True
    while more:
        await asyncio.sleep(SIP_EVERY_S)
        more = bool(await loop.sock_recv(sock, SIP_BYTES))
