"""Free slots as queue-group tokens, so that NATS itself picks a worker that has room.

Each token is one queue subscription that the server ends after one message. A fleet's free slots are the members of
the queue group: an open goes to a worker in proportion to its free slots, and where there is none the server answers
503 at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from worker.bus import Handler, Message
from worker.connection import Hook

SPARE_LIMIT = 32
FLOOD_WINDOW_S = 0.05
COOL_S = 0.5


class Interest(Protocol):
    async def drain(self) -> None: ...


class TokenBus(Protocol):
    """What of ``worker.bus.Bus`` is used here."""

    def subscribe(self, subject: str, handler: Handler, *, queue: str = "", once: bool = False) -> Interest: ...

    def on_online(self, hook: Hook) -> None: ...


class SlotTokens:
    """Keeps as many tokens armed as slots are free.

    Guarantees:

    - Each message takes one token and, until somebody says otherwise, one slot: ``target`` has gone down by one when
      ``on_open`` is called. Forgetting to say so can leave a slot unused, never give one away twice.
    - Never more tokens than ``target``, except while bad requests pour in: a token is away for a round trip, so
      with few slots a flood of them would find every token away and good opens would get 503. Then spare tokens cover
      the round trip, as long as at least one slot is free.
    - A token that goes is drained: a message that the server had already sent still reaches ``on_open``. So that may
      be called with no slot free; it then answers ``no_capacity`` and calls ``give_back``.
    """

    def __init__(
        self,
        bus: TokenBus,
        subject: str,
        queue: str,
        on_open: Callable[[Message], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``on_open`` decides there and then; it must not wait for anything. ``clock`` counts seconds."""
        self._clock = clock
        self._bus = bus
        self._subject = subject
        self._queue = queue
        self._on_open = on_open
        self._target = 0
        self._armed: set[Interest] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        self._refused: deque[float] = deque(maxlen=SPARE_LIMIT + 1)
        self._spare = 0
        self._cooling: asyncio.TimerHandle | None = None
        self._closed = False
        bus.on_online(self._settle)

    @property
    def target(self) -> int:
        """Free slots, as far as is known here."""
        return max(0, self._target)

    @property
    def armed(self) -> int:
        return len(self._armed)

    def set_target(self, count: int) -> None:
        """Say how many slots are free now. Takes effect at the server within the next round trip."""
        self._target = count
        self._settle()

    def refuse(self) -> None:
        """The request at hand is bad. Call before anything is answered: the token is back before the answer."""
        self._note_refusal()
        self.give_back()

    def give_back(self) -> None:
        """The request at hand takes no slot although nothing is wrong with it: none was free."""
        self._target += 1
        self._settle()

    async def aclose(self) -> None:
        """Retire every token. Requests that were under way still reach ``on_open`` before this returns."""
        self._closed = True
        if self._cooling is not None:
            self._cooling.cancel()
        self._settle()
        if self._retiring:
            await asyncio.wait(set(self._retiring))

    def _settle(self) -> None:
        wanted = 0 if self._closed or self._target <= 0 else self._target + self._spare
        while len(self._armed) < wanted:
            self._arm()
        while len(self._armed) > wanted:
            self._retire(self._armed.pop())

    def _arm(self) -> None:
        def taken(message: Message) -> None:
            self._take(token, message)

        token = self._bus.subscribe(self._subject, taken, queue=self._queue, once=True)
        self._armed.add(token)

    def _retire(self, token: Interest) -> None:
        task = asyncio.get_running_loop().create_task(token.drain())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _take(self, token: Interest, message: Message) -> None:
        self._armed.discard(token)
        self._target -= 1
        try:
            self._on_open(message)
        except BaseException:
            # Nothing is known of the slot; the next set_target corrects a slot that was taken after all.
            self._target += 1
            raise
        finally:
            self._settle()

    def _note_refusal(self) -> None:
        now = self._clock()
        self._refused.append(now)
        self._spare = max(self._spare, self._needed(now))
        if self._spare and self._cooling is None and not self._closed:
            self._cooling = asyncio.get_running_loop().call_later(COOL_S, self._cool)

    def _needed(self, now: float) -> int:
        """As many as were refused within the window, less one: a single bad open is no flood."""
        recent = sum(now - at < FLOOD_WINDOW_S for at in self._refused)
        return min(SPARE_LIMIT, max(0, recent - 1))

    def _cool(self) -> None:
        self._cooling = None
        self._spare = self._needed(self._clock())
        if self._spare:
            self._cooling = asyncio.get_running_loop().call_later(COOL_S, self._cool)
        self._settle()
