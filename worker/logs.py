"""Log lines: text for people or JSON for machines, on standard error, with the session and trace they belong to.

Guarantee: no text of a session reaches the log through this module while ``log_text`` is off. What a log call says is
its author's care; what it cannot know is the message of an unexpected exception, which quotes its input as often as
not (``could not convert string to float: 'so long'``). So a traceback shows such an exception's type and place alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, MutableMapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from worker.sections import TelemetrySettings

log = logging.getLogger(__name__)

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

_OWN = ("engine.", "scheduler.", "worker.")
# Nothing in a record may look like the beginning of another one; only the lines of a traceback are ours.
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {0x2028: "\\u2028", 0x2029: "\\u2029"}
_CONTEXT = ("session", "trace")


def configure(settings: TelemetrySettings, stream: TextIO | None = None) -> None:
    """Make this the only way from any logger of the process to ``stream`` (standard error)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    kind = JsonFormatter if settings.log_format == "json" else TextFormatter
    handler.setFormatter(kind(log_text=settings.log_text))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    # A reader of standard error that goes away must not fill it with the logging module's own tracebacks.
    logging.raiseExceptions = False
    logging.captureWarnings(True)


class SessionLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records carry a session's id and trace."""

    def __init__(self, logger: logging.Logger, session: str, trace: str) -> None:
        super().__init__(logger, {"session": session, "trace": trace})

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, {**kwargs, "extra": {**(self.extra or {}), **(kwargs.get("extra") or {})}}


def handle_loop_error(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """For ``loop.set_exception_handler``: asyncio's own handler shows a failed task with its exception's message, and
    a failed callback with its arguments."""
    log.error("%s", re.sub(r"\(.*", "(...)", context["message"], flags=re.DOTALL), exc_info=context.get("exception"))


class _Formatter(logging.Formatter):
    def __init__(self, *, log_text: bool) -> None:
        super().__init__()
        self._log_text = log_text

    def formatException(self, ei: ExcInfo) -> str:
        return "\n".join(_told(ei[1], self._log_text, frozenset())) if ei[1] is not None else ""

    def context(self, record: logging.LogRecord) -> Mapping[str, str]:
        return {name: str(value) for name in _CONTEXT if (value := getattr(record, name, None)) is not None}

    def exception(self, record: logging.LogRecord) -> str | None:
        return self.formatException(record.exc_info) if record.exc_info else None


class TextFormatter(_Formatter):
    """``2027-03-14 16:05:00.123 INFO worker.live: message session=... trace=...``, local time."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created).isoformat(" ", "milliseconds")
        context = "".join(f" {name}={value}" for name, value in self.context(record).items())
        line = f"{when} {record.levelname} {record.name}: {record.getMessage()}{context}".translate(_ESCAPES)
        exception = self.exception(record)
        return line if exception is None else f"{line}\n{exception}"


class JsonFormatter(_Formatter):
    """One object a line: time (RFC 3339, UTC), level, logger, message, session, trace, exception."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        exception = self.exception(record)
        entry = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.context(record),
            **({} if exception is None else {"exception": exception}),
        }
        # ASCII, so that neither a lone surrogate nor the stream's encoding can make a record fail.
        return json.dumps(entry)


def _told(error: BaseException, log_text: bool, seen: frozenset[int]) -> Iterator[str]:
    """Causes first, as Python tells it; a group with its parts."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and id(cause) not in seen:
        yield from _told(cause, log_text, seen | {id(error)})
        yield "which led to:"
    yield from "".join(traceback.format_tb(error.__traceback__)).splitlines()
    yield _named(error, log_text)
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from (f"  | {line}" for line in _told(part, log_text, seen | {id(error)}))


def _named(error: BaseException, log_text: bool) -> str:
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    speaks = log_text or isinstance(error, OSError) or kind.startswith(_OWN)
    message = str(error).translate(_ESCAPES)
    return f"{kind}: {message}" if speaks and message else kind
