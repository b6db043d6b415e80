"""What the operator sees of the worker: one span a session, and metrics. Never a text, never a whole subject.

Source: OpenTelemetry semantic conventions for messaging (``messaging.system`` "nats" is a custom value); W3C Trace
Context. The providers belong to one ``Telemetry`` and are not registered as global ones.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from threading import Thread
from typing import TYPE_CHECKING

from opentelemetry.context import Context
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, StatusCode, format_trace_id
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from worker.instruments import Instruments, Tally

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from scheduler.messages import StepReport
    from worker.errors import ErrorCode
    from worker.sections import TelemetrySettings
    from worker.wire.events import Parting, Usage

log = logging.getLogger(__name__)

OPEN = "tts.v1.{tenant}.open"
EVENTS_OF_A_KIND = 16
"""Most events of one kind in a span: a span keeps 128 in all and drops the oldest, which are the telling ones."""


class SessionSpan:
    """One session as traces and metrics know it. Made by ``Telemetry.session_opened``, over with ``session_ended``."""

    __slots__ = ("_counts", "_span", "audio_key", "labels")

    def __init__(self, span: Span, labels: Mapping[str, str]) -> None:
        self._span = span
        self._counts: dict[str, int] = {}
        self.labels = labels
        self.audio_key = labels.get("tenant", "")

    @property
    def trace_id(self) -> str:
        """32 hex digits, the producer's if it sent a traceparent; for log lines."""
        return format_trace_id(self._span.get_span_context().trace_id)

    def event(self, name: str, **attributes: float | str) -> None:
        seen = self._counts[name] = self._counts.get(name, 0) + 1
        if seen <= EVENTS_OF_A_KIND:
            self._span.add_event(name, {f"tts.{key}": value for key, value in attributes.items()})

    def end(self, attributes: Mapping[str, float | str], error: str | None) -> None:
        counts = {f"tts.count.{name}": count for name, count in self._counts.items()}
        self._span.set_attributes({**counts, **attributes})
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(StatusCode.ERROR, error)
        self._span.end()


class Telemetry:
    """Call it from the event loop alone. Nothing here blocks but ``close``."""

    def __init__(
        self,
        settings: TelemetrySettings,
        *,
        pool: str,
        worker: str,
        version: str,
        exporters: Sequence[SpanExporter] = (),
        readers: Sequence[MetricReader] = (),
    ) -> None:
        """``exporters`` and ``readers`` come on top of those that the settings ask for."""
        self._tenant_label = settings.tenant_label
        self._labels = {"pool": pool}
        self._pool = pool
        self._worst_s: float | None = None
        self._tally = Tally()
        resource = Resource.create(
            {"service.name": settings.service_name, "service.version": version, "service.instance.id": worker}
        )
        self.registry: CollectorRegistry | None = _registry() if settings.prometheus else None
        """What /metrics shows."""
        exporters = [*exporters, *_span_exporters(settings)]
        sampler = ParentBased(TraceIdRatioBased(settings.trace_ratio)) if exporters else ALWAYS_OFF
        self._traces = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
        for exporter in exporters:
            self._traces.add_span_processor(BatchSpanProcessor(exporter))
        self._metrics = MeterProvider(
            [*readers, *_metric_readers(settings, self.registry)],
            resource,
            exemplar_filter=AlwaysOffExemplarFilter(),
            shutdown_on_exit=False,
        )
        self._tracer = self._traces.get_tracer("antiphon", version)
        self._instruments = Instruments(self._metrics.get_meter("antiphon", version), self._tally, self._labels)

    def session_opened(
        self, headers: Mapping[str, str], *, session: str, tenant: str, attributes: Mapping[str, float | str]
    ) -> SessionSpan:
        """An accepted open. ``headers``: the request's; ``attributes``: names without their prefix, e.g. ``voice``."""
        span = self._tracer.start_span(
            f"process {OPEN}",
            _producer(headers),
            SpanKind.CONSUMER,
            {
                "messaging.system": "nats",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.template": OPEN,
                "messaging.message.conversation_id": session,
                "tts.tenant": tenant,
                "tts.pool": self._pool,
                **{f"tts.{name}": value for name, value in attributes.items()},
            },
        )
        labels = self._tenant_labels(tenant)
        self._instruments.opened.add(1, labels)
        return SessionSpan(span, labels)

    def open_refused(self, code: ErrorCode, tenant: str) -> None:
        self._instruments.refused.add(1, {**self._tenant_labels(tenant), "code": code})

    def first_step(self, span: SessionSpan, queued_s: float) -> None:
        span.event("first_step", queued_s=queued_s)
        self._instruments.queue.record(queued_s, span.labels)

    def first_audio(self, span: SessionSpan, seconds: float) -> None:
        """``seconds``: from the arrival of the open to the first audio being published."""
        span.event("first_audio", ttfa_s=seconds)
        self._instruments.ttfa.record(seconds, span.labels)

    def frame(self, span: SessionSpan, audio_s: float, lateness_s: float) -> None:
        """A frame with audio came from the engine. ``lateness_s``: past its playback deadline; negative = early."""
        tally = self._tally
        tally.frames += 1
        tally.audio_s[span.audio_key] += audio_s
        if lateness_s > 0:
            tally.underruns += 1
        if self._worst_s is None or lateness_s > self._worst_s:
            self._worst_s = lateness_s

    def step(self, report: StepReport) -> None:
        """After the ``frame`` calls of the step's frames."""
        self._tally.active, self._tally.limit = report.active, report.limit
        self._tally.words += report.words
        self._instruments.step.record(report.duration_s, self._labels)
        self._instruments.batch.record(report.batch, self._labels)
        if self._worst_s is not None:
            self._instruments.lateness.record(max(0.0, self._worst_s), self._labels)
            self._worst_s = None

    def stalled(self, span: SessionSpan) -> None:
        span.event("stall")
        self._tally.stalls += 1

    def flushed(self, span: SessionSpan) -> None:
        span.event("flush")

    def cancelled(self, span: SessionSpan, generation: int) -> None:
        span.event("cancel", generation=generation)

    def session_ended(self, span: SessionSpan, reason: Parting, usage: Usage, error: ErrorCode | None = None) -> None:
        """``error``: what made it fail."""
        span.event("end", reason=reason)
        told = {f"tts.{name}": value for name, value in usage.model_dump(exclude_none=True).items()}
        span.end({"tts.reason": reason, **told}, error)
        self._instruments.ended.add(1, {**span.labels, "reason": reason})
        self._instruments.characters.add(usage.characters, span.labels)

    def shed(self, frames: int) -> None:
        self._tally.shed += frames

    def reply_dropped(self) -> None:
        self._tally.dropped_replies += 1

    def text_refused(self) -> None:
        """Beyond the tenant's character rate."""
        self._tally.refused_texts += 1

    def reconnected(self) -> None:
        self._tally.reconnects += 1

    def pending(self, waiting_bytes: int) -> None:
        self._tally.pending_bytes = waiting_bytes

    def capacity(self, *, slots: int, limit: int, active: int) -> None:
        """At the start, and whenever they change without a step."""
        self._tally.slots, self._tally.limit, self._tally.active = slots, limit, active

    def close(self, timeout_s: float) -> bool:
        """Send what is left; blocks for at most ``timeout_s``. False: the collector did not take it in time."""
        thread = Thread(target=self._shut_down, args=(timeout_s,), name="telemetry-close", daemon=True)
        thread.start()
        thread.join(timeout_s)
        return not thread.is_alive()

    def _shut_down(self, timeout_s: float) -> None:
        try:
            self._traces.shutdown()
            self._metrics.shutdown(timeout_millis=1000 * timeout_s)
        except Exception:  # the SDK raises Exception itself
            log.warning("telemetry did not shut down cleanly", exc_info=True)

    def _tenant_labels(self, tenant: str) -> Mapping[str, str]:
        return {**self._labels, "tenant": tenant} if self._tenant_label else self._labels


def _producer(headers: Mapping[str, str]) -> Context:
    """The trace that an open belongs to. NATS keeps the case of header names; W3C names have none."""
    carrier = {name.lower(): value for name, value in headers.items()}
    return TraceContextTextMapPropagator().extract(carrier)


def _registry() -> CollectorRegistry:
    from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


def _metric_readers(settings: TelemetrySettings, registry: CollectorRegistry | None) -> list[MetricReader]:
    readers: list[MetricReader] = []
    if registry is not None:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader

        readers.append(PrometheusMetricReader(scope_info_enabled=False, registry=registry))
    if settings.otlp_endpoint is not None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        exporter = OTLPMetricExporter(f"{settings.otlp_endpoint}/v1/metrics", timeout=settings.otlp_timeout_s)
        readers.append(PeriodicExportingMetricReader(exporter, 1000 * settings.otlp_interval_s))
    return readers


def _span_exporters(settings: TelemetrySettings) -> list[SpanExporter]:
    if settings.otlp_endpoint is None:
        return []
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return [OTLPSpanExporter(f"{settings.otlp_endpoint}/v1/traces", timeout=settings.otlp_timeout_s)]
