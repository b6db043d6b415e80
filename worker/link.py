"""nats-py's client with the faults repaired that a stranger's message, or a cancelled task, could trip.

In nats-py 2.16 any exception in the read loop ends it silently: the connection looks alive and hears nothing until
pings time out. Three things raise there, none of them ours to prevent:

- a reply subject or an inline status that is not UTF-8, or a header block of eight bytes (``_build_message``,
  ``_process_headers``);
- the answer to a ``flush`` that was cancelled or timed out in the meantime (``_process_pong`` sets a result on a
  cancelled future);
- a vertical tab or form feed in a reply subject, which the server takes for a letter and the parser for a space (this
  one costs a reconnect).

``flush`` writes its PING ahead of commands that still wait for the flusher, so its answer proves nothing about them;
``Subscription.drain`` relies on it. And before it reconnects it waits for the old socket to take what was written: with
a peer that vanished without a word that lasts as long as the kernel tries again, a quarter of an hour.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

from nats import errors as nats_errors
from nats.aio.client import Client, Srv
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.protocol.parser import AWAITING_CONTROL_LINE, AWAITING_MSG_PAYLOAD, Parser

T = TypeVar("T")
_CRLF = b"\r\n"

GONE = (
    nats_errors.ConnectionClosedError,
    nats_errors.ConnectionDrainingError,
    nats_errors.ConnectionReconnectingError,
    nats_errors.OutboundBufferLimitError,
    nats_errors.BadSubscriptionError,
)
"""What nats-py raises when a link, or a subscription on it, is not there any more."""


class LineParser(Parser):
    """Splits control lines at CRLF and single spaces, as the server writes them, and at nothing else."""

    async def parse(self, data: bytes = b"") -> None:
        self.buf.extend(data)
        while await (self._control_line() if self.state == AWAITING_CONTROL_LINE else self._payload()):
            pass

    async def _control_line(self) -> bool:
        end = self.buf.find(_CRLF)
        if end < 0:
            return False
        line = bytes(self.buf[:end])
        del self.buf[: end + len(_CRLF)]
        operation, _, rest = line.partition(b" ")
        match operation.upper():
            case b"MSG":
                self._expect(rest.split(b" "), sizes=1)
            case b"HMSG":
                self._expect(rest.split(b" "), sizes=2)
            case b"PING":
                await self.nc._process_ping()
            case b"PONG":
                await self.nc._process_pong()
            case b"INFO":
                await self.nc._process_info(json.loads(rest.decode()))
            case b"-ERR":
                await self.nc._process_err(rest.decode(errors="replace").lower())
            case b"+OK":
                pass
            case _:
                raise nats_errors.ProtocolError("nats: unknown protocol")
        return True

    def _expect(self, fields: list[bytes], sizes: int) -> None:
        """``subject sid [reply] [header size] total size``."""
        if len(fields) not in (2 + sizes, 3 + sizes):
            raise nats_errors.ProtocolError("nats: malformed MSG")
        reply = fields[2] if len(fields) == 3 + sizes else b""
        try:
            self.msg_arg = {"subject": fields[0], "sid": int(fields[1]), "reply": reply}
            self.header_needed = int(fields[-2]) if sizes == 2 else 0
            self.needed = int(fields[-1])
        except ValueError:
            raise nats_errors.ProtocolError("nats: malformed MSG") from None
        self.state = AWAITING_MSG_PAYLOAD

    async def _payload(self) -> bool:
        if len(self.buf) < self.needed + len(_CRLF):
            return False
        body = bytes(self.buf[: self.needed])
        del self.buf[: self.needed + len(_CRLF)]
        self.state = AWAITING_CONTROL_LINE
        arg = self.msg_arg
        header = body[: self.header_needed] or None
        await self.nc._process_msg(arg["sid"], arg["subject"], arg["reply"], body[self.header_needed :], header)
        return True


class Link(Client):
    """One connection. ``flush`` is a barrier: when it returns, the server has taken every command issued before it."""

    def __init__(self) -> None:
        super().__init__()
        self._ps = LineParser(self)

    async def flush(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109 - the base class's signature
        if self.is_connected and self._flush_queue is not None:
            written: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._flush_queue.put_nowait(written)
            # A reconnect may leave the future in the queue for the next flusher; the limit is for that.
            await asyncio.wait([written], timeout=timeout)
        await super().flush(timeout)  # type: ignore[arg-type]  # a float works

    async def close(self) -> None:
        if self._flush_queue is not None:  # otherwise it was never dialled, and nats-py would assert
            await super().close()
        self._drop_socket()

    def fail_flushes(self) -> None:
        """The connection is lost: no flush in flight will be answered, and nats-py would let each wait out its time."""
        pongs, self._pongs = self._pongs, []
        for pong in pongs:
            if not pong.done():
                pong.set_exception(nats_errors.ConnectionReconnectingError())
                pong.exception()  # a keep-alive ping has nobody who would look at it

    @property
    def stuck_bytes(self) -> int:
        """What the socket has refused so far; 0 while the server keeps up."""
        writer: asyncio.StreamWriter | None = getattr(self._transport, "_io_writer", None)
        return 0 if writer is None else writer.transport.get_write_buffer_size()

    def forget(self, subscription: Subscription) -> None:
        """Drop a subscription on this side only."""
        self._remove_sub(subscription._id)
        subscription._stop_processing()

    def elsewhere(self) -> list[str]:
        """The servers known beside the one at the other end, those included that it told of; with their credentials."""
        here = self._current_server
        return [srv.uri.geturl() for srv in self._server_pool if here is None or srv.uri.netloc != here.uri.netloc]

    async def _attempt_reconnect(self) -> None:
        self._drop_socket()
        await super()._attempt_reconnect()

    async def _connect_to_server(self, s: Srv) -> None:
        self._drop_socket()
        await super()._connect_to_server(s)

    def _drop_socket(self) -> None:
        """nats-py leaves a socket open if an attempt fails after connecting, or is cancelled there; and a socket that
        is closed in the ordinary way stays until the peer has taken what waits."""
        writer: asyncio.StreamWriter | None = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
        elif self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        return self.msg_class(
            _client=self,
            _sid=sid,
            subject=subject.decode(errors="replace"),
            reply=reply.decode(errors="replace"),
            data=data,
            headers=headers,
        )

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except (UnicodeDecodeError, IndexError):
            return None

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():
            self._pongs.pop(0)
            self._pings_outstanding = 0
            return
        await super()._process_pong()


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run one of nats-py's coroutines that never waits (publish, subscribe, unsubscribe) to its end, here and now.

    They only append to lists while the flusher's queue has room and buffers are not bounded in bytes, both of which
    ``Bus`` sees to. So a caller keeps its order and cannot be cancelled half-way.

    Raises RuntimeError if the coroutine does wait, which would be a change in nats-py.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} waits")
