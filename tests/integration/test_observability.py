"""What the operator sees of sessions: spans under the producer's trace, metrics, logs; and never a word of theirs."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.integration.live import Heard, House, OpenRefused, Session, house, live_settings
from worker.logs import JsonFormatter
from worker.sections import TelemetrySettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANARY = "Quetzalcoatlus"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


@dataclass
class Logged(logging.Handler):
    """Every record of the process, as the operator would read it."""

    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JsonFormatter(log_text=False))

    __hash__ = logging.Handler.__hash__

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def logged() -> Iterator[Logged]:
    handler, root = Logged(), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


async def metrics(home: House) -> str:
    url = f"http://127.0.0.1:{home.service.probes.port}/metrics"
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        assert answer.status == 200
        return await answer.text()


def event_names(span: ReadableSpan) -> list[str]:
    return [event.name for event in span.events]


async def test_a_session_is_one_span_under_the_producers_trace() -> None:
    exporter = InMemorySpanExporter()
    async with house(exporters=[exporter]) as home:
        session = Session(await home.client(), pool=home.pool)
        await session.open({"seed": 1}, {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"})
        await session.text(0, "Good morning to you and to all, ")
        await session.until("need_text")
        await session.text(1, "my friend.")
        await session.say("flush")
        await session.until("flushed")
        await session.say("finish")
        end = await session.to_end()
        cancelled = await home.session({"text": "Good morning to you, my friend."})
        await cancelled.until("audio")
        await cancelled.say("cancel", keep=True)
        await cancelled.say("cancel", gen=1)
        await cancelled.to_end()
        await home.empty()
        with pytest.raises(OpenRefused):
            await home.session({"voice": "nobody"})
    first, second = exporter.get_finished_spans()  # a refused open is none

    assert first.name == "process tts.v1.{tenant}.open"
    assert first.kind is SpanKind.CONSUMER
    assert first.parent is not None
    assert f"{first.context.trace_id:032x}" == TRACE
    assert f"{first.parent.span_id:016x}" == PARENT
    assert first.context.trace_state.get("vendor") == "1"
    assert event_names(first) == ["first_step", "first_audio", "stall", "flush", "end"]
    assert first.status.status_code is StatusCode.UNSET
    attributes = dict(first.attributes or {})
    assert attributes["messaging.system"] == "nats"
    assert attributes["messaging.message.conversation_id"] == session.ready["session"]
    assert attributes["tts.reason"] == "finished"
    assert attributes["tts.frames"] == end["usage"]["frames"]
    assert attributes["tts.audio_ms"] == end["usage"]["audio_ms"]
    assert attributes["tts.count.stall"] == 1

    assert second.parent is None
    assert second.context.trace_id != first.context.trace_id
    assert event_names(second)[-3:] == ["cancel", "cancel", "end"]
    assert event_names(second)[:2] == ["first_step", "first_audio"]


async def test_metrics_count_what_happened(home: House) -> None:
    session = await home.spoken("Good morning.")
    frames = session.events[-1].fields["usage"]["frames"]
    live = await home.session({"text": "Good morning to you, "})
    await live.until("need_text")
    with pytest.raises(OpenRefused):
        await home.session({"voice": "nobody"})
    text = await metrics(home)
    made = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line[0] != "#"}
    label = '{pool="std"}'
    assert made[f"tts_sessions_active{label}"] == 1
    assert made[f"tts_slots{label}"] == made[f"tts_sessions_limit{label}"] == 24
    assert made[f"tts_sessions_opened_total{label}"] == 2
    assert made['tts_sessions_ended_total{pool="std",reason="finished"}'] == 1
    assert made['tts_opens_refused_total{code="voice_not_found",pool="std"}'] == 1
    assert made[f"tts_frames_total{label}"] == frames + len(live.audio)
    assert made[f"tts_words_total{label}"] >= 2
    assert made[f"tts_stalls_total{label}"] == 1
    assert made[f"tts_characters_total{label}"] == len("Good morning.")
    assert made[f"tts_ttfa_seconds_count{label}"] == 2
    assert made[f"tts_step_seconds_count{label}"] == made[f"tts_step_batch_count{label}"] > frames
    assert made[f"tts_step_batch_sum{label}"] >= made[f"tts_step_batch_count{label}"]
    assert made[f"tts_frame_lateness_seconds_count{label}"] > 0
    assert not any(math.isnan(value) for value in made.values())

    await live.say("cancel")
    await live.to_end()
    await home.empty()
    assert f"tts_sessions_active{label} 0.0" in await metrics(home)


async def test_nobodys_text_is_anywhere(logged: Logged) -> None:
    """A word that is spoken, refused, cancelled, misspelt and lost, and then looked for in all that was told."""
    exporter = InMemorySpanExporter()
    settings = live_settings(telemetry=TelemetrySettings(tenant_label=True, log_level="debug"))
    errors: list[Heard] = []
    async with house(settings, exporters=[exporter]) as home:
        await home.spoken(f"{CANARY}.", pronunciations={CANARY: CANARY})
        session = await home.session({"text": f"{CANARY} and {CANARY} "})
        for body in (
            json.dumps({"type": "text", "seq": 9, "text": CANARY}),
            json.dumps({"type": "text", "seq": CANARY, "text": 5}),
            json.dumps({"type": "text", "seq": 0, "text": [CANARY]}),
            json.dumps({"type": CANARY}),
            json.dumps({"type": "text", "seq": 0, "text": f"a\ud83d{CANARY}"}),
            '{"type":"text","text":"' + CANARY,
            f"{CANARY}\x00",
        ):
            await session.client.publish(session.ready["input"], body.encode("utf-8", "surrogatepass"))
            errors.append(await session.until("error"))
        await session.say("cancel", keep=True)
        assert CANARY in (await session.until("cancelled")).payload.decode()
        await session.text(0, CANARY)
        await session.say("finish")
        await session.to_end()
        for fields in (
            {"text": CANARY, "voice": CANARY},
            {"text": CANARY, "language": CANARY},
            {"text": CANARY, "session": CANARY + "!!"},
            {"text": CANARY, "format": {"encoding": CANARY}},
            {"text": CANARY * 10_000},
            {"text": CANARY, "pronunciations": {CANARY: ""}},
            {"text": CANARY, "pronunciations": {f"{CANARY}\u2014{CANARY}": CANARY}},
            {"text": CANARY, "seed": CANARY},
        ):
            refused = Session(await home.client(), pool=home.pool)
            await refused.ask(fields)
            errors.append(await refused.next())
        foreign = await home.client()
        await foreign.publish(f"tts.v1.default.open.{home.pool}", CANARY.encode(), reply="somebody.else")
        await home.spoken("Good morning.")
        told = await metrics(home)
    assert len(errors) == 15
    for error in errors:
        assert error.kind == "error"
        assert CANARY.lower() not in error.payload.decode().lower(), error.fields
    spans = exporter.get_finished_spans()
    assert len(spans) == 3
    assert CANARY.lower() not in "".join(span.to_json() for span in spans).lower()
    assert CANARY.lower() not in told.lower()
    assert any("dropped unanswered" in line for line in logged.lines), "records are heard"
    assert CANARY.lower() not in "\n".join(logged.lines).lower()
