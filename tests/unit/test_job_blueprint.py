"""The desired streams, consumers and buckets, and what separates them from what a server reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from worker.errors import WireError
from worker.jobs.blueprint import NANO, Resource, Wishes, blueprint
from worker.jobs.difference import Change, compare, merged
from worker.sections import JournalSettings
from worker.stream import journal_config

WISHES = Wishes(
    pools=("std", "big"),
    tenants=("acme", "default"),
    replicas=3,
    storage="file",
    queue_messages=10,
    queue_bytes=1000,
    segments_bytes=2000,
    records_bytes=3000,
    texts_bytes=4000,
    results_bytes=5000,
    max_pending=64,
)


def named(wishes: Wishes) -> dict[str, Resource]:
    return {resource.name: resource for resource in blueprint(wishes)}


def stream(**config: Any) -> Resource:
    return Resource("stream", "S", {"name": "S", **config}, "S")


def test_the_queue_refuses_what_does_not_fit_and_loses_nothing() -> None:
    assert named(WISHES)["TTS_JOBS"].config == {
        "name": "TTS_JOBS",
        "subjects": ["tts.v1.*.job.>"],
        "retention": "workqueue",
        "discard": "new",
        "storage": "file",
        "num_replicas": 3,
        "max_msgs": 10,
        "max_bytes": 1000,
        "duplicate_window": 3600 * NANO,
        "allow_msg_ttl": True,
    }


def test_every_pool_and_class_has_a_consumer_of_its_own() -> None:
    consumers = [resource for resource in blueprint(WISHES) if resource.kind == "consumer"]
    filters = [resource.config["filter_subject"] for resource in consumers]
    assert filters == [f"tts.v1.*.job.{pool}.{name}" for pool in ("std", "big") for name in ("std", "bulk")]
    assert len({resource.name for resource in consumers}) == 4
    assert {resource.config["ack_wait"] for resource in consumers} == {30 * NANO}
    assert {resource.config["max_deliver"] for resource in consumers} == {-1}
    assert {resource.config["max_ack_pending"] for resource in consumers} == {64}


def test_every_tenant_has_its_buckets() -> None:
    buckets = [resource.name for resource in blueprint(WISHES) if resource.kind == "object store"]
    assert buckets == ["tts-texts-acme", "tts-results-acme", "tts-texts-default", "tts-results-default"]


@pytest.mark.parametrize("bad", [{"pools": ("a.b",)}, {"pools": ("*",)}, {"tenants": ("a>",)}])
def test_no_name_widens_a_subject(bad: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        blueprint(replace(WISHES, **bad))


def test_placement_is_left_to_the_operator_unless_it_is_asked_for() -> None:
    assert not any("placement" in resource.config for resource in blueprint(WISHES))
    journal = journal_config(JournalSettings())
    placed = blueprint(replace(WISHES, placement_cluster="c", placement_tags=("ssd",), journal=journal))
    found = {resource.name: resource.config.get("placement") for resource in placed if resource.kind != "consumer"}
    assert "TTS_JOURNAL" in found
    assert all(placement == {"cluster": "c", "tags": ["ssd"]} for placement in found.values())


def test_the_server_s_way_of_saying_nothing_is_no_difference() -> None:
    wanted = stream(max_msgs=-1, max_age=0, deny_delete=False, backoff=[])
    assert compare(wanted, {"name": "S", "max_msgs": 0, "max_age": -1}).action == "same"


def test_what_is_not_ours_stays() -> None:
    found = {"name": "S", "subjects": ["theirs", "a"], "max_msgs": 5, "description": "mine", "republish": {"src": "a"}}
    step = compare(stream(subjects=["a", "b"], max_msgs=6), found)
    assert step.changes == (
        Change("subjects", ["theirs", "a"], ["theirs", "a", "b"]),
        Change("max_msgs", 5, 6),
    )
    assert merged(found, step) == {**found, "subjects": ["theirs", "a", "b"], "max_msgs": 6}


@pytest.mark.parametrize(("name", "old", "new"), [("retention", "limits", "workqueue"), ("storage", "file", "memory")])
def test_what_cannot_change_in_place_is_refused(name: str, old: str, new: str) -> None:
    step = compare(stream(**{name: new}), {"name": "S", name: old})
    assert (step.action, step.reason) == ("refuse", f"{name} cannot change in place")


def test_a_sealed_stream_is_refused() -> None:
    assert compare(stream(max_msgs=1), {"name": "S", "sealed": True}).reason == "it is sealed"


@pytest.mark.parametrize(
    ("wanted", "found", "action"),
    [
        ({"max_bytes": 99}, {"max_bytes": 1000}, "refuse"),
        ({"max_bytes": 100}, {"max_bytes": 1000}, "change"),
        ({"max_msgs": 2}, {"max_msgs": -1}, "refuse"),
        ({"max_msgs": 2, "discard": "new"}, {"max_msgs": -1, "discard": "old"}, "change"),
        ({"max_age": 5}, {"max_age": 0}, "refuse"),
        ({"max_age": 0}, {"max_age": 5}, "change"),
    ],
)
def test_no_limit_is_lowered_below_what_would_be_deleted(
    wanted: dict[str, Any], found: dict[str, Any], action: str
) -> None:
    assert compare(stream(**wanted), {"name": "S", **found}, {"messages": 3, "bytes": 100}).action == action
