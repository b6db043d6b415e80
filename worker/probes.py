"""HTTP for the cluster: /livez (restart me?), /readyz (send me sessions?), /metrics (how is it going?).

Full is not unready: NATS itself sends opens to workers with a free row, and answers 503 where none is left.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from worker.errors import WorkerError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from worker.sections import ProbesSettings

Clock = Callable[[], float]


class ProbesError(WorkerError):
    """The address cannot be listened on."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(
            f"cannot listen on {host}:{port} for the probes: {reason}; choose with ANTIPHON_PROBES__HOST and "
            "ANTIPHON_PROBES__PORT (0: any free port; off: none)"
        )
        self.host, self.port, self.reason = host, port, reason


@dataclass(frozen=True, slots=True)
class Vitals:
    """How to ask the parts how they are. Each is called on the event loop and must answer at once."""

    engine_alive: Callable[[], bool]
    """Whether the engine's thread runs."""
    step_age_s: Callable[[], float]
    """How long the step in progress has lasted; 0.0 between steps."""
    nats_connected: Callable[[], bool]
    nats_closed: Callable[[], bool]
    """Closed for good: this client will not reconnect."""
    warmed_up: Callable[[], bool]
    draining: Callable[[], bool]


class LoopBeat:
    """A beat of the event loop. One that blocked too long is told once, by the first probe that gets through."""

    def __init__(self, every_s: float = 0.25, clock: Clock = time.monotonic) -> None:
        self._every_s, self._clock = every_s, clock
        self._last_s = clock()
        self._worst_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._last_s = self._clock()
        self._again()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def blocked_s(self) -> float:
        """Longest time without a beat since the last call."""
        worst = max(self._worst_s, self._clock() - self._last_s - self._every_s)
        self._worst_s, self._last_s = 0.0, self._clock()
        return max(0.0, worst)

    def _beat(self) -> None:
        now = self._clock()
        self._worst_s = max(self._worst_s, now - self._last_s - self._every_s)
        self._last_s = now
        self._again()

    def _again(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._beat)


class Probes:
    """Serves until the ``async with`` block ends."""

    def __init__(
        self,
        settings: ProbesSettings,
        vitals: Vitals,
        registry: CollectorRegistry | None,
        beat: LoopBeat | None = None,
    ) -> None:
        """``registry`` None: no /metrics."""
        self._settings, self._vitals, self._registry = settings, vitals, registry
        self._beat = beat or LoopBeat()
        # OpenTelemetry's collector gives every family twice if two scrapes overlap.
        self._scraping = asyncio.Lock()
        self._runner: web.AppRunner | None = None
        self._port: int | None = None

    @property
    def port(self) -> int | None:
        """The port that is listened on; None while it is not, or if it is off."""
        return self._port

    async def __aenter__(self) -> Probes:
        if self._settings.port is not None:
            await self._listen(self._settings.host, self._settings.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._beat.stop()
        self._port = None
        if self._runner is not None:
            await self._runner.cleanup()

    async def _listen(self, host: str, port: int) -> None:
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        if self._registry is not None:
            app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise ProbesError(host, port, error.strerror or type(error).__name__) from None
        self._port = self._runner.addresses[0][1]
        self._beat.start()

    async def _livez(self, _: web.Request) -> web.Response:
        return _verdict(self._unlivable())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _verdict(self._unready())

    def _unlivable(self) -> Iterator[str]:
        if self._beat.blocked_s() > self._settings.hang_s:
            yield "event_loop"
        if not self._vitals.engine_alive() or self._vitals.step_age_s() > self._settings.hang_s:
            yield "engine"
        if self._vitals.nats_closed():
            yield "nats"

    def _unready(self) -> Iterator[str]:
        if not self._vitals.warmed_up():
            yield "warm_up"
        if not self._vitals.nats_connected():
            yield "nats"
        if self._vitals.draining():
            yield "draining"

    async def _metrics(self, request: web.Request) -> web.Response:
        from prometheus_client.exposition import choose_encoder

        assert self._registry is not None
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        async with self._scraping:
            body = await asyncio.to_thread(encode, self._registry)
        return web.Response(body=body, headers={"Content-Type": content_type})


def _verdict(failed: Iterator[str]) -> web.Response:
    names = list(failed)
    body = {"status": "failing", "failed": names} if names else {"status": "ok"}
    return web.Response(text=json.dumps(body), status=503 if names else 200, content_type="application/json")
