from __future__ import annotations

import hashlib
import json
from typing import Any

import msgpack
import pytest

from worker.errors import WireError
from worker.wire.codec import (
    ContentType,
    decode_job,
    decode_job_control,
    decode_job_event,
    decode_job_status,
    encode,
)
from worker.wire.jobs import (
    Chapter,
    Job,
    JobControl,
    JobEvent,
    JobFailure,
    JobFormat,
    JobOptions,
    JobStatus,
    TextRef,
    book_digest,
    job_id,
)
from worker.wire.subjects import (
    JobAddress,
    JobKind,
    QueueAddress,
    job_subject,
    job_wildcard,
    parse_job_subject,
    parse_queue_subject,
    queue_filter,
    queue_subject,
)

JOB = "Abc-0123_4567890"
TEXT = "It was a dark night. The rain fell."
DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()
JSON = {"Content-Type": "application/json"}


def taken(tree: dict[str, Any]) -> Job:
    return decode_job(JSON, json.dumps(tree).encode())


def test_subjects_are_built_as_the_contract_says() -> None:
    assert queue_subject("t1", "std", "bulk") == "tts.v1.t1.job.std.bulk"
    assert queue_filter("std", "std") == "tts.v1.*.job.std.std"
    assert job_subject("jobctl", "t1", JOB) == f"tts.v1.t1.jobctl.{JOB}"
    assert job_wildcard("jobevt") == "tts.v1.*.jobevt.*"
    assert job_wildcard("jobout", "t1") == "tts.v1.t1.jobout.*"


def test_parsers_undo_builders() -> None:
    assert parse_queue_subject(queue_subject("t-1", "p", "bulk")) == QueueAddress("t-1", "p", "bulk")
    kinds: tuple[JobKind, ...] = ("jobctl", "jobevt", "jobout")
    for kind in kinds:
        assert parse_job_subject(kind, job_subject(kind, "t", JOB)) == JobAddress("t", JOB)


@pytest.mark.parametrize(
    "bad", ["", "a.b", "*", ">", "a b", "a\r\nX: y", "a\x00", "é", "x" * 65, "a\n", "x" * 20 + "\n"]
)
def test_no_token_widens_or_splits_a_subject(bad: str) -> None:
    for build in (
        lambda: queue_subject(bad, "std", "std"),
        lambda: queue_subject("t", bad, "std"),
        lambda: queue_subject("t", "std", bad),
        lambda: queue_filter(bad, "std"),
        lambda: job_subject("jobout", bad, JOB),
        lambda: job_subject("jobout", "t", bad),
        lambda: job_wildcard("jobevt", bad),
        lambda: parse_queue_subject(f"tts.v1.t.job.std.{bad}"),
        lambda: parse_job_subject("jobctl", f"tts.v1.t.jobctl.{bad}"),
        lambda: parse_job_subject("jobctl", f"tts.v1.t.jobevt.{JOB}"),
    ):
        with pytest.raises(WireError, match="bad_request"):
            build()


@pytest.mark.parametrize("content", [ContentType.JSON, ContentType.MSGPACK])
def test_a_job_survives_its_encoding(content: ContentType) -> None:
    job = Job(
        job=JOB,
        text=TEXT,
        title="A night",
        chapters=[Chapter(title="One", start=0, end=20), Chapter(start=21, end=35)],
        voice="anna",
        language="en",
        seed=2**64 - 1,
        format=JobFormat(encoding="m4b", sample_rate=44_100),
        options=JobOptions(temperature=0.5, pronunciations={"night": "nite"}, self_check=True),
    )
    packet = encode(job, content)
    assert decode_job(packet.headers, packet.payload) == job
    referring = Job(text_ref=TextRef(name="book-1.txt", digest=DIGEST))
    packet = encode(referring, content)
    assert decode_job(packet.headers, packet.payload) == referring


def test_a_job_may_have_more_chapters_than_an_open_has_voices() -> None:
    chapters = [{"start": at, "end": at + 1} for at in range(len(TEXT))]
    for body, kind in ((msgpack.packb({"text": TEXT, "chapters": chapters}), "msgpack"),):
        assert len(decode_job({"Content-Type": f"application/{kind}"}, body).chapters) == len(TEXT)


def test_plain_text_is_a_book_with_every_default() -> None:
    job = decode_job({}, TEXT.encode())
    assert job == Job(text=TEXT)
    assert job.identity == job_id(DIGEST)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "exactly one"),
        ({"text": "a", "text_ref": {"name": "b", "digest": DIGEST}}, "exactly one"),
        ({"text": "a", "tenant": "other"}, "tenant"),
        ({"text_ref": {"name": "b", "digest": DIGEST, "bucket": "other"}}, "bucket"),
        ({"text": "a", "type": "open"}, "type"),
        ({"text": "a", "job": "short"}, "job"),
        ({"text": "a", "job": "a.>" + "x" * 16}, "job"),
        ({"text": "a", "job": JOB + "\n"}, "job"),
        ({"text": "a", "voice": "a\r\nX: y"}, "voice"),
        ({"text": "a", "title": "a\x1b[2J"}, "title"),
        ({"text": "a", "seed": -1}, "seed"),
        ({"text": "a", "seed": "1"}, "seed"),
        ({"text": "a", "options": {"temperature": 11}}, "options"),
        ({"text": "a", "options": {"speed": 2}}, "speed"),
        ({"text": "a", "format": {"encoding": "exe"}}, "format"),
        ({"text": "ab", "chapters": [{"start": 0, "end": 3}]}, "beyond"),
        ({"text": "ab", "chapters": [{"start": 1, "end": 1}]}, "empty"),
        ({"text": "ab", "chapters": [{"start": -1, "end": 1}]}, "chapters"),
        ({"text": "abcd", "chapters": [{"start": 0, "end": 2}, {"start": 1, "end": 3}]}, "order"),
        ({"text": "abcd", "chapters": [{"start": 2, "end": 3}, {"start": 0, "end": 1}]}, "order"),
        ({"text": "a\x00"}, "text"),
        ({"text": "a\ud800"}, "text"),
    ],
)
def test_what_is_wrong_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(WireError, match=named) as error:
        taken(fields)
    assert error.value.code in ("bad_request", "unknown_field")


@pytest.mark.parametrize(
    "name",
    ["", "..", "../a", "a/b", "/dev/zero", ".hidden", "a\\b", "a b", "a\n", "a\r\nX: y", "x" * 129, "http://h/a"],
)
def test_an_object_is_named_by_one_flat_name(name: str) -> None:
    with pytest.raises(WireError, match="text_ref"):
        taken({"text_ref": {"name": name, "digest": DIGEST}})


def test_chapters_of_a_text_that_came_later_are_checked_then() -> None:
    chapters = [Chapter(start=0, end=len(TEXT))]
    job = Job(text_ref=TextRef(name="b", digest=DIGEST), chapters=chapters)
    assert job.chapters_of(TEXT) == chapters
    with pytest.raises(WireError, match="digest"):
        job.chapters_of(TEXT + "!")
    beyond = Job(text_ref=TextRef(name="b", digest=DIGEST), chapters=[Chapter(start=0, end=len(TEXT) + 1)])
    with pytest.raises(WireError, match="beyond"):
        beyond.chapters_of(TEXT)
    assert Job(text=TEXT, title="T").chapters_of(TEXT) == [Chapter(title="T", start=0, end=len(TEXT))]


def test_a_derived_id_never_changes() -> None:
    """Stored jobs are found by it. If this fails, the ids of all jobs in all streams have changed."""
    assert job_id(DIGEST) == "62c4e596a7a259f5145f65aace8b0590"
    assert (
        job_id(
            DIGEST,
            voice="anna",
            language="en",
            seed=7,
            title="N\u00e4chte",
            chapters=[Chapter(title="One", start=0, end=20)],
            format=JobFormat(encoding="opus", sample_rate=48_000),
            options=JobOptions(temperature=0.5, pronunciations={"b": "c", "a": "d"}),
        )
        == "2e15d18e00ace625317dfdadc56811c6"
    )


def test_the_same_is_one_job_and_any_change_another() -> None:
    base: dict[str, Any] = {"text": TEXT, "seed": 7, "options": {"cfg": 1, "pronunciations": {"a": "b", "c": "d"}}}
    same = {"options": {"pronunciations": {"c": "d", "a": "b"}, "cfg": 1.0, "gain_db": 0}, "seed": 7, "text": TEXT}
    assert taken(base).identity == taken(same).identity
    by_reference = {**base, "text_ref": {"name": "any", "digest": DIGEST}}
    del by_reference["text"]
    assert taken(by_reference).identity == taken(base).identity
    changes: list[dict[str, Any]] = [
        {"text": TEXT + " "},
        {"seed": 8},
        {"seed": None},
        {"voice": "anna"},
        {"language": "anna"},
        {"title": "anna"},
        {"chapters": [{"start": 0, "end": len(TEXT)}]},
        {"chapters": [{"start": 0, "end": len(TEXT), "title": "x"}]},
        {"format": {"encoding": "opus"}},
        {"format": {"sample_rate": 48_000}},
        {"options": {"cfg": 1}},
        {"options": {"self_check": True}},
    ]
    ids = [taken(base).identity, *(taken({**base, **change}).identity for change in changes)]
    assert len(set(ids)) == len(ids)
    assert taken({**base, "job": JOB}).identity == JOB


def test_a_job_without_a_seed_has_one_that_every_worker_finds() -> None:
    assert Job(text=TEXT).settled_seed == Job(text=TEXT).settled_seed != Job(text=TEXT + "!").settled_seed
    assert Job(text=TEXT, seed=0).settled_seed == 0


@pytest.mark.parametrize("content", [ContentType.JSON, ContentType.MSGPACK])
def test_events_controls_and_answers_survive_their_encoding(content: ContentType) -> None:
    failure = JobFailure(code="voice_not_found", message="voice: unknown")
    event = JobEvent(event="segment", job=JOB, epoch=2, chapter=0, segment=3, of=9, audio_ms=1.5, error=failure)
    packet = encode(event, content)
    assert decode_job_event(packet.headers, packet.payload) == event
    control = JobControl(type="cancel")
    packet = encode(control, content)
    assert decode_job_control(packet.headers, packet.payload) == control
    status = JobStatus(job=JOB, state="failed", attempt=3, segments=1, of=9, error=failure)
    packet = encode(status, content)
    assert decode_job_status(packet.headers, packet.payload) == status


def test_an_empty_control_asks_for_the_status_and_others_are_refused() -> None:
    assert decode_job_control({}, b"").type == "status"
    for body in (b"cancel", b'{"type":"purge"}', b'{"type":"cancel","job":"x"}', b"{}"):
        with pytest.raises(WireError):
            decode_job_control({}, body)


def test_events_of_a_newer_worker_are_read() -> None:
    body = json.dumps({"event": "done", "job": JOB, "mood": "fine"}).encode()
    assert decode_job_event({}, body) == JobEvent(event="done", job=JOB)


def test_the_digest_is_of_utf8() -> None:
    assert book_digest("\u00e9") == hashlib.sha256(b"\xc3\xa9").hexdigest()
