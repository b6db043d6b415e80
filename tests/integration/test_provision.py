"""``antiphon provision`` against the real server: what it makes, changes, leaves and refuses."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.js.errors import APIError

from tests.integration.conftest import MakeBus, MakeClient, MakeServer
from worker.bus import Bus
from worker.cli.main import main
from worker.embedded import EmbeddedServer
from worker.jobs.blueprint import Wishes, blueprint
from worker.jobs.provision import Provisioner, ProvisionError

MIB = 1 << 20
SMALL = ("--segments-bytes", "1000000", "--texts-bytes", "1000000", "--results-bytes", "1000000")
OVERLAPPING_CONSUMER, FULL = 10100, 10077
OFF = "accounts { A { users: [{user: a, password: a}] }, S { users: [{user: s, password: s}] } }\nsystem_account: S"
DENIED = 'authorization { users: [{user: a, password: a, permissions: { publish: { deny: "$JS.API.>" } }}] }'


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise io.UnsupportedOperation


def wishes(**other: Any) -> Wishes:
    sizes = dict.fromkeys(("queue_bytes", "segments_bytes", "records_bytes", "texts_bytes", "results_bytes"), MIB)
    base: dict[str, Any] = {"pools": ("std",), "tenants": ("default",), "replicas": 1, "storage": "file"}
    return Wishes(**{**base, **sizes, "queue_messages": 2, "max_pending": 8, **other})


@pytest_asyncio.fixture
async def home(make_server: MakeServer, tmp_path: Path) -> EmbeddedServer:
    return await make_server(store_dir=tmp_path)


@pytest_asyncio.fixture
async def bus(home: EmbeddedServer, make_bus: MakeBus) -> AsyncIterator[Bus]:
    yield await make_bus(home.url)


@pytest_asyncio.fixture
async def client(home: EmbeddedServer, make_client: MakeClient) -> AsyncIterator[Client]:
    yield await make_client(home.url)


async def provision(bus: Bus, **other: Any) -> list[str]:
    """Labels of what was done."""
    provisioner = Provisioner(bus, timeout_s=5.0)
    done = await provisioner.apply(await provisioner.plan(blueprint(wishes(**other))))
    return [step.resource.label for step in done]


async def ask(client: Client, name: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
    reply = await client.request(f"$JS.API.{name}", json.dumps(request).encode() if request else b"", timeout=5)
    answer: dict[str, Any] = json.loads(reply.data)
    assert "error" not in answer, answer
    return answer


async def configs(client: Client) -> dict[str, Any]:
    streams = (await ask(client, "STREAM.LIST"))["streams"]
    consumers = (await ask(client, "CONSUMER.LIST.TTS_JOBS"))["consumers"]
    return {**{s["config"]["name"]: s["config"] for s in streams}, **{c["name"]: c["config"] for c in consumers}}


async def antiphon(url: str, *options: str) -> int:
    argv = ["provision", "--nats.url", url, *SMALL, *options]
    return await asyncio.to_thread(main, argv)


async def test_the_command_shows_then_makes_then_has_nothing_to_do(
    home: EmbeddedServer, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await antiphon(home.url) == 2
    assert "9 to create" in capsys.readouterr().out
    assert (await ask(client, "STREAM.NAMES"))["streams"] is None
    assert await antiphon(home.url, "--yes") == 0
    capsys.readouterr()
    before = await configs(client)
    assert {"TTS_JOBS", "TTS_OUT", "TTS_DEAD", "TTS_JOURNAL", "KV_tts-jobs", "std-std", "std-bulk"} < set(before)
    assert await antiphon(home.url, "--yes") == 0
    assert capsys.readouterr().out == "nothing to do: 9 are as they should be\n"
    assert await configs(client) == before


@pytest.mark.parametrize(("answer", "code", "made"), [("y\n", 0, True), ("\n", 2, False), ("", 2, False)])
async def test_a_terminal_is_asked(
    answer: str, code: int, made: bool, home: EmbeddedServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("sys.stdout", Terminal())
    assert await antiphon(home.url) == code
    assert bool((await ask(client, "STREAM.NAMES"))["streams"]) is made


async def test_a_changed_limit_is_shown_then_applied(
    home: EmbeddedServer, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await antiphon(home.url, "--yes") == 0
    before = await configs(client)
    capsys.readouterr()
    changed = ("--queue-messages", "7", "--max-pending", "5")
    assert await antiphon(home.url, "--dry-run", "--yes", *changed) == 2
    shown = capsys.readouterr().out
    assert "~ change stream TTS_JOBS\n    max_msgs: 100000 -> 7\n" in shown
    assert "    max_ack_pending: 1024 -> 5\n" in shown
    assert await configs(client) == before
    assert await antiphon(home.url, "--json", "--yes", *changed) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["applied"] is True
    assert document["resources"][0]["changes"] == [{"field": "max_msgs", "from": 100_000, "to": 7}]
    after = await configs(client)
    assert after["TTS_JOBS"] == {**before["TTS_JOBS"], "max_msgs": 7}
    assert after["std-bulk"] == {**before["std-bulk"], "max_ack_pending": 5}


async def test_what_the_operator_added_is_kept(bus: Bus, client: Client) -> None:
    await provision(bus)
    found = await configs(client)
    added = {"description": "ours", "max_msg_size": 5000, "subjects": [*found["TTS_JOBS"]["subjects"], "extra"]}
    await ask(client, "STREAM.UPDATE.TTS_JOBS", {**found["TTS_JOBS"], **added})
    kept = (await configs(client))["TTS_JOBS"]
    assert await provision(bus) == []
    assert await provision(bus, queue_messages=3) == ["stream TTS_JOBS"]
    assert (await configs(client))["TTS_JOBS"] == {**kept, "max_msgs": 3}


async def test_what_cannot_change_in_place_is_said_and_left(
    home: EmbeddedServer, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    await ask(client, "STREAM.CREATE.TTS_JOBS", {"name": "TTS_JOBS", "subjects": ["tts.v1.*.job.>"], "storage": "file"})
    before = (await ask(client, "STREAM.INFO.TTS_JOBS"))["config"]
    assert await antiphon(home.url, "--yes") == 1
    out, err = capsys.readouterr()
    assert "not done: retention cannot change in place" in out
    assert "stream TTS_JOBS" in err
    assert (await ask(client, "STREAM.INFO.TTS_JOBS"))["config"] == before
    await ask(client, "STREAM.INFO.TTS_OUT")  # all else is done


async def test_subjects_of_another_stream_are_not_taken(bus: Bus, client: Client) -> None:
    await ask(client, "STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["tts.v1.acme.job.std.*"]})
    steps = await Provisioner(bus).plan(blueprint(wishes()))
    refused = {step.resource.label: step.reason for step in steps if step.action == "refuse"}
    assert refused.pop("stream TTS_JOBS") == "its subjects overlap with those of the stream OTHER"
    assert set(refused) == {"consumer std-std", "consumer std-bulk"}
    assert "stream TTS_JOBS" not in await provision(bus)


async def test_two_at_once_make_everything_once(home: EmbeddedServer, make_bus: MakeBus, client: Client) -> None:
    first, second = await make_bus(home.url), await make_bus(home.url)
    provisioners = [Provisioner(first), Provisioner(second)]
    plans = [await each.plan(blueprint(wishes())) for each in provisioners]
    await asyncio.gather(*(each.apply(plan) for each, plan in zip(provisioners, plans, strict=True)))
    assert len(await configs(client)) == 8
    assert await provision(first) == []


async def test_a_plan_that_is_out_of_date_is_not_carried_out(bus: Bus, client: Client) -> None:
    await provision(bus)
    plan = await Provisioner(bus).plan(blueprint(wishes(queue_messages=9)))
    await provision(bus, queue_messages=5)
    with pytest.raises(ProvisionError, match="stream TTS_JOBS: changed in the meantime"):
        await Provisioner(bus).apply(plan)
    assert (await configs(client))["TTS_JOBS"]["max_msgs"] == 5


async def test_a_full_queue_refuses_and_consumers_keep_apart(bus: Bus, client: Client) -> None:
    await provision(bus)
    jetstream = client.jetstream()
    for name in ("std", "bulk"):
        await jetstream.publish(f"tts.v1.acme.job.std.{name}", name.encode())
    with pytest.raises(APIError) as refused:
        await jetstream.publish("tts.v1.acme.job.std.std", b"one too many")
    assert refused.value.err_code == FULL
    for name in ("std", "bulk"):
        puller = await jetstream.pull_subscribe_bind(f"std-{name}", "TTS_JOBS")
        assert [message.data for message in await puller.fetch(1)] == [name.encode()]
        assert (await puller.consumer_info()).num_pending == 0
    overlapping = {"stream_name": "TTS_JOBS", "config": {"durable_name": "x", "filter_subject": "tts.v1.*.job.std.std"}}
    overlapping["config"] |= {"ack_policy": "explicit"}  # type: ignore[operator]
    reply = await client.request("$JS.API.CONSUMER.DURABLE.CREATE.TTS_JOBS.x", json.dumps(overlapping).encode())
    assert json.loads(reply.data)["error"]["err_code"] == OVERLAPPING_CONSUMER


async def test_buckets_serve_stock_clients(bus: Bus, client: Client) -> None:
    await provision(bus)
    jetstream = client.jetstream()
    records = await jetstream.key_value("tts-jobs")
    await records.create("default.job", b"queued")
    assert (await records.get("default.job")).value == b"queued"
    texts = await jetstream.object_store("tts-texts-default")
    await texts.put("book", b"text")
    assert (await texts.get("book")).data == b"text"


async def test_too_few_servers_for_the_replicas(bus: Bus) -> None:
    with pytest.raises(ProvisionError, match=r"stream TTS_JOBS: .*several replicas need a cluster"):
        await provision(bus, replicas=3)


async def test_no_jetstream_at_the_server(server: EmbeddedServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert await antiphon(server.url, "--yes") == 1
    assert "JetStream is switched off at this server" in capsys.readouterr().err


@pytest.mark.parametrize(("extra", "said"), [(OFF, "switched off"), (DENIED, "may this user publish")])
async def test_no_jetstream_for_the_user(
    extra: str, said: str, make_server: MakeServer, make_bus: MakeBus, tmp_path: Path
) -> None:
    closed = await make_server(store_dir=tmp_path, extra=extra)
    bus = await make_bus(closed.url, user="a", password="a")
    with pytest.raises(ProvisionError, match=said):
        await Provisioner(bus, timeout_s=0.3).plan(blueprint(wishes()))
