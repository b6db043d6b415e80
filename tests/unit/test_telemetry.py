from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.messages import StepReport
from worker.sections import TelemetrySettings
from worker.telemetry import EVENTS_OF_A_KIND, SessionSpan, Telemetry
from worker.wire.events import Usage

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {"Traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=value", "baggage": "secret=words"}
USAGE = Usage(characters=120, words=24, frames=110, audio_ms=8_800, first_audio_ms=140, queued_ms=12, stalled_ms=0)


class Bench:
    """A telemetry whose spans and points can be looked at."""

    def __init__(self, **settings: Any) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.telemetry = Telemetry(
            TelemetrySettings.model_validate(settings),
            pool="std",
            worker="w1",
            version="1.2.3",
            exporters=[self.exporter],
            readers=[self.reader],
        )

    def open(self, headers: Mapping[str, str] | None = None, tenant: str = "acme") -> SessionSpan:
        return self.telemetry.session_opened(
            headers or {}, session="a" * 16, tenant=tenant, attributes={"voice": "heart", "sample_rate": 24_000}
        )

    def span(self) -> ReadableSpan:
        assert self.telemetry.close(10)
        (span,) = self.exporter.get_finished_spans()
        return span

    def points(self, name: str) -> dict[tuple[tuple[str, Any], ...], Any]:
        """A metric's data points by their attributes."""
        data = self.reader.get_metrics_data()
        assert data is not None
        metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics if m.name == name]
        return {tuple(sorted(dict(p.attributes or {}).items())): p for m in metrics for p in m.data.data_points}

    def value(self, name: str, **labels: str) -> float:
        return float(self.points(name)[tuple(sorted({"pool": "std", **labels}.items()))].value)


def live_through(bench: Bench, span: SessionSpan) -> None:
    telemetry = bench.telemetry
    telemetry.first_step(span, 0.012)
    telemetry.first_audio(span, 0.14)
    for lateness in (0.0, -0.2, 0.03):
        telemetry.frame(span, 0.08, lateness)
    telemetry.step(StepReport(batch=3, duration_s=0.021, active=4, limit=16, words=2))
    telemetry.stalled(span)
    telemetry.flushed(span)
    telemetry.cancelled(span, 1)
    telemetry.session_ended(span, "finished", USAGE)


def test_a_session_is_one_consumer_span_under_the_producer_s_trace() -> None:
    bench = Bench()
    session = bench.open(HEADERS)
    assert session.trace_id == TRACE
    live_through(bench, session)
    span = bench.span()
    assert span.name == "process tts.v1.{tenant}.open"
    assert span.kind is SpanKind.CONSUMER
    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    assert span.context.trace_state.get("vendor") == "value"
    assert span.status.status_code is StatusCode.UNSET
    assert [event.name for event in span.events] == ["first_step", "first_audio", "stall", "flush", "cancel", "end"]
    assert (
        dict(span.attributes or {}).items()
        >= {
            "messaging.system": "nats",
            "messaging.operation.name": "process",
            "messaging.destination.template": "tts.v1.{tenant}.open",
            "messaging.message.conversation_id": "a" * 16,
            "tts.voice": "heart",
            "tts.reason": "finished",
            "tts.characters": 120,
            "tts.first_audio_ms": 140.0,
            "tts.count.stall": 1,
        }.items()
    )
    assert span.resource.attributes["service.name"] == "antiphon"
    assert span.resource.attributes["service.instance.id"] == "w1"
    assert "secret" not in span.to_json(), "baggage is not taken over"


@pytest.mark.parametrize("headers", [{}, {"traceparent": "00-zz-zz-01"}, {"traceparent": ""}, {"tracestate": "a=b"}])
def test_without_a_usable_trace_the_session_begins_one(headers: dict[str, str]) -> None:
    bench = Bench()
    session = bench.open(headers)
    bench.telemetry.session_ended(session, "finished", USAGE)
    span = bench.span()
    assert span.parent is None
    assert re.fullmatch("[0-9a-f]{32}", session.trace_id)
    assert int(session.trace_id, 16)


def test_a_span_that_happens_to_be_current_is_not_the_parent() -> None:
    bench, other = Bench(), TracerProvider(shutdown_on_exit=False).get_tracer("other")
    with other.start_as_current_span("somebody else's"):
        session = bench.open()
    bench.telemetry.session_ended(session, "finished", USAGE)
    assert bench.span().parent is None


def test_a_producer_that_does_not_sample_is_not_traced() -> None:
    bench = Bench()
    session = bench.open({"traceparent": f"00-{TRACE}-{PARENT}-00"})
    assert session.trace_id == TRACE
    live_through(bench, session)
    assert bench.telemetry.close(10)
    assert bench.exporter.get_finished_spans() == ()
    unsampled = Bench(trace_ratio=0.0)
    unsampled.telemetry.session_ended(unsampled.open(), "finished", USAGE)
    assert unsampled.telemetry.close(10)
    assert unsampled.exporter.get_finished_spans() == ()


def test_without_an_exporter_the_trace_id_is_still_there_for_the_log() -> None:
    telemetry = Telemetry(TelemetrySettings(), pool="std", worker="w", version="0")
    session = telemetry.session_opened(HEADERS, session="s" * 16, tenant="t", attributes={})
    assert session.trace_id == TRACE
    telemetry.session_ended(session, "gone", USAGE)
    assert telemetry.close(10)


def test_a_failed_session_is_an_error_with_its_code() -> None:
    bench = Bench()
    bench.telemetry.session_ended(bench.open(), "failed", USAGE, error="model_failure")
    span = bench.span()
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "model_failure"


def test_a_long_session_keeps_its_first_events_and_counts_the_rest() -> None:
    bench = Bench()
    session = bench.open()
    bench.telemetry.first_audio(session, 0.1)
    for _ in range(1_000):
        bench.telemetry.stalled(session)
    bench.telemetry.session_ended(session, "limit", USAGE)
    span = bench.span()
    names = [event.name for event in span.events]
    assert names == ["first_audio", *["stall"] * EVENTS_OF_A_KIND, "end"]
    assert (span.attributes or {})["tts.count.stall"] == 1_000


def test_what_happens_is_counted() -> None:
    bench = Bench()
    telemetry = bench.telemetry
    telemetry.capacity(slots=32, limit=16, active=0)
    live_through(bench, bench.open())
    telemetry.open_refused("no_capacity", "acme")
    telemetry.open_refused("no_capacity", "other")
    telemetry.open_refused("bad_request", "other")
    telemetry.shed(5)
    telemetry.reply_dropped()
    telemetry.reconnected()
    telemetry.pending(4_096)
    assert bench.value("tts.sessions.active") == 4
    assert bench.value("tts.sessions.limit") == 16
    assert bench.value("tts.slots") == 32
    assert bench.value("tts.sessions.opened") == 1
    assert bench.value("tts.sessions.ended", reason="finished") == 1
    assert bench.value("tts.opens.refused", code="no_capacity") == 2
    assert bench.value("tts.opens.refused", code="bad_request") == 1
    assert bench.value("tts.frames") == 3
    assert bench.value("tts.frames.shed") == 5
    assert bench.value("tts.underruns") == 1
    assert bench.value("tts.stalls") == 1
    assert bench.value("tts.words") == 2
    assert bench.value("tts.characters") == 120
    assert bench.value("tts.audio") == pytest.approx(0.24)
    assert bench.value("tts.nats.pending") == 4_096
    assert bench.value("tts.nats.reconnects") == 1
    assert bench.value("tts.replies.dropped") == 1
    sums = {name: next(iter(bench.points(name).values())).sum for name in ("tts.ttfa", "tts.queue", "tts.step")}
    assert sums == {"tts.ttfa": 0.14, "tts.queue": 0.012, "tts.step": 0.021}
    assert bench.telemetry.close(10)


def test_lateness_is_that_of_a_step_s_latest_frame_and_never_negative() -> None:
    bench = Bench()
    span = bench.open()
    report = StepReport(batch=1, duration_s=0.01, active=1, limit=1)
    for step in ([-0.4, -0.1], [0.02, 0.5, -0.3], []):
        for lateness in step:
            bench.telemetry.frame(span, 0.08, lateness)
        bench.telemetry.step(report)
    (point,) = bench.points("tts.frame.lateness").values()
    assert (point.count, point.sum, point.min) == (2, 0.5, 0.0)
    assert bench.value("tts.underruns") == 2
    assert bench.telemetry.close(10)


def test_tenants_are_labels_only_if_the_operator_asks() -> None:
    for asked in (False, True):
        bench = Bench(tenant_label=asked)
        live_through(bench, bench.open(tenant="acme"))
        live_through(bench, bench.open(tenant="zeta"))
        bench.telemetry.open_refused("bad_request", "acme")
        for name in ("tts.ttfa", "tts.queue", "tts.sessions.ended", "tts.opens.refused", "tts.audio", "tts.characters"):
            tenants = [dict(key).get("tenant") for key in bench.points(name)]
            expected = ["acme"] if name == "tts.opens.refused" else ["acme", "zeta"]
            assert tenants == (expected if asked else [None]), name
        assert bench.telemetry.close(10)


def exposition(telemetry: Telemetry) -> list[Metric]:
    assert telemetry.registry is not None
    return list(text_string_to_metric_families(generate_latest(telemetry.registry).decode()))


def test_prometheus_names_help_and_units_are_as_promtool_wants_them() -> None:
    bench = Bench(tenant_label=True)
    live_through(bench, bench.open())
    bench.telemetry.open_refused("bad_request", "acme")
    families = exposition(bench.telemetry)
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert {"tts_ttfa_seconds", "tts_frame_lateness_seconds", "tts_step_seconds", "tts_step_batch"} <= set(names)
    assert {"tts_sessions_active", "tts_nats_pending_bytes", "tts_audio_seconds", "process_open_fds"} <= set(names)
    for family in families:
        if not family.name.startswith("tts_"):
            continue
        assert family.documentation, family.name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name)
        assert not re.search(r"_(ms|milliseconds|s|kb|counter|gauge|histogram|count|sum|bucket|info)$", family.name)
        samples = {sample.name.removeprefix(family.name) for sample in family.samples}
        assert (
            samples
            == {
                "counter": {"_total"},
                "gauge": {""},
                "histogram": {"_bucket", "_sum", "_count"},
            }[family.type]
        ), family.name
        labels = {label for sample in family.samples for label in sample.labels}
        assert labels <= {"pool", "tenant", "reason", "code", "le"}
        assert ("le" in labels) == (family.type == "histogram")
    assert bench.telemetry.close(10)


def test_every_instrument_shows_before_anything_happened_or_says_how_often() -> None:
    """Alerts on a counter need its zero: what is only read is there from the start."""
    bench = Bench()
    names = {family.name for family in exposition(bench.telemetry)}
    assert {"tts_sessions_active", "tts_underruns", "tts_frames_shed", "tts_nats_reconnects", "tts_stalls"} <= names
    assert bench.telemetry.close(10)


def test_prometheus_can_be_off() -> None:
    bench = Bench(prometheus=False)
    assert bench.telemetry.registry is None
    live_through(bench, bench.open())
    assert bench.telemetry.close(10)


class Collector:
    """An OTLP/HTTP receiver on a free port."""

    def __init__(self) -> None:
        self.received: dict[str, list[bytes]] = {}
        self.answering = threading.Event()
        self.asked = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.asked.set()
                collector.answering.wait()
                collector.received.setdefault(self.path, []).append(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def stop(self) -> None:
        self.answering.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.stop()


def test_an_otlp_collector_gets_spans_and_metrics(collector: Collector) -> None:
    collector.answering.set()
    bench = Bench(otlp_endpoint=collector.url)
    live_through(bench, bench.open(HEADERS))
    assert bench.telemetry.close(30)
    traces = ExportTraceServiceRequest.FromString(collector.received["/v1/traces"][0])
    (span,) = traces.resource_spans[0].scope_spans[0].spans
    assert span.trace_id.hex() == TRACE
    assert [event.name for event in span.events][:2] == ["first_step", "first_audio"]
    metrics = ExportMetricsServiceRequest.FromString(collector.received["/v1/metrics"][-1])
    names = {metric.name for metric in metrics.resource_metrics[0].scope_metrics[0].metrics}
    assert {"tts.ttfa", "tts.sessions.ended", "tts.frames"} <= names


def test_closing_does_not_wait_for_a_collector_that_hangs(collector: Collector) -> None:
    bench = Bench(otlp_endpoint=collector.url)
    bench.telemetry.session_ended(bench.open(), "finished", USAGE)
    assert not bench.telemetry.close(0.05), "still trying when the time was up"
    assert collector.asked.wait(30)
    collector.answering.set()
    for thread in threading.enumerate():
        if thread.name == "telemetry-close":
            thread.join(30)
    assert list(collector.received) == ["/v1/traces", "/v1/metrics"], "it went on by itself"
