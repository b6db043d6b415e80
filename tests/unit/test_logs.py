from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from engine.errors import VoiceNotFound
from worker.logs import SessionLog, configure, handle_loop_error
from worker.sections import TelemetrySettings

SPOKEN = "so long and thanks"


@pytest.fixture(autouse=True)
def _untouched_logging() -> Iterator[None]:
    """What ``configure`` changes is the process's, so it is put back."""
    root, raising = logging.getLogger(), logging.raiseExceptions
    level, handlers = root.level, root.handlers[:]
    root.handlers.clear()
    yield
    logging.captureWarnings(False)
    logging.raiseExceptions = raising
    root.handlers[:] = handlers
    root.setLevel(level)


def configured(**settings: Any) -> io.StringIO:
    stream = io.StringIO()
    configure(TelemetrySettings.model_validate(settings), stream)
    return stream


def objects(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


log = logging.getLogger("worker.live")


def test_a_line_of_text_names_its_session_and_trace() -> None:
    stream = configured()
    SessionLog(log, "s1", "0af7").info("frames shed: %d", 3)
    log.debug("not at this level")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(" INFO worker.live: frames shed: 3 session=s1 trace=0af7")


def test_a_line_of_json_has_fields() -> None:
    stream = configured(log_format="json", log_level="debug")
    SessionLog(log, "s1", "0af7").warning("frames shed: %d", 3, extra={"other": 1})
    log.debug("no session")
    shed, other = objects(stream)
    assert shed.pop("time").endswith("Z")
    assert shed == {
        "level": "warning",
        "logger": "worker.live",
        "message": "frames shed: 3",
        "session": "s1",
        "trace": "0af7",
    }
    assert "session" not in other


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_nothing_in_a_record_can_begin_a_line(log_format: str) -> None:
    stream = configured(log_format=log_format)
    log.info("voice %s", "a\r\nINFO worker: forged \x1b[2J\u2028 \x85 \ud800")
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("log_text", [False, True])
def test_an_unexpected_error_does_not_quote_its_input(log_format: str, log_text: bool) -> None:
    stream = configured(log_format=log_format, log_text=log_text)
    try:
        try:
            float(SPOKEN)
        except ValueError as error:
            raise ExceptionGroup(SPOKEN, [KeyError(SPOKEN), RuntimeError(SPOKEN)]) from error
    except ExceptionGroup:
        log.exception("session failed")
    said = stream.getvalue()
    assert (SPOKEN in said) == log_text
    for kind in ("ValueError", "ExceptionGroup", "KeyError", "RuntimeError", "test_logs.py", "which led to:"):
        assert kind in said


def test_errors_that_hold_no_text_say_what_they_know() -> None:
    stream = configured(log_format="json")
    for error in (VoiceNotFound("x", ("heart",)), ConnectionRefusedError(111, "Connection refused")):
        log.error("failed", exc_info=error)
    voice, refused = objects(stream)
    assert voice["exception"] == "engine.errors.VoiceNotFound: voice not found; known voices: heart"
    assert refused["exception"].endswith("Connection refused")


def test_an_error_that_is_its_own_cause_ends() -> None:
    stream = configured()
    first, second = ValueError(), KeyError()
    first.__context__, second.__context__ = second, first
    log.error("failed", exc_info=first)
    assert stream.getvalue().count("which led to:") == 1


async def test_what_the_event_loop_reports_holds_no_text() -> None:
    stream = configured(log_format="json")
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(handle_loop_error)

    async def fails() -> None:
        float(SPOKEN)

    task = loop.create_task(fails())
    await asyncio.wait([task])
    del task
    gc.collect()
    loop.call_soon(float, SPOKEN)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    never, callback = objects(stream)
    assert never["message"] == "Task exception was never retrieved"
    assert never["exception"].endswith("ValueError")
    assert callback["message"].startswith("Exception in callback float(...)") or "(...)" in callback["message"]
    assert SPOKEN not in stream.getvalue()


def test_warnings_go_the_same_way() -> None:
    stream = configured(log_format="json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old habit", DeprecationWarning, stacklevel=1)
    (entry,) = objects(stream)
    assert entry["logger"] == "py.warnings"
    assert "old habit" in entry["message"]


def test_a_stream_that_is_gone_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    stream = configured()
    stream.close()
    log.info("nobody reads this")
    assert capsys.readouterr().err == ""


def test_configuring_again_replaces_what_was_there() -> None:
    first = configured()
    second = configured()
    log.info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1
