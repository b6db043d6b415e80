"""One NATS connection for the life of the process: dialled, watched, and replaced when its client cannot go on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from nats import errors as nats_errors

from worker.errors import BusUnavailable
from worker.link import Link

log = logging.getLogger(__name__)

FLUSHER_QUEUE = 1 << 20
"""Commands that may wait for the flusher; never reached, so that issuing one never waits."""
HANG_UP_S = 2.0
PULSE_S = 1.0

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
    ping_interval_s: float = 10.0
    """Two unanswered ones end the connection."""
    rebuild_after_s: float = 30.0
    """How long one client may try to reconnect before a new one takes over."""

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


class Connection:
    """``link`` is the client of the moment; ``came`` is called with a new or returned one, ``went`` when it is lost.

    nats-py gives up for good after a server's ``-ERR`` that it deems fatal (an expired credential, a payload too
    large), and its reconnect task can die of an exception it does not expect. Then a new client takes over.
    """

    def __init__(self, options: BusOptions, stats: BusStats, *, came: Hook, went: Hook) -> None:
        self.options = options
        self.link = Link()
        self._stats = stats
        self._came = came
        self._went = went
        self._online = False
        self._closing = False
        self._broken = asyncio.Event()
        self._last_error = "no answer"
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
                raise await self._unavailable(self._last_error)
            dial.result()
        except (nats_errors.Error, OSError, ValueError) as error:
            raise await self._unavailable(str(error) or type(error).__name__) from None
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            await _end(dial)
        self._supervisor = asyncio.create_task(self._supervise(), name="nats-supervisor")

    async def close(self) -> None:
        self._closing = True
        self._online = False
        self._wait_no_longer()
        if self._supervisor is not None:
            await _end(self._supervisor)
        await _hang_up(self.link)

    async def _unavailable(self, reason: str) -> BusUnavailable:
        await self.close()
        return BusUnavailable(f"{self.options.where()}: {reason}")

    async def _dial(self, link: Link) -> None:
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
                self._broken.set()

        await link.connect(
            servers=list(options.servers),
            name=options.name,
            error_cb=report,
            disconnected_cb=lost,
            reconnected_cb=back,
            closed_cb=closed,
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
        self._online = True

    def _lose(self) -> None:
        if not self._online or self._closing:
            return
        self._online = False
        self._wait_no_longer()
        self._patience = asyncio.get_running_loop().call_later(self.options.rebuild_after_s, self._broken.set)
        log.warning("NATS connection lost: %s", self.options.where())
        self._went()

    def _regain(self) -> None:
        self._online = True
        self._wait_no_longer()
        self._last_error = "no answer"
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

    async def _supervise(self) -> None:
        """Root of the task that replaces a client which cannot go on."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._broken.wait(), PULSE_S)
            if not self._broken.is_set() and not self.link.is_closed:
                continue
            self._broken.clear()
            if self.usable:
                continue
            self._lose()
            try:
                await self._replace()
            except Exception as error:
                log.error("NATS: no new connection: %s", type(error).__name__)
                self._broken.set()
                await asyncio.sleep(self.options.reconnect_wait_s)

    async def _replace(self) -> None:
        old, self.link = self.link, Link()
        await _hang_up(old)
        await self._dial(self.link)
        self._stats.rebuilds += 1
        self._regain()


async def _hang_up(link: Link) -> None:
    with contextlib.suppress(nats_errors.Error, OSError, TimeoutError):
        async with asyncio.timeout(HANG_UP_S):
            await link.close()


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel until it heeds: nats-py, and ``wait_for`` of Python 3.11 under it, swallow a cancellation now and then."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.05)
