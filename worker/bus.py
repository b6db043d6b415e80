"""nats-py made safe: one connection that outlives its clients, synchronous publish and subscribe, and a true barrier.

What this layer promises, each against something nats-py does (see ``worker.link`` for the read loop's part):

- A handler is a plain function. Whatever it raises, CancelledError too, is logged and costs one message; nats-py would
  end the subscription.
- Publish never waits. It says whether the message was handed to the connection, and sheds what a dead or slow server
  would only make stale. It refuses what the server would answer with a fatal ``-ERR``.
- After a fatal ``-ERR`` (an expired credential, say), or when reconnecting goes nowhere, a new client takes over with
  every subscription. So does one at another server when ours announces its end, and no message is lost in that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import traceback
from collections import Counter
from collections.abc import Coroutine, Mapping
from typing import Any

from nats import errors as nats_errors

from worker.connection import SETTLE_S, BusOptions, BusStats, Connection, Hook
from worker.errors import BadSubject, BusUnavailable, MessageTooLarge, NoResponders, RequestTimeout
from worker.link import GONE, Link, run_now
from worker.subscription import Handler, Message, Subscription

log = logging.getLogger(__name__)

PAYLOAD_MARGIN_BYTES = 4096
"""Header and payload together stay this far below the server's max_payload: only the server counts header bytes, and
it closes the connection for good when they are too many."""
SUBJECT_BYTES = 1024
"""Of subject and of reply; the server closes the connection for good above 4,096 for the whole control line."""
HARD_BACKLOG_BYTES = 8 * 1024 * 1024
ANSWER_S = 5.0
"""How long a link that we leave stays open for the answers to requests."""
_WHITE = re.compile(r"[ \t\r\n]")

__all__ = ["Bus", "Handler", "Message", "ReplyWatch", "Subscription"]


def _nothing() -> None:
    pass


class ReplyWatch:
    """A reply subject for published messages; ``unheard`` is called for each one that nobody received (503), ``went``
    and ``came`` when the server is lost or back."""

    __slots__ = ("_bus", "_token", "came", "subject", "unheard", "went")

    def __init__(self, bus: Bus, token: str, unheard: Hook, went: Hook, came: Hook) -> None:
        self._bus = bus
        self._token = token
        self.subject = f"{bus._inbox}.{token}"
        self.unheard, self.went, self.came = unheard, went, came

    def close(self) -> None:
        self._bus._watches.pop(self._token, None)


class Bus:
    """Create with ``Bus.connect``; use on the event loop's thread only."""

    def __init__(self, options: BusOptions) -> None:
        self.stats = BusStats()
        self._options = options
        self._connection = Connection(options, self.stats, self, came=self._came, went=self._went)
        self._subscriptions: set[Subscription] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watches: dict[str, ReplyWatch] = {}
        self._watch_count = 0
        self._inbox = self.new_inbox()
        self._online_hooks: list[Hook] = []
        self._offline_hooks: list[Hook] = []
        self._confirmations: list[Hook] = []
        self._confirming = False
        self._requests: Counter[Link] = Counter()

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
        except GONE:
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
            subscription.renew(self._connection.link)
        return subscription

    def watch(self, unheard: Hook, *, went: Hook = _nothing, came: Hook = _nothing) -> ReplyWatch:
        """Publish with ``reply=watch.subject`` to learn, by a call of ``unheard``, that nobody listens."""
        self._watch_count += 1
        token = str(self._watch_count)
        self._watches[token] = watch = ReplyWatch(self, token, unheard, went, came)
        return watch

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
        link = self._connection.link
        self._requests[link] += 1
        try:
            msg = await link.request(subject, payload, timeout=timeout_s, headers=dict(headers) if headers else None)
        except nats_errors.NoRespondersError:
            raise NoResponders(subject) from None
        except nats_errors.TimeoutError:
            raise RequestTimeout(subject, timeout_s) from None
        except GONE:
            raise BusUnavailable(f"{self._options.where()}: connection lost") from None
        finally:
            self._requests[link] -= 1
        return Message(msg.subject, msg.reply, msg.data, msg.headers or {})

    async def barrier(self, timeout_s: float = 5.0) -> None:
        """Return when the server has taken everything published and subscribed before.

        Raises BusUnavailable if the connection is lost meanwhile or the server stays silent.
        """
        try:
            await self._connection.link.flush(timeout_s)
        except (*GONE, nats_errors.TimeoutError):
            raise BusUnavailable(f"{self._options.where()}: no answer to a ping") from None

    def confirm(self, hook: Hook) -> None:
        """Call ``hook`` when the server has taken everything published before and has said, by 503, what nobody
        received; never, if the connection is lost first."""
        self._confirmations.append(hook)
        if not self._confirming:
            self._confirming = True
            self.spawn(self._confirm())

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
        watch = self._watches.get(message.subject.rpartition(".")[2])
        if watch is not None and message.no_responders:
            watch.unheard()

    def handler_failed(self, error: BaseException) -> None:
        """Says what and where, not with which words: an exception's text may quote a session's."""
        self.stats.handler_errors += 1
        frame = traceback.extract_tb(error.__traceback__)[-1]
        log.error("a message handler raised %s at %s:%s", type(error).__name__, frame.filename, frame.lineno)

    def forget(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)

    # --- the connection's life ----------------------------------------------------------------------------------

    def _came(self) -> None:
        link = self._connection.link
        for subscription in list(self._subscriptions):
            subscription.renew(link)
        self._call([watch.came for watch in self._watches.values()])
        self._call(self._online_hooks)

    def _went(self) -> None:
        self._call([watch.went for watch in self._watches.values()])
        self._call(self._offline_hooks)

    async def reach(self, link: Link) -> None:
        await asyncio.gather(*(subscription.reach(link) for subscription in list(self._subscriptions)))
        await link.flush()
        await asyncio.sleep(SETTLE_S)

    async def leave(self, link: Link) -> None:
        await asyncio.gather(*(subscription.leave() for subscription in list(self._subscriptions)))
        with contextlib.suppress(*GONE, nats_errors.TimeoutError):
            await link.flush()  # its copy of what the old one brought last may be on its way
        await asyncio.gather(*(subscription.settle() for subscription in list(self._subscriptions)))

    async def answered(self, link: Link) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                while self._requests[link]:  # noqa: ASYNC110 - rare, and nothing announces it
                    await asyncio.sleep(SETTLE_S)
        del self._requests[link]

    async def _confirm(self) -> None:
        try:
            while self._confirmations:
                hooks, self._confirmations = self._confirmations, []
                with contextlib.suppress(BusUnavailable):
                    await self.barrier()
                    await asyncio.sleep(0)  # what came before the pong is handed out by a task of its own
                    self._call(hooks)
                    continue
                if self.connected:  # it is only slow
                    self._confirmations[:0] = hooks
        finally:
            self._confirming = False

    def _call(self, hooks: list[Hook]) -> None:
        for hook in list(hooks):
            # Root of a call out of nats-py's own loops, which an exception would end.
            try:
                hook()
            except (Exception, asyncio.CancelledError) as error:
                self.handler_failed(error)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
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
