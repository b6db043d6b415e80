from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from worker.probes import LoopBeat, Probes, ProbesError, Vitals
from worker.sections import ProbesSettings, TelemetrySettings
from worker.telemetry import Telemetry


@dataclass
class Patient:
    """A worker in any state of health."""

    alive: bool = True
    step_s: float = 0.0
    connected: bool = True
    closed: bool = False
    warm: bool = True
    draining: bool = False

    @property
    def vitals(self) -> Vitals:
        return Vitals(
            engine_alive=lambda: self.alive,
            step_age_s=lambda: self.step_s,
            nats_connected=lambda: self.connected,
            nats_closed=lambda: self.closed,
            warmed_up=lambda: self.warm,
            draining=lambda: self.draining,
        )

    def probes(self, beat: LoopBeat | None = None) -> Probes:
        return Probes(ProbesSettings(port=0), self.vitals, None, beat)


async def ask(probes: Probes, path: str, **headers: str) -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"http://127.0.0.1:{probes.port}{path}", headers=headers) as answer,
    ):
        return answer.status, answer.headers["Content-Type"], await answer.text()


async def failures(probes: Probes, path: str) -> list[str]:
    """Names of the failing checks; status and body must agree."""
    status, kind, text = await ask(probes, path)
    assert kind.startswith("application/json")
    body = json.loads(text)
    assert (status, body["status"]) == ((503, "failing") if "failed" in body else (200, "ok"))
    failed: list[str] = body.get("failed", [])
    return failed


@pytest.mark.parametrize(
    ("patient", "live", "ready"),
    [
        (Patient(), [], []),
        (Patient(alive=False), ["engine"], []),
        (Patient(step_s=1.99), [], []),
        (Patient(step_s=2.01), ["engine"], []),
        (Patient(connected=False), [], ["nats"]),
        (Patient(connected=False, closed=True), ["nats"], ["nats"]),
        (Patient(warm=False), [], ["warm_up"]),
        (Patient(draining=True), [], ["draining"]),
        (Patient(alive=False, closed=True), ["engine", "nats"], []),
    ],
)
async def test_a_failing_check_is_named(patient: Patient, live: list[str], ready: list[str]) -> None:
    async with patient.probes() as probes:
        assert await failures(probes, "/livez") == live
        assert await failures(probes, "/readyz") == ready


async def test_health_is_that_of_the_moment() -> None:
    patient = Patient(warm=False)
    async with patient.probes() as probes:
        assert await failures(probes, "/readyz") == ["warm_up"]
        patient.warm = True
        assert await failures(probes, "/readyz") == []


async def test_an_event_loop_that_blocked_is_told_once() -> None:
    now = 100.0
    beat = LoopBeat(every_s=3_600.0, clock=lambda: now)
    async with Patient().probes(beat) as probes:
        now += 3_600.0 + 1.9
        assert await failures(probes, "/livez") == []
        now += 3_600.0 + 2.1
        assert await failures(probes, "/livez") == ["event_loop"]
        assert await failures(probes, "/livez") == []


async def test_a_beat_remembers_how_long_the_loop_was_blocked() -> None:
    now = 0.0
    times = 0
    beaten = asyncio.Event()

    def clock() -> float:
        nonlocal now, times
        times += 1
        if times == 3:
            beaten.set()
        return now

    beat = LoopBeat(every_s=0.0, clock=clock)
    beat.start()
    now = 5.0
    await beaten.wait()
    now = 6.0
    assert beat.blocked_s() == 5.0
    assert beat.blocked_s() == 0.0
    beat.stop()


async def test_metrics_are_served_as_the_scraper_wants_them() -> None:
    telemetry = Telemetry(TelemetrySettings(), pool="std", worker="w", version="0")
    telemetry.capacity(slots=8, limit=4, active=1)
    async with Probes(ProbesSettings(port=0), Patient().vitals, telemetry.registry) as probes:
        status, kind, text = await ask(probes, "/metrics")
        assert (status, kind.split(";")[0]) == (200, "text/plain")
        values = {family.name: family.samples[0].value for family in text_string_to_metric_families(text)}
        assert values["tts_slots"] == 8
        assert "process_resident_memory_bytes" in values
        _, kind, text = await ask(probes, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")
    assert telemetry.close(10)


class Meeting(Collector):
    """Notices when two scrapes are in it at once."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2)
        self.met = False

    def collect(self) -> Iterator[Metric]:
        try:
            self.barrier.wait(0.1)
            self.met = True
        except threading.BrokenBarrierError:
            self.barrier.reset()
        yield GaugeMetricFamily("something", "For the scrape to show", 1)


async def test_scrapes_do_not_overlap() -> None:
    """OpenTelemetry's collector would give every family twice."""
    registry = CollectorRegistry(auto_describe=False)
    meeting = Meeting()
    registry.register(meeting)
    async with Probes(ProbesSettings(port=0), Patient().vitals, registry) as probes:
        answers = await asyncio.gather(*(ask(probes, "/metrics") for _ in range(3)))
    assert [status for status, _, _ in answers] == [200] * 3
    assert not meeting.met


async def test_without_a_registry_or_elsewhere_there_is_nothing() -> None:
    async with Patient().probes() as probes:
        assert (await ask(probes, "/metrics"))[0] == 404
        assert (await ask(probes, "/"))[0] == 404


async def test_requests_leave_no_trace_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with Patient().probes() as probes:
            await ask(probes, "/livez")
    assert [record for record in caplog.records if record.name.startswith("aiohttp")] == []


async def test_off_means_no_socket() -> None:
    async with Probes(ProbesSettings(port=None), Patient().vitals, None) as probes:
        assert probes.port is None


async def test_a_port_that_is_taken_is_named_with_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ProbesError, match=f"127.0.0.1:{port}.*ANTIPHON_PROBES__PORT") as caught:
            async with Probes(ProbesSettings(port=port), Patient().vitals, None):
                pass
    assert caught.value.port == port


async def test_leaving_frees_the_port() -> None:
    async with Patient().probes() as probes:
        port = probes.port
        assert port is not None
        await ask(probes, "/livez")
    assert probes.port is None
    with socket.create_server(("127.0.0.1", port)):
        pass
