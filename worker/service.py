"""A whole worker: NATS connection, engine thread, front desk, probes, put together and taken apart."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.contract import Entry, FrameEngine
from scheduler.loop import LoopRules
from scheduler.messages import Command, Event
from worker.bus import Bus
from worker.connection import BusOptions
from worker.desk import FrontDesk
from worker.embedded import EmbeddedServer
from worker.engine_thread import EngineThread
from worker.errors import BusUnavailable
from worker.narration import Narration
from worker.probes import Probes, Vitals
from worker.sections import ModelSettings, NatsSettings, Settings
from worker.telemetry import Telemetry
from worker.wire.requests import Open

if TYPE_CHECKING:
    from engine.frontend.stream import TextStream

log = logging.getLogger(__name__)

CPU_SLOTS = 64
CUDA_SLOTS = 256
STEPS_TO_FAIL = 3
"""Steps in a row that raise before liveness fails."""


@dataclass(slots=True)
class Service:
    """A worker that is ready. ``drain`` is the polite end; leaving ``running`` is the quick one."""

    settings: Settings
    bus_options: BusOptions
    bus: Bus
    desk: FrontDesk
    engine: EngineThread
    telemetry: Telemetry
    probes: Probes

    async def drain(self) -> None:
        """Take no more sessions, let those that are live finish within the grace."""
        self.engine.loop.drain()
        await self.desk.drain(self.settings.worker.drain_grace_s)


@contextlib.asynccontextmanager
async def running(settings: Settings, *, load: Callable[[], FrameEngine] | None = None) -> AsyncIterator[Service]:
    """A worker, ready when entered. ``load`` stands in for the configured model (tests).

    Raises EngineError, BuildError, BusUnavailable, ServerError.
    """
    async with contextlib.AsyncExitStack() as stack:
        version = importlib.metadata.version("antiphon")
        worker = settings.worker
        telemetry = Telemetry(settings.telemetry, pool=worker.pool, worker=worker.id, version=version)
        stack.callback(telemetry.close, settings.telemetry.otlp_timeout_s)
        desk: FrontDesk | None = None

        def deliver(events: Sequence[Event]) -> None:
            if desk is not None:
                desk.deliver(events)

        engine = EngineThread(
            load or (lambda: _load(settings.model)), deliver, LoopRules(headroom=1.0 - settings.scheduler.headroom)
        )
        loading = asyncio.ensure_future(engine.start())
        stack.push_async_callback(_abandon, loading)
        bus_options = await serving(settings.nats, stack)
        bus = await Bus.connect(bus_options)
        stack.push_async_callback(bus.close)
        vitals = Vitals(
            engine_alive=lambda: not loading.done() or (engine.alive and engine.failures < STEPS_TO_FAIL),
            step_age_s=lambda: engine.silence_s if loading.done() else 0.0,
            nats_connected=lambda: bus.connected,
            nats_closed=lambda: False,  # the bus replaces a client that closes
            warmed_up=lambda: desk is not None,
            draining=lambda: desk is not None and desk.draining,
        )
        probes = await stack.enter_async_context(Probes(settings.probes, vitals, telemetry.registry))
        frame_engine = await loading
        stack.push_async_callback(engine.stop)
        normaliser = ThreadPoolExecutor(1, thread_name_prefix="normaliser")
        stack.callback(normaliser.shutdown, wait=False, cancel_futures=True)
        make_stream = await asyncio.to_thread(_text_streams, settings.model)

        def narrate(settled: Open, on_entries: Callable[[tuple[Entry, ...]], None]) -> Narration:
            return Narration(make_stream(settled), normaliser, on_entries)

        def submit(command: Command) -> None:
            engine.submit(command)

        desk = FrontDesk(
            bus,
            settings,
            frame_engine.info,
            telemetry,
            submit=submit,
            limit=lambda: engine.loop.limit,
            narrate=narrate,
            version=version,
        )
        telemetry.capacity(slots=frame_engine.capacity, limit=engine.loop.limit, active=0)
        desk.start()
        await bus.barrier()
        stack.push_async_callback(desk.shut)
        log.info("worker %s serves %s: up to %d sessions", worker.id, frame_engine.info.name, engine.loop.limit)
        yield Service(settings, bus_options, bus, desk, engine, telemetry, probes)


async def serving(nats: NatsSettings, stack: contextlib.AsyncExitStack) -> BusOptions:
    """Options of the server to use: the configured one, or one of our own where that is wanted or none answers."""
    options = bus_options(nats)
    if nats.embedded == "auto" and not nats.url_is_set:
        with contextlib.suppress(BusUnavailable):
            probe = await Bus.connect(options, timeout_s=0.5)
            await probe.close()
            return options
    elif nats.embedded != "on":
        return options
    server = await stack.enter_async_context(EmbeddedServer())
    log.info("no NATS server is configured: started one of our own at %s", server.url)
    return bus_options(nats, (server.url,))


def bus_options(nats: NatsSettings, servers: tuple[str, ...] | None = None) -> BusOptions:
    return BusOptions(
        servers=servers or nats.url,
        inbox_prefix=nats.inbox_prefix,
        user=nats.user,
        password=nats.password.get_secret_value() if nats.password else None,
        token=nats.token.get_secret_value() if nats.token else None,
        credentials=nats.creds,
        nkey_seed=nats.nkey_seed,
        tls=_tls(nats),
        shed_above_bytes=nats.pending_bytes,
    )


def _tls(nats: NatsSettings) -> ssl.SSLContext | None:
    if nats.tls_ca is None and nats.tls_cert is None:
        return None
    context = ssl.create_default_context(cafile=str(nats.tls_ca) if nats.tls_ca else None)
    if nats.tls_cert is not None:
        context.load_cert_chain(nats.tls_cert, nats.tls_key)
    return context


def model_folder(model: ModelSettings) -> Path:
    from engine.loading import BUILTIN

    return BUILTIN if model.path == "builtin" else Path(model.path)


def _load(model: ModelSettings) -> FrameEngine:
    import torch

    from engine.loading import load_engine

    torch.set_num_threads(model.threads or 1)
    device = model.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    slots = model.slots or (CPU_SLOTS if device == "cpu" else CUDA_SLOTS)
    return load_engine(model_folder(model), capacity=slots, device=device)


def _text_streams(model: ModelSettings) -> Callable[[Open], TextStream]:
    """Loads tokenizer and normaliser once; blocks for as long as their imports take."""
    from engine.frontend.stream import TextStream
    from engine.frontend.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(model_folder(model) / "tokenizer.model")

    def make(settled: Open) -> TextStream:
        return TextStream(
            tokenizer, pronunciations=settled.pronunciations, padding_between=settled.padding_between or 0
        )

    return make


async def _abandon(loading: asyncio.Future[FrameEngine]) -> None:
    loading.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await loading
