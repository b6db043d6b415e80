"""nats-py made safe: one connection that outlives its clients, synchronous publish and subscribe, and a true barrier.

What this layer promises, each against something nats-py does (see ``worker.link`` for the read loop's part):

- A handler is a plain function. Whatever it raises, CancelledError too, is logged and costs one message; nats-py would
  end the subscription.
- Publish never waits. It says whether the message was handed to the connection, and sheds what a dead or slow server
  would only make stale. It refuses what the server would answer with a fatal ``-ERR``.
- After a fatal ``-ERR`` (an expired credential, say), or when reconnecting goes nowhere, a new client takes over with
  every subscription.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import traceback
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from nats import errors as nats_errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from worker.connection import BusOptions, BusStats, Connection, Hook
from worker.errors import BadSubject, BusUnavailable, MessageTooLarge, NoResponders, RequestTimeout
from worker.link import Link, run_now

log = logging.getLogger(__name__)

PAYLOAD_MARGIN_BYTES = 4096
"""Header and payload together stay this far below the server's max_payload: only the server counts header bytes, and
it closes the connection for good when they are too many."""
SUBJECT_BYTES = 1024
"""Of subject and of reply; the server closes the connection for good above 4,096 for the whole control line."""
HARD_BACKLOG_BYTES = 8 * 1024 * 1024
PENDING_MESSAGES = 16_384
PENDING_MESSAGE_BYTES = 64 * 1024 * 1024
NO_RESPONDERS = "503"
_WHITE = re.compile(r"[ \t\r\n]")

_GONE = (
    nats_errors.ConnectionClosedError,
    nats_errors.ConnectionDrainingError,
    nats_errors.ConnectionReconnectingError,
    nats_errors.OutboundBufferLimitError,
    nats_errors.BadSubscriptionError,
)


@dataclass(frozen=True, slots=True)
class Message:
    subject: str
    reply: str
    """Empty if the sender expects no reply."""
    payload: bytes
    headers: Mapping[str, str]

    @property
    def no_responders(self) -> bool:
        """The server's answer to a message with a reply subject that nobody received."""
        return not self.payload and self.headers.get("Status") == NO_RESPONDERS


Handler = Callable[[Message], None]


class Subscription:
    """One interest, which the bus renews on every new client until it is closed or, for ``once``, has delivered."""

    __slots__ = ("_attached", "_bus", "_handler", "active", "once", "queue", "subject")

    def __init__(self, bus: Bus, subject: str, handler: Handler, queue: str, once: bool) -> None:
        self._bus = bus
        self._handler = handler
        self._attached: tuple[Link, NatsSubscription] | None = None
        self.subject = subject
        self.queue = queue
        self.once = once
        self.active = True

    def close(self) -> None:
        """End the interest now; what has arrived and was not yet handled is discarded."""
        attached = self._retire()
        if attached is not None:
            _, subscription = attached
            with contextlib.suppress(*_GONE):
                run_now(subscription.unsubscribe())

    async def drain(self) -> None:
        """End the interest; return when all that the server had already sent is handled. Safe to cancel."""
        if self._attached is None or not self._bus.connected:
            self.close()
            return
        link, subscription = self._attached
        self.active = False
        self._bus._subscriptions.discard(self)  # from here on no new link renews it
        await asyncio.wait({self._bus._spawn(self._drain(link, subscription))})

    async def _drain(self, link: Link, subscription: NatsSubscription) -> None:
        try:
            await subscription.drain()  # type: ignore[no-untyped-call]
        except (*_GONE, nats_errors.TimeoutError):
            link.forget(subscription)
        self._attached = None

    def _retire(self) -> tuple[Link, NatsSubscription] | None:
        attached, self._attached = self._attached, None
        self.active = False
        self._bus._subscriptions.discard(self)
        return attached

    def _attach(self, link: Link) -> None:
        subscription: NatsSubscription = run_now(
            link.subscribe(
                self.subject,
                queue=self.queue,
                cb=self._deliver,
                max_msgs=1 if self.once else 0,
                pending_msgs_limit=PENDING_MESSAGES,
                pending_bytes_limit=PENDING_MESSAGE_BYTES,
            )
        )
        if self.once:
            run_now(subscription.unsubscribe(limit=1))
        self._attached = (link, subscription)

    def _renew(self, link: Link) -> None:
        """After a loss: nats-py replays what a link had; a new link, or an interest that began offline, starts here."""
        if self._attached is None or self._attached[0] is not link:
            self._attach(link)

    async def _deliver(self, msg: Msg) -> None:
        # Root of nats-py's task for this subscription: what escapes here would end it.
        if self._attached is None:
            return  # closed; nats-py hands out what it has queued all the same
        try:
            if self.once:
                self._retire()
            self._handler(Message(msg.subject, msg.reply, msg.data, msg.headers or {}))
        except (Exception, asyncio.CancelledError) as error:
            self._bus._handler_failed(error)


class ReplyWatch:
    """A reply subject for published messages; ``callback`` is called for each one that nobody received (503)."""

    __slots__ = ("_bus", "_token", "subject")

    def __init__(self, bus: Bus, token: str) -> None:
        self._bus = bus
        self._token = token
        self.subject = f"{bus._inbox}.{token}"

    def close(self) -> None:
        self._bus._watches.pop(self._token, None)


class Bus:
    """Create with ``Bus.connect``; use on the event loop's thread only."""

    def __init__(self, options: BusOptions) -> None:
        self.stats = BusStats()
        self._options = options
        self._connection = Connection(options, self.stats, came=self._came, went=self._went)
        self._subscriptions: set[Subscription] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watches: dict[str, Hook] = {}
        self._watch_count = 0
        self._inbox = self.new_inbox()
        self._online_hooks: list[Hook] = []
        self._offline_hooks: list[Hook] = []

    @classmethod
    async def connect(cls, options: BusOptions, *, timeout_s: float = 5.0) -> Bus:
        """Raises BusUnavailable if no server accepts us in time."""
        bus = cls(options)
        await bus._connection.open(timeout_s)
        bus.subscribe(f"{bus._inbox}.*", bus._unheard)
        return bus

    # --- what the caller sees -----------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self._connection.usable

    @property
    def pending_bytes(self) -> int:
        """Bytes not yet in the socket."""
        return self._connection.link.pending_data_size + self._connection.link.stuck_bytes

    @property
    def max_message_bytes(self) -> int:
        """Most bytes of header and payload together."""
        return self._connection.link.max_payload - PAYLOAD_MARGIN_BYTES

    def new_inbox(self) -> str:
        return f"{self._options.inbox_prefix}.{secrets.token_hex(11)}"

    def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        reply: str = "",
        droppable: bool = False,
    ) -> bool:
        """Hand a message to the connection; False if it was shed: offline, or too much waits already.

        A ``droppable`` message (an audio frame) is shed while the socket is full and ``shed_above_bytes`` wait, any
        other at 8 MiB. Never waits: a loop that publishes a lot must yield by itself.

        Raises MessageTooLarge or BadSubject, always before anything is sent.
        """
        self._check(subject, payload, headers, reply)
        link = self._connection.link
        stuck, waiting = link.stuck_bytes, link.pending_data_size
        # What waits for the flusher's next turn is no backlog while the socket takes everything.
        shed = stuck > 0 and droppable and stuck + waiting > self._options.shed_above_bytes
        if shed or stuck + waiting > HARD_BACKLOG_BYTES or not self.connected:
            self.stats.shed += 1
            return False
        try:
            run_now(link.publish(subject, payload, reply=reply, headers=dict(headers) if headers else None))
        except _GONE:
            self.stats.shed += 1
            return False
        return True

    def subscribe(self, subject: str, handler: Handler, *, queue: str = "", once: bool = False) -> Subscription:
        """Call ``handler`` for each message, in order; ``once``: for one only, which the server itself enforces.

        Offline, the interest begins with the next connection. Other connections see it after ``barrier``. Raises
        BadSubject.
        """
        _check_subject(subject)
        subscription = Subscription(self, subject, handler, queue, once)
        self._subscriptions.add(subscription)
        # Never on a link that is coming back: it replays its subscriptions and then sends what waits, and the second
        # SUB of a one-shot would outlive the first one's message.
        if self.connected:
            subscription._attach(self._connection.link)
        return subscription

    def watch(self, callback: Hook) -> ReplyWatch:
        """Publish with ``reply=watch.subject`` to learn, by a call of ``callback``, that nobody listens."""
        self._watch_count += 1
        token = str(self._watch_count)
        self._watches[token] = callback
        return ReplyWatch(self, token)

    def on_online(self, hook: Hook) -> None:
        """``hook`` is called after every reconnect, with all subscriptions in place."""
        self._online_hooks.append(hook)

    def on_offline(self, hook: Hook) -> None:
        self._offline_hooks.append(hook)

    async def request(
        self, subject: str, payload: bytes = b"", *, headers: Mapping[str, str] | None = None, timeout_s: float = 2.0
    ) -> Message:
        """Raises NoResponders, RequestTimeout, BusUnavailable, MessageTooLarge or BadSubject."""
        self._check(subject, payload, headers, "")
        if not self.connected:
            raise BusUnavailable(f"{self._options.where()}: not connected")
        try:
            msg = await self._connection.link.request(
                subject, payload, timeout=timeout_s, headers=dict(headers) if headers else None
            )
        except nats_errors.NoRespondersError:
            raise NoResponders(subject) from None
        except nats_errors.TimeoutError:
            raise RequestTimeout(subject, timeout_s) from None
        except _GONE:
            raise BusUnavailable(f"{self._options.where()}: connection lost") from None
        return Message(msg.subject, msg.reply, msg.data, msg.headers or {})

    async def barrier(self, timeout_s: float = 5.0) -> None:
        """Return when the server has taken everything published and subscribed before.

        Raises BusUnavailable if the connection is lost meanwhile or the server stays silent.
        """
        try:
            await self._connection.link.flush(timeout_s)
        except (*_GONE, nats_errors.TimeoutError):
            raise BusUnavailable(f"{self._options.where()}: no answer to a ping") from None

    async def close(self) -> None:
        """Send what is pending, then leave; subscriptions end unheard, so drain what matters first."""
        if self.connected:
            with contextlib.suppress(BusUnavailable):
                await self.barrier(1.0)
        await self._connection.close()  # drains in flight end with it
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    # --- checks -------------------------------------------------------------------------------------------------

    def _check(self, subject: str, payload: bytes, headers: Mapping[str, str] | None, reply: str) -> None:
        size = len(payload) + _header_bytes(headers)
        if size > self.max_message_bytes:
            raise MessageTooLarge(size, self.max_message_bytes)
        _check_subject(subject)
        if reply:
            _check_subject(reply)

    # --- inbound ------------------------------------------------------------------------------------------------

    def _unheard(self, message: Message) -> None:
        callback = self._watches.get(message.subject.rpartition(".")[2])
        if callback is not None and message.no_responders:
            callback()

    def _handler_failed(self, error: BaseException) -> None:
        """Says what and where, not with which words: an exception's text may quote a session's."""
        self.stats.handler_errors += 1
        frame = traceback.extract_tb(error.__traceback__)[-1]
        log.error("a message handler raised %s at %s:%s", type(error).__name__, frame.filename, frame.lineno)

    # --- the connection's life ----------------------------------------------------------------------------------

    def _came(self) -> None:
        link = self._connection.link
        for subscription in list(self._subscriptions):
            subscription._renew(link)
        self._call(self._online_hooks)

    def _went(self) -> None:
        self._call(self._offline_hooks)

    def _call(self, hooks: list[Hook]) -> None:
        for hook in list(hooks):
            # Root of a call out of nats-py's own loops, which an exception would end.
            try:
                hook()
            except (Exception, asyncio.CancelledError) as error:
                self._handler_failed(error)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _header_bytes(headers: Mapping[str, str] | None) -> int:
    """Size of ``NATS/1.0``, the header lines and the empty line."""
    if not headers:
        return 0
    return 12 + sum(_size(name) + _size(value) + 4 for name, value in headers.items())


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _check_subject(subject: str) -> None:
    """What nats-py would refuse, or the server answer with a fatal ``-ERR``. Raises BadSubject."""
    if not subject or _WHITE.search(subject):
        raise BadSubject("empty, or with white space")
    if _size(subject) > SUBJECT_BYTES:
        raise BadSubject(f"longer than {SUBJECT_BYTES} bytes")
