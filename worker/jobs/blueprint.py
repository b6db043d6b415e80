"""What batch jobs need of JetStream, as plain data: streams, consumers, buckets.

Configurations are the server's own JSON (durations in nanoseconds, -1 for no limit) and name only what matters to us:
every other field is the operator's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from worker.wire.subjects import JOB_CLASSES, PREFIX, check_token, queue_filter

JOBS_STREAM, SEGMENTS_STREAM, DEAD_STREAM = "TTS_JOBS", "TTS_OUT", "TTS_DEAD"
JOBS_SUBJECTS, SEGMENTS_SUBJECTS, DEAD_SUBJECTS = (f"{PREFIX}.*.{kind}.>" for kind in ("job", "jobout", "jobdead"))
RECORDS_BUCKET = "tts-jobs"
ACK_WAIT_S = 30
DUPLICATE_WINDOW_S = 3600
NANO = 1_000_000_000

Config = Mapping[str, Any]
Kind = Literal["stream", "consumer", "key-value bucket", "object store"]


@dataclass(frozen=True, slots=True)
class Wishes:
    """Sizes in bytes. The journal's configuration is its own module's; None: no journal."""

    pools: tuple[str, ...]
    tenants: tuple[str, ...]
    replicas: int
    storage: Literal["file", "memory"]
    queue_messages: int
    queue_bytes: int
    segments_bytes: int
    records_bytes: int
    texts_bytes: int
    results_bytes: int
    max_pending: int
    """Jobs of one pool and class that may be held at once: at least the slots of the fleet."""
    placement_cluster: str | None = None
    placement_tags: tuple[str, ...] = ()
    journal: Config | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    kind: Kind
    name: str
    """What users call it."""
    config: Config
    stream: str
    """That it is, or that it belongs to."""

    @property
    def label(self) -> str:
        return f"{self.kind} {self.name}"


def texts_bucket(tenant: str) -> str:
    """Where a tenant's large texts wait. Raises WireError."""
    return f"tts-texts-{check_token('tenant', tenant)}"


def results_bucket(tenant: str) -> str:
    """Where a tenant's finished audio is. Raises WireError."""
    return f"tts-results-{check_token('tenant', tenant)}"


def consumer_name(pool: str, job_class: str) -> str:
    """Raises WireError."""
    return f"{check_token('pool', pool)}-{job_class}"


def blueprint(wishes: Wishes) -> list[Resource]:
    """In the order in which they are made: a consumer after its stream. Raises WireError."""
    return [*_streams(wishes), *_buckets(wishes), *_consumers(wishes)]


def _streams(wishes: Wishes) -> Iterator[Resource]:
    # discard=new: a full queue refuses a job, and never drops one that was taken.
    yield _stream(
        wishes,
        JOBS_STREAM,
        subjects=[JOBS_SUBJECTS],
        retention="workqueue",
        discard="new",
        max_msgs=wishes.queue_messages,
        max_bytes=wishes.queue_bytes,
        duplicate_window=DUPLICATE_WINDOW_S * NANO,
        allow_msg_ttl=True,
    )
    yield _stream(
        wishes,
        SEGMENTS_STREAM,
        subjects=[SEGMENTS_SUBJECTS],
        retention="limits",
        discard="new",
        max_bytes=wishes.segments_bytes,
        allow_direct=True,
        allow_rollup_hdrs=True,
    )
    yield _stream(
        wishes,
        DEAD_STREAM,
        subjects=[DEAD_SUBJECTS],
        retention="limits",
        discard="new",
        max_bytes=wishes.queue_bytes,
        allow_direct=True,
    )
    if wishes.journal is not None:
        name = str(wishes.journal["name"])
        yield Resource("stream", name, {**wishes.journal, **_placement(wishes)}, name)


def _stream(wishes: Wishes, name: str, **config: Any) -> Resource:
    return Resource("stream", name, {"name": name, **config, **_keeping(wishes)}, name)


def _buckets(wishes: Wishes) -> Iterator[Resource]:
    """As clients of every language make them (ADR-8, ADR-20)."""
    config = {
        "name": f"KV_{RECORDS_BUCKET}",
        "subjects": [f"$KV.{RECORDS_BUCKET}.>"],
        "discard": "new",
        "max_bytes": wishes.records_bytes,
        "max_msgs_per_subject": 1,
        "deny_delete": True,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "allow_msg_ttl": True,
        **_keeping(wishes),
    }
    yield Resource("key-value bucket", RECORDS_BUCKET, config, f"KV_{RECORDS_BUCKET}")
    for tenant in wishes.tenants:
        yield _objects(wishes, texts_bucket(tenant), wishes.texts_bytes)
        yield _objects(wishes, results_bucket(tenant), wishes.results_bytes)


def _objects(wishes: Wishes, bucket: str, max_bytes: int) -> Resource:
    config = {
        "name": f"OBJ_{bucket}",
        "subjects": [f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
        "discard": "new",
        "max_bytes": max_bytes,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        **_keeping(wishes),
    }
    return Resource("object store", bucket, config, f"OBJ_{bucket}")


def _consumers(wishes: Wishes) -> Iterator[Resource]:
    for pool in wishes.pools:
        for job_class in JOB_CLASSES:
            name = consumer_name(pool, job_class)
            config = {
                "durable_name": name,
                "deliver_policy": "all",
                "ack_policy": "explicit",
                "ack_wait": ACK_WAIT_S * NANO,
                "max_deliver": -1,  # every kill and drain uses one up; failures are counted in the job's record
                "max_ack_pending": wishes.max_pending,
                "backoff": [],  # it would override ack_wait with its first entry
                "filter_subject": queue_filter(pool, job_class),
            }
            yield Resource("consumer", name, config, JOBS_STREAM)


def _keeping(wishes: Wishes) -> dict[str, Any]:
    return {"storage": wishes.storage, "num_replicas": wishes.replicas, **_placement(wishes)}


def _placement(wishes: Wishes) -> dict[str, Any]:
    placement: dict[str, Any] = {}
    if wishes.placement_cluster:
        placement["cluster"] = wishes.placement_cluster
    if wishes.placement_tags:
        placement["tags"] = list(wishes.placement_tags)
    return {"placement": placement} if placement else {}
