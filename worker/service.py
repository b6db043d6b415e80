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
from urllib.parse import urlsplit

from engine import hub
from engine.contract import FrameEngine, ModelInfo
from scheduler.loop import LoopRules
from scheduler.messages import Event
from worker.bus import Bus
from worker.connection import BusOptions
from worker.desk import FrontDesk
from worker.embedded import EmbeddedServer
from worker.engine_thread import EngineThread
from worker.errors import JournalAway, bad_request
from worker.greenroom import GreenRoom
from worker.narration import LIGHT_CHARS, Opening
from worker.probes import Probes, Vitals
from worker.sections import DEFAULT_URL, ModelSettings, NatsSettings, SchedulerSettings, Settings
from worker.stream import JournalStream
from worker.telemetry import Telemetry
from worker.wire.requests import Open

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)

CPU_SLOTS, CUDA_SLOTS = 64, 256
BUILTIN_CPU_SLOTS = 192
"""A slot of the built-in voice takes 2 MiB, and those only once it is used."""
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
        # The desk refuses; the step loop must not, for an open that was answered a moment ago may still be on its way.
        await self.desk.drain(self.settings.worker.drain_grace_s)


@contextlib.asynccontextmanager
async def running(
    settings: Settings,
    *,
    load: Callable[[], FrameEngine] | None = None,
    rules: LoopRules | None = None,
    exporters: Sequence[SpanExporter] = (),
) -> AsyncIterator[Service]:
    """A worker, ready when entered. ``load`` and ``rules`` stand in for the configured model and scheduling;
    ``exporters`` get the spans, beside those that the settings ask for.

    Raises EngineError, BuildError, BusUnavailable, ServerError.
    """
    async with contextlib.AsyncExitStack() as stack:
        version = await asyncio.to_thread(importlib.metadata.version, "antiphon")
        worker = settings.worker
        telemetry = await asyncio.to_thread(
            Telemetry,
            settings.telemetry,
            pool=worker.pool,
            worker=worker.id,
            version=version,
            exporters=exporters,
        )
        stack.push_async_callback(asyncio.to_thread, telemetry.close, settings.telemetry.otlp_timeout_s)
        desk: FrontDesk | None = None

        def deliver(events: Sequence[Event]) -> None:
            if desk is not None:
                desk.deliver(events)

        engine = EngineThread(
            load or (lambda: load_model(settings.model)), deliver, rules or _rules(settings.scheduler)
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
        reader = ThreadPoolExecutor(1, thread_name_prefix="reader")
        stack.callback(reader.shutdown, wait=False, cancel_futures=True)
        opening = await asyncio.to_thread(_text_streams, settings.model, frame_engine.info)

        desk = FrontDesk(
            bus,
            settings,
            frame_engine.info,
            telemetry,
            submit=engine.submit,
            limit=lambda: engine.loop.limit,
            opening=opening,
            greenroom=GreenRoom(frame_engine, settings.model.voice_wait_s),
            reader=reader,
            version=version,
            slots=frame_engine.capacity,
            journal=await _journal(settings, bus),
        )
        desk.start()
        await bus.barrier()
        stack.push_async_callback(desk.shut)
        log.info("worker %s serves %s: up to %d sessions", worker.id, frame_engine.info.name, engine.loop.limit)
        yield Service(settings, bus_options, bus, desk, engine, telemetry, probes)


async def _journal(settings: Settings, bus: Bus) -> JournalStream | None:
    """None where there is none. Raises JournalAway where there has to be one."""
    if settings.journal.enabled == "off":
        return None
    stream = JournalStream(bus, settings.journal)
    try:
        await stream.provision()
    except JournalAway as error:
        if settings.journal.enabled == "on":
            raise
        log.info("no session can be resumed: %s", error)
        return None
    return stream


async def serving(nats: NatsSettings, stack: contextlib.AsyncExitStack) -> BusOptions:
    """Options of the server to use: the configured one, or one of our own where that is wanted or none answers."""
    options = bus_options(nats)
    if nats.embedded == "off" or (nats.embedded == "auto" and (nats.url_is_set or await _answers(DEFAULT_URL))):
        return options
    server = await stack.enter_async_context(EmbeddedServer())
    log.info("no NATS server is configured: started one of our own at %s", server.url)
    return bus_options(nats, (server.url,))


async def _answers(url: str) -> bool:
    """Whether a NATS server greets at the address."""
    parts = urlsplit(url)
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(0.5):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            greeting = await reader.read(5)
            writer.close()
            return greeting == b"INFO "
    return False


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
        move_within_s=nats.leave_within_s,
    )


def _tls(nats: NatsSettings) -> ssl.SSLContext | None:
    if nats.tls_ca is None and nats.tls_cert is None:
        return None
    context = ssl.create_default_context(cafile=str(nats.tls_ca) if nats.tls_ca else None)
    if nats.tls_cert is not None:
        context.load_cert_chain(nats.tls_cert, nats.tls_key)
    return context


def model_folder(model: ModelSettings) -> Path:
    """Blocks for as long as a download takes. Raises CheckpointError."""
    from engine.loading import BUILTIN

    return BUILTIN if model.path == "builtin" else hub.model_folder(model.path)


def _rules(scheduler: SchedulerSettings) -> LoopRules:
    return LoopRules(headroom=scheduler.headroom, reserve_frames=scheduler.near_underrun_ms / 80.0)


def load_model(model: ModelSettings) -> FrameEngine:
    import torch

    from engine.loading import load_engine

    torch.set_num_threads(model.threads or 1)
    device = model.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return load_engine(
        model_folder(model),
        capacity=slots_of(model, device),
        device=device,
        precision=model.precision,
        voices=model.voice_place,
        codebooks=model.codebooks,
        threads=model.threads,
    )


def slots_of(model: ModelSettings, device: str) -> int:
    """Sessions that may be open at once, before admission."""
    if device == "cpu":
        return model.slots or (BUILTIN_CPU_SLOTS if model.path == "builtin" else CPU_SLOTS)
    return model.slots or CUDA_SLOTS


def _text_streams(model: ModelSettings, info: ModelInfo) -> Callable[[Open], Opening]:
    """Loads tokenizer and normaliser once; blocks for as long as their imports take.

    The result raises WireError (bad_request) for pronunciations of something that is not one word.
    """
    from engine.frontend.normaliser import Normaliser
    from engine.frontend.stream import TextStream
    from engine.frontend.tokenizer import Tokenizer
    from engine.loading import tokenizer_file

    tokenizer = Tokenizer(tokenizer_file(model_folder(model)))
    # The built-in voice knows letters by their names only; Kyutai's read capitals.
    normaliser = Normaliser() if model.path == "builtin" else Normaliser(letter_names={})
    normaliser.warm()

    def opening(settled: Open) -> Opening:
        spellings = settled.pronunciations
        try:
            normaliser.pronunciations(dict.fromkeys(spellings, "a"))
        except ValueError as error:
            raise bad_request(str(error), field="pronunciations") from None

        def begin() -> TextStream:
            return TextStream(
                normaliser,
                tokenizer,
                normaliser.pronunciations(spellings),
                frame_rate=1000.0 / info.frame_ms,
                padding_between=settled.padding_between or 0,
            )

        return Opening(begin, light=sum(map(len, spellings.values())) <= LIGHT_CHARS)

    return opening


async def _abandon(loading: asyncio.Future[FrameEngine]) -> None:
    loading.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await loading
