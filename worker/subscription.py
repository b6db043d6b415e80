"""One interest of a bus: renewed on every new link, taken from one link to another with no message lost or doubled."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from nats import errors as nats_errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from worker.link import GONE, Link, run_now

PENDING_MESSAGES = 16_384
PENDING_MESSAGE_BYTES = 64 * 1024 * 1024
NO_RESPONDERS = "503"


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
_Key = tuple[str, bytes, tuple[tuple[str, str], ...]]


class Owner(Protocol):
    """What a subscription needs of its bus."""

    @property
    def connected(self) -> bool: ...

    def forget(self, subscription: Subscription) -> None:
        """No new link renews it."""
        ...

    def handler_failed(self, error: BaseException) -> None: ...

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


class _Attachment:
    """The interest on one link. ``early``: what came here while the old link was still being listened to."""

    __slots__ = ("early", "link", "nats")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.nats: NatsSubscription | None = None
        self.early: list[Message] = []

    def end(self) -> None:
        assert self.nats is not None
        with contextlib.suppress(*GONE):
            run_now(self.nats.unsubscribe())

    async def drain(self) -> None:
        """Returns when all that the server had already sent has been handed over."""
        assert self.nats is not None
        try:
            await self.nats.drain()  # type: ignore[no-untyped-call]
        except (*GONE, nats_errors.TimeoutError):
            self.link.forget(self.nats)


class Subscription:
    """One interest, which the bus renews on every new link until it is closed or, for ``once``, has delivered."""

    __slots__ = ("_attached", "_handler", "_next", "_owner", "_seen", "active", "once", "queue", "subject")

    def __init__(self, owner: Owner, subject: str, handler: Handler, queue: str, once: bool) -> None:
        self._owner = owner
        self._handler = handler
        self._attached: _Attachment | None = None
        self._next: _Attachment | None = None
        self._seen: Counter[_Key] = Counter()
        self.subject = subject
        self.queue = queue
        self.once = once
        self.active = True

    def close(self) -> None:
        """End the interest now; what has arrived and was not yet handled is discarded."""
        for attached in self._retire():
            attached.end()

    async def drain(self) -> None:
        """End the interest; return when all that the server had already sent is handled. Safe to cancel."""
        attached, following = self._attached, self._next
        if attached is None or not self._owner.connected:
            self.close()
            return
        self.active = False
        self._next = None
        self._owner.forget(self)
        if following is not None:
            following.end()
        await asyncio.wait({self._owner.spawn(self._drain(attached))})

    async def _drain(self, attached: _Attachment) -> None:
        await attached.drain()
        self._attached = None

    # --- links ----------------------------------------------------------------------------------------------------

    def renew(self, link: Link) -> None:
        """After a loss: nats-py replays what a link had; a new link, or an interest that began offline, starts here."""
        if self._attached is None or self._attached.link is not link:
            self._attached, self._next = self._attach(link), None

    async def reach(self, link: Link) -> None:
        """Listen at another link too. A member of a queue group cannot be at both: it leaves the old one first."""
        if not self.active or self._attached is None:
            return
        if self.once or self.queue:
            await self._attached.drain()
            if self.active:
                self._attached = self._attach(link)
        else:
            self._seen.clear()
            self._next = self._attach(link)

    async def leave(self) -> None:
        """Listen at the old link no more; returns when all that it has brought is handled."""
        if self._attached is not None and self._next is not None:
            await self._attached.drain()

    async def settle(self) -> None:
        """Listen at the new link alone; to be called when all that both links were given has arrived here. Each message
        of the time between counts once, in its sender's order: what the old link brought, then the new one's rest."""
        following = self._next
        while following is not None and following.nats is not None and following.nats.pending_msgs:  # noqa: ASYNC110
            await asyncio.sleep(0)  # it is handed over in the order in which it came
        if not self.active or following is None or self._next is not following:
            return
        self._attached, self._next = following, None
        for message in following.early:
            if self._seen[key := _key(message)] > 0:
                self._seen[key] -= 1
            elif self.active:
                self._handle(message)
        self._seen.clear()

    def _attach(self, link: Link) -> _Attachment:
        attachment = _Attachment(link)

        async def deliver(msg: Msg) -> None:
            # Root of nats-py's task for this subscription: what escapes here would end it.
            self._deliver(attachment, Message(msg.subject, msg.reply, msg.data, msg.headers or {}))

        attachment.nats = run_now(
            link.subscribe(
                self.subject,
                queue=self.queue,
                cb=deliver,
                max_msgs=1 if self.once else 0,
                pending_msgs_limit=PENDING_MESSAGES,
                pending_bytes_limit=PENDING_MESSAGE_BYTES,
            )
        )
        if self.once:
            run_now(attachment.nats.unsubscribe(limit=1))
        return attachment

    def _retire(self) -> list[_Attachment]:
        attached = [one for one in (self._attached, self._next) if one is not None]
        self._attached = self._next = None
        self.active = False
        self._owner.forget(self)
        return attached

    def _deliver(self, attachment: _Attachment, message: Message) -> None:
        if attachment is self._next:
            attachment.early.append(message)
        elif attachment is self._attached:  # else closed; nats-py hands out what it has queued all the same
            if self._next is not None:
                self._seen[_key(message)] += 1
            self._handle(message)

    def _handle(self, message: Message) -> None:
        try:
            if self.once:
                self._retire()
            self._handler(message)
        except (Exception, asyncio.CancelledError) as error:
            self._owner.handler_failed(error)


def _key(message: Message) -> _Key:
    """Without the reply subject, which an account's import writes anew on every way."""
    return message.subject, message.payload, tuple(sorted(message.headers.items()))
