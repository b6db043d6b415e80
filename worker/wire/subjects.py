"""Subjects of the wire contract: builders, parsers, and which reply subjects may be answered.

Builders and parsers refuse every token that could widen or split a subject (wildcards, dots, spaces, CRLF), so that
no caller's string reaches a subject unchecked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from worker.errors import WireError, bad_request

PREFIX = "tts.v1"
TOKEN_PATTERN = r"[A-Za-z0-9_-]{1,64}"
SESSION_PATTERN = r"[A-Za-z0-9_-]{16,64}"
REPLY_CHARS = 512
"""Longest reply subject that is answered; subject and reply share NATS's control line of 4,096 bytes, and exceeding
that closes the connection."""

_TOKEN = re.compile(TOKEN_PATTERN)
_SESSION = re.compile(SESSION_PATTERN)
_REPLY_TOKEN = re.compile(r"[!-)+-=?-~]+")  # printable ASCII without "*", ">" and (split off before) "."

Kind = Literal["info", "open"]
JobClass = Literal["std", "bulk"]
JOB_CLASSES: tuple[JobClass, ...] = get_args(JobClass)
JobKind = Literal["jobctl", "jobevt", "jobout"]
JOBS = f"{PREFIX}.*.job.*.*"
"""Every batch job of every tenant: what the work queue's stream takes in."""


@dataclass(frozen=True, slots=True)
class PoolAddress:
    """Where an ``info`` or ``open`` request was sent."""

    tenant: str
    pool: str


@dataclass(frozen=True, slots=True)
class InputAddress:
    """Where a producer's message was sent."""

    tenant: str
    worker: str
    session: str


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """Where a batch job was queued. The tenant is the subject's, whatever the body claims."""

    tenant: str
    pool: str
    job_class: JobClass


@dataclass(frozen=True, slots=True)
class JobAddress:
    """Which tenant's job a control request, an event or a finished segment is of."""

    tenant: str
    job: str


def check_token(name: str, value: str) -> str:
    """Raises WireError (bad_request) unless ``value`` is one plain subject token of at most 64 characters."""
    if not _TOKEN.fullmatch(value):
        raise bad_request("1 to 64 characters of A-Z a-z 0-9 _ -", field=name)
    return value


def check_session(value: str) -> str:
    """Raises WireError (bad_request) unless ``value`` may name a session."""
    return _check_id("session", value)


def pool_subject(kind: Kind, tenant: str, pool: str) -> str:
    """``tts.v1.<tenant>.info|open.<pool>``."""
    return f"{PREFIX}.{check_token('tenant', tenant)}.{kind}.{check_token('pool', pool)}"


def pool_wildcard(kind: Kind, pool: str) -> str:
    """What a worker of the pool subscribes to, for every tenant."""
    return f"{PREFIX}.*.{kind}.{check_token('pool', pool)}"


def input_subject(tenant: str, worker: str, session: str) -> str:
    """``tts.v1.<tenant>.in.<worker>.<sid>``."""
    return (
        f"{PREFIX}.{check_token('tenant', tenant)}.in.{check_token('worker', worker)}"
        f".{check_token('session', check_session(session))}"
    )


def input_wildcard(worker: str) -> str:
    """One subscription for the text of all sessions of a worker."""
    return f"{PREFIX}.*.in.{check_token('worker', worker)}.*"


def out_subject(tenant: str, session: str) -> str:
    """``tts.v1.<tenant>.out.<sid>``."""
    return f"{PREFIX}.{check_token('tenant', tenant)}.out.{check_session(session)}"


def check_job(value: str) -> str:
    """Raises WireError (bad_request) unless ``value`` may name a job."""
    return _check_id("job", value)


def check_job_class(value: str) -> JobClass:
    """Raises WireError (bad_request)."""
    for known in JOB_CLASSES:
        if value == known:
            return known
    raise bad_request(f"one of {', '.join(JOB_CLASSES)}", field="class")


def queue_subject(tenant: str, pool: str, job_class: str) -> str:
    """``tts.v1.<tenant>.job.<pool>.<class>``."""
    return f"{PREFIX}.{check_token('tenant', tenant)}.job.{check_token('pool', pool)}.{check_job_class(job_class)}"


def queue_filter(pool: str, job_class: str) -> str:
    """What one consumer of the work queue takes, of every tenant; filters of two consumers never overlap."""
    return f"{PREFIX}.*.job.{check_token('pool', pool)}.{check_job_class(job_class)}"


def job_subject(kind: JobKind, tenant: str, job: str) -> str:
    """``tts.v1.<tenant>.jobctl|jobevt|jobout.<job>``."""
    return f"{PREFIX}.{check_token('tenant', tenant)}.{kind}.{check_job(job)}"


def job_wildcard(kind: JobKind, tenant: str | None = None) -> str:
    """The same of all jobs, of one tenant or of all."""
    return f"{PREFIX}.{'*' if tenant is None else check_token('tenant', tenant)}.{kind}.*"


def _check_id(name: str, value: str) -> str:
    if not _SESSION.fullmatch(value):
        raise bad_request("16 to 64 characters of A-Z a-z 0-9 _ -", field=name)
    return value


def _tokens(subject: str, kind: str, count: int) -> list[str]:
    tokens = subject.split(".")
    if len(tokens) != count or tokens[:2] != PREFIX.split(".") or tokens[3] != kind:
        raise WireError("bad_request", f"not a subject of the form {PREFIX}.<tenant>.{kind}...")
    return tokens


def parse_pool_subject(kind: Kind, subject: str) -> PoolAddress:
    """Raises WireError (bad_request)."""
    tokens = _tokens(subject, kind, 5)
    return PoolAddress(check_token("tenant", tokens[2]), check_token("pool", tokens[4]))


def parse_input_subject(subject: str) -> InputAddress:
    """Raises WireError (bad_request)."""
    tokens = _tokens(subject, "in", 6)
    return InputAddress(
        check_token("tenant", tokens[2]),
        check_token("worker", tokens[4]),
        check_session(check_token("session", tokens[5])),
    )


def parse_queue_subject(subject: str) -> QueueAddress:
    """Raises WireError (bad_request)."""
    tokens = _tokens(subject, "job", 6)
    return QueueAddress(check_token("tenant", tokens[2]), check_token("pool", tokens[4]), check_job_class(tokens[5]))


def parse_job_subject(kind: JobKind, subject: str) -> JobAddress:
    """Raises WireError (bad_request)."""
    tokens = _tokens(subject, kind, 5)
    return JobAddress(check_token("tenant", tokens[2]), check_job(tokens[4]))


class ReplyRules(Protocol):
    """Which inboxes belong to which tenant (``worker.sections.NatsSettings`` is one)."""

    def inboxes(self, tenant: str) -> tuple[str, ...]:
        """Prefixes of the reply subjects that may be answered for a tenant, each with its final dot."""
        ...


def reply_allowed(tenant: str, reply: str, rules: ReplyRules) -> bool:
    """Whether answering ``reply`` on behalf of ``tenant`` stays inside that tenant's own inbox.

    A reply subject is chosen by the requester, and the worker's permissions are wider than the requester's: answering
    any subject would let one tenant speak on another's. What is refused is dropped unanswered, logged and counted.
    """
    if not 0 < len(reply) <= REPLY_CHARS or not all(_REPLY_TOKEN.fullmatch(token) for token in reply.split(".")):
        return False
    return any(prefix.endswith(".") and reply.startswith(prefix) for prefix in rules.inboxes(tenant))
