"""A NATS server and the worker's bus to it, in memory and without time: queue groups, one-shot interest, 503."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from worker.connection import Hook
from worker.subscription import Handler, Message

HEARS_503 = {"Status": "503"}


class FakeInterest:
    def __init__(self, bus: FakeBus, subject: str, handler: Handler, queue: str, once: bool) -> None:
        self._bus, self.subject, self.handler, self.queue, self.once = bus, subject, handler, queue, once
        self._tokens = subject.split(".")

    def matches(self, subject: str) -> bool:
        tokens = subject.split(".")
        if len(tokens) != len(self._tokens):
            return False
        return all(mine in ("*", theirs) for mine, theirs in zip(self._tokens, tokens, strict=True))

    def close(self) -> None:
        self._bus.interests.discard(self)

    async def drain(self) -> None:
        self.close()


@dataclass(frozen=True)
class FakeWatch:
    bus: FakeBus
    subject: str

    def close(self) -> None:
        del self.bus.watches[self.subject]


class FakeBus:
    """What of ``worker.bus.Bus`` a desk and its sessions use. Messages wait until ``pump``, in order."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.interests: set[FakeInterest] = set()
        self.watches: dict[str, tuple[Hook, Hook, Hook]] = {}
        """Reply subject -> (unheard, went, came)."""
        self.connected = True
        self.pending_bytes = 0
        self.max_message_bytes = 1_000_000
        self.sent: list[Message] = []
        """Everything that was published, with the worker's own answers."""
        self.hand_over: Callable[[Message, Handler], None] = lambda message, handler: handler(message)
        """How a message is given to one who hears it; a test may look on."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._watch_count = 0

    def subscribe(self, subject: str, handler: Handler, *, queue: str = "", once: bool = False) -> FakeInterest:
        interest = FakeInterest(self, subject, handler, queue, once)
        self.interests.add(interest)
        return interest

    def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        reply: str = "",
        droppable: bool = False,
    ) -> bool:
        if not self.connected:
            return False
        message = Message(subject, reply, payload, headers or {})
        self.sent.append(message)
        self._waiting.append(lambda: self._route(message))
        return True

    def watch(self, unheard: Hook, *, went: Hook, came: Hook) -> FakeWatch:
        self._watch_count += 1
        watch = FakeWatch(self, f"watch.{self._watch_count}")
        self.watches[watch.subject] = (unheard, went, came)
        return watch

    def confirm(self, hook: Hook) -> None:
        if self.connected:
            self._waiting.append(lambda: self._waiting.append(hook))  # after the 503s of what waits now

    def on_online(self, hook: Hook) -> None:
        pass

    def lose(self) -> None:
        """The server is lost; what was under way, too."""
        self.connected = False
        self._waiting.clear()
        for _, went, _ in list(self.watches.values()):
            went()

    def restore(self) -> None:
        self.connected = True
        for _, _, came in list(self.watches.values()):
            came()

    def pump(self) -> bool:
        """Deliver all that waits; False: nothing did."""
        delivered = bool(self._waiting)
        while self._waiting:
            self._waiting.popleft()()
        return delivered

    def _route(self, message: Message) -> None:
        groups: dict[str, list[FakeInterest]] = {}
        hearing = [interest for interest in self.interests if interest.matches(message.subject)]
        for interest in sorted(hearing, key=lambda one: (one.subject, id(one))):
            groups.setdefault(interest.queue, []).append(interest)
        members = groups.pop("", [])
        members += [self.rng.choice(group) for group in groups.values()]
        for interest in members:
            if interest.once:
                interest.close()
            self.hand_over(message, interest.handler)
        if not members and message.reply:
            self._nobody_heard(message.reply)

    def _nobody_heard(self, reply: str) -> None:
        if reply in self.watches:
            self.watches[reply][0]()
        else:
            self._route(Message(reply, "", b"", HEARS_503))
