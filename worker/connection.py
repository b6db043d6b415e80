"""One NATS connection for the life of the process: dialled, watched, replaced when its client cannot go on, and moved
when its server is about to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from nats import errors as nats_errors

from worker.errors import BusUnavailable
from worker.link import GONE, Link

log = logging.getLogger(__name__)

FLUSHER_QUEUE = 1 << 20
"""Commands that may wait for the flusher; never reached, so that issuing one never waits."""
HANG_UP_S = 2.0
PULSE_S = 1.0
MOVE_S = 10.0
SETTLE_S = 0.1
"""Until every server of a cluster knows of an interest, and has passed on what was published."""

Hook = Callable[[], None]


@dataclass(frozen=True, slots=True)
class BusOptions:
    """How to connect. At most one of user/password, token, credentials (a creds file) and nkey_seed (a seed file)."""

    servers: tuple[str, ...]
    name: str = "antiphon"
    inbox_prefix: str = "_INBOX"
    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials: Path | None = None
    nkey_seed: Path | None = None
    tls: ssl.SSLContext | None = None
    shed_above_bytes: int = 256 * 1024
    """Droppable messages are shed while more than this waits for the socket."""
    reconnect_wait_s: float = 0.25
    ping_interval_s: float = 5.0
    """Two unanswered ones end the connection: after 10 to 15 s."""
    rebuild_after_s: float = 30.0
    """How long one client may try to reconnect before a new one takes over."""
    move_within_s: float = 5.0
    """From a server's lame duck notice (its grace period is 10 s) until we leave it: at a random moment, so that not
    everyone arrives elsewhere at once."""

    def where(self) -> str:
        """The servers, without what identifies us."""
        return ", ".join(urlsplit(url).netloc.rpartition("@")[2] or url for url in self.servers)


@dataclass(slots=True)
class BusStats:
    """Counts since the start."""

    shed: int = 0
    """Messages not sent: offline, or too much was waiting."""
    dropped: int = 0
    """Received messages beyond a subscription's bounds."""
    handler_errors: int = 0
    reconnects: int = 0
    rebuilds: int = 0
    moves: int = 0
    """Away from a server in lame duck mode."""


class Interests(Protocol):
    """What is subscribed to, when a connection moves."""

    async def reach(self, link: Link) -> None:
        """Listen at a second link, too; returns when its server knows."""
        ...

    async def leave(self, link: Link) -> None:
        """Listen at this second link alone, when what the first has brought is handled."""
        ...

    async def answered(self, link: Link) -> None:
        """Returns when no request waits there for its answer, or not much later."""
        ...


class Connection:
    """``link`` is the client of the moment; ``came`` is called with a new or returned one, ``went`` when it is lost.

    nats-py gives up for good after a server's ``-ERR`` that it deems fatal (an expired credential, a payload too
    large), and its reconnect task can die of an exception it does not expect. Then a new client takes over.

    A server that is to stop says so (lame duck) and closes its connections some time later. We leave it before that:
    listen at another server as well, fall silent (``went``) until what was said has arrived, go on there (``came``).
    Nothing is lost on the way in or out. Where no other server is known, we stay to the end.
    """

    def __init__(self, options: BusOptions, stats: BusStats, interests: Interests, *, came: Hook, went: Hook) -> None:
        self.options = options
        self.link = Link()
        self._stats = stats
        self._interests = interests
        self._came = came
        self._went = went
        self._online = False
        self._closing = False
        self._alarm = asyncio.Event()
        self._broken = self._lame = False
        self._second: Link | None = None  # during a move, the link that is not ``link``
        self._last_error = "no answer"
        self._refusal = ""  # the server's own last word: the socket that it then closes knows less
        self._patience: asyncio.TimerHandle | None = None
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def usable(self) -> bool:
        """Connected, with every subscription in place: False while a link that is back still replays them."""
        return self._online and self.link.is_connected and not self.link.is_draining

    async def open(self, timeout_s: float) -> None:
        """Raises BusUnavailable."""
        dial = asyncio.create_task(self._dial(self.link), name="nats-dial")
        try:
            await asyncio.wait({dial}, timeout=timeout_s)
            if not dial.done():
                raise await self._unavailable(self._refusal or self._last_error)
            dial.result()
        except (nats_errors.Error, OSError, ValueError) as error:
            raise await self._unavailable(str(error) or type(error).__name__) from None
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            await _end(dial)
        self._online = True
        self._supervisor = asyncio.create_task(self._supervise(), name="nats-supervisor")

    async def close(self) -> None:
        self._closing = True
        self._online = False
        self._wait_no_longer()
        if self._supervisor is not None:
            await _end(self._supervisor)
        for link in (self.link, self._second):
            if link is not None:
                await _hang_up(link)

    async def _unavailable(self, reason: str) -> BusUnavailable:
        await self.close()
        return BusUnavailable(f"{self.options.where()}: {reason}")

    async def _dial(self, link: Link, servers: Sequence[str] | None = None) -> None:
        """Returns when connected, however long that takes; raises only what trying again cannot mend."""
        options = self.options

        # nats-py awaits these inside its own loops: they are instant and never raise.
        async def report(error: Exception) -> None:
            self._report(error)

        async def lost() -> None:
            link.fail_flushes()
            if link is self.link:
                self._lose()

        async def back() -> None:
            if link is self.link:
                self._stats.reconnects += 1
                self._regain()

        async def closed() -> None:
            if link is self.link:
                self._break()

        async def lame() -> None:
            if link is self.link:
                self._lame = True
                self._alarm.set()

        await link.connect(
            servers=list(servers or options.servers),
            name=options.name,
            error_cb=report,
            disconnected_cb=lost,
            reconnected_cb=back,
            closed_cb=closed,
            lame_duck_mode_cb=lame,
            max_reconnect_attempts=-1,
            reconnect_time_wait=options.reconnect_wait_s,  # type: ignore[arg-type]  # a float works, here and below
            ping_interval=options.ping_interval_s,  # type: ignore[arg-type]
            inbox_prefix=options.inbox_prefix,
            pending_size=-1,  # nothing is buffered offline, and publishing never waits online
            flusher_queue_size=FLUSHER_QUEUE,
            user=options.user,
            password=options.password,
            token=options.token,
            user_credentials=options.credentials,
            nkeys_seed=None if options.nkey_seed is None else str(options.nkey_seed),
            tls=options.tls,
        )

    def _break(self) -> None:
        self._broken = True
        self._alarm.set()

    def _lose(self) -> None:
        if not self._online or self._closing:
            return
        log.warning("NATS connection lost: %s", self.options.where())
        self._go()

    def _go(self) -> None:
        self._online = False
        self._wait_no_longer()
        self._patience = asyncio.get_running_loop().call_later(self.options.rebuild_after_s, self._break)
        self._went()

    def _regain(self) -> None:
        self._online = True
        self._wait_no_longer()
        self._last_error, self._refusal = "no answer", ""
        log.info("NATS connection is back: %s", self.options.where())
        self._came()

    def _wait_no_longer(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _report(self, error: Exception) -> None:
        if isinstance(error, nats_errors.SlowConsumerError):
            self._stats.dropped += 1
        said = str(error) or type(error).__name__
        if said != self._last_error:  # once, not at every attempt
            log.warning("NATS: %s", said)
        self._last_error = said
        if isinstance(error, nats_errors.AuthorizationError) or said.startswith("nats: '"):  # nats-py quotes an -ERR
            self._refusal = said

    async def _supervise(self) -> None:
        """Root of the task that replaces a client which cannot go on, and leaves a server that will not."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._alarm.wait(), PULSE_S)
            self._alarm.clear()
            try:
                await self._attend()
            except Exception as error:
                log.error("NATS: no new connection: %s", type(error).__name__)
                self._break()
                await asyncio.sleep(self.options.reconnect_wait_s)

    async def _attend(self) -> None:
        if self._lame:
            self._lame = False
            await self._move()
        if not self._broken and not self.link.is_closed:
            return
        self._broken = False
        if not self.usable:
            self._lose()
            await self._replace()

    async def _replace(self) -> None:
        old, self.link = self.link, Link()
        await _hang_up(old)
        await self._dial(self.link)
        self._stats.rebuilds += 1
        self._regain()

    async def _move(self) -> None:
        await asyncio.sleep(random.uniform(0.0, self.options.move_within_s))
        servers = self.link.elsewhere()
        if not self.usable or not servers:
            return
        log.info("NATS server is to stop: moving to another")
        self._second = link = Link()
        try:
            async with asyncio.timeout(MOVE_S):
                await self._dial(link, servers)
                link.set_server_pool([*dict.fromkeys((*self.options.servers, *servers))])
                await self._interests.reach(link)
        except (TimeoutError, OSError, *GONE, nats_errors.Error) as error:
            log.warning("NATS: no other server takes us: %s", type(error).__name__)
            self._break()  # what has moved already is renewed with everything else
            return
        await self._change_over(link)

    async def _change_over(self, link: Link) -> None:
        """Nothing is published from here on until what was has reached its readers: they may be at either server."""
        if self._online:
            self._go()
        with contextlib.suppress(*GONE, nats_errors.TimeoutError):
            await self.link.flush()
        await asyncio.sleep(SETTLE_S)
        await self._interests.leave(link)
        self.link, self._second = link, self.link
        self._stats.moves += 1
        if link.is_connected:  # otherwise it is coming back already, and says so
            self._regain()
        await self._interests.answered(self._second)
        await _hang_up(self._second)
        self._second = None


async def _hang_up(link: Link) -> None:
    with contextlib.suppress(nats_errors.Error, OSError, TimeoutError):
        async with asyncio.timeout(HANG_UP_S):
            await link.close()


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel until it heeds: nats-py, and ``wait_for`` of Python 3.11 under it, swallow a cancellation now and then."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.05)
