"""A chapter's record on the real server: fences, retries, resuming, a full stream, a killed server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.conftest import MakeBus, MakeServer
from worker.bus import Bus, Message
from worker.embedded import EmbeddedServer
from worker.errors import RequestTimeout
from worker.jobs.output import (
    PART_BYTES,
    Fenced,
    Output,
    OutputAway,
    OutputDamaged,
    Progress,
    StorageFull,
    output_subject,
)


@pytest_asyncio.fixture
async def home(make_server: MakeServer, tmp_path: Path) -> EmbeddedServer:
    return await make_server(store_dir=tmp_path)


async def make_stream(bus: Bus, name: str, **config: Any) -> str:
    """Returns a chapter's subject in a stream of that name."""
    subject = output_subject("acme", name, 0)
    wanted = {"name": name, "subjects": [subject], "discard": "new", "storage": "file", **config}
    answer = await bus.request(f"$JS.API.STREAM.CREATE.{name}", json.dumps(wanted).encode(), timeout_s=5.0)
    assert "error" not in json.loads(answer.payload)
    return subject


async def say(output: Output, index: int, key: str = "k", audio: bytes = b"pcm") -> None:
    await output.segment(index, key, audio, samples=3, audio_ms=1, attempt=0)


class LosesOneAck:
    """Passes everything on, and loses the answer to the next append when told to."""

    def __init__(self, bus: Bus) -> None:
        self._bus, self.lose = bus, False

    async def request(
        self, subject: str, payload: bytes, *, headers: Mapping[str, str] | None = None, timeout_s: float
    ) -> Message:
        answer = await self._bus.request(subject, payload, headers=headers, timeout_s=timeout_s)
        if self.lose:
            self.lose = False
            raise RequestTimeout(subject, timeout_s)
        return answer


async def test_resuming_starts_at_the_first_segment_that_is_missing_or_changed(
    home: EmbeddedServer, make_bus: MakeBus, pool: str
) -> None:
    bus = await make_bus(home.url)
    subject = await make_stream(bus, pool)
    first = Output(bus, pool, subject)
    await first.claim()
    long = bytes(range(256)) * (PART_BYTES // 128)
    await say(first, 0, "a", long)
    await say(first, 1, "b")
    await first.failure(2, "c", attempt=1, code="engine")
    progress = await Output(bus, pool, subject).claim()
    assert (progress.epoch, progress.finished, progress.attempts) == (1, None, {(2, "c"): 1})
    assert progress.first_missing(["a", "b", "c"]) == 2
    assert progress.first_missing(["a", "other", "c"]) == 1  # case C33: changed text never takes old audio
    assert await first.audio(progress.segments[0][1]) == long


async def test_a_zombie_is_fenced_and_stores_nothing(home: EmbeddedServer, make_bus: MakeBus, pool: str) -> None:
    bus = await make_bus(home.url)
    subject = await make_stream(bus, pool)
    zombie, heir = Output(bus, pool, subject), Output(bus, pool, subject)
    await zombie.claim()
    await heir.claim()
    with pytest.raises(Fenced):
        await say(zombie, 0, "z")
    await say(heir, 0, "h")
    with pytest.raises(Fenced):
        await zombie.manifest(b"{}")
    assert (await heir.read()).segments[0][0] == "h"


async def test_of_two_that_claim_at_once_one_goes_on(home: EmbeddedServer, make_bus: MakeBus, pool: str) -> None:
    buses = [await make_bus(home.url), await make_bus(home.url)]
    subject = await make_stream(buses[0], pool)
    owners = [Output(bus, pool, subject) for bus in buses]

    async def work(owner: Output) -> None:
        for index in range(5):
            await say(owner, index, str(id(owner)))

    claims = await asyncio.gather(*(owner.claim() for owner in owners), return_exceptions=True)
    assert all(isinstance(claim, Progress | Fenced) for claim in claims)
    claimed = [owner for owner, claim in zip(owners, claims, strict=True) if isinstance(claim, Progress)]
    results = await asyncio.gather(*map(work, claimed), return_exceptions=True)
    assert sum(result is None for result in results) == 1
    assert all(result is None or isinstance(result, Fenced) for result in results)
    written = (await owners[0].read()).segments
    assert len(written) == 5
    assert len({key for key, _ in written.values()}) == 1


async def test_a_retry_after_a_lost_answer_is_one_record(home: EmbeddedServer, make_bus: MakeBus, pool: str) -> None:
    bus = await make_bus(home.url)
    lossy = LosesOneAck(bus)
    owner = Output(lossy, pool, await make_stream(bus, pool))
    await owner.claim()
    lossy.lose = True
    await say(owner, 0)
    await say(owner, 1)
    assert (await owner.read()).place == 3


async def test_what_was_given_up_for_lost_and_stored_does_not_swallow_the_next(
    home: EmbeddedServer, make_bus: MakeBus, pool: str
) -> None:
    bus = await make_bus(home.url)
    lossy = LosesOneAck(bus)
    owner = Output(lossy, pool, await make_stream(bus, pool), patience_s=0.0)
    await owner.claim()
    lossy.lose = True
    with pytest.raises(OutputAway):
        await say(owner, 0, "a")
    await owner.failure(1, "b", attempt=1, code="engine")
    await say(owner, 1, "b")
    progress = await owner.read()
    assert progress.first_missing(["a", "b", "c"]) == 2
    assert progress.attempts == {(1, "b"): 1}


async def test_a_strangers_message_is_named_not_read(home: EmbeddedServer, make_bus: MakeBus, pool: str) -> None:
    bus = await make_bus(home.url)
    subject = await make_stream(bus, pool)
    await bus.request(subject, b"hello", timeout_s=5.0)
    with pytest.raises(OutputDamaged, match="message 1"):
        await Output(bus, pool, subject).claim()


async def test_a_full_stream_pauses_and_goes_on(home: EmbeddedServer, make_bus: MakeBus, pool: str) -> None:
    bus = await make_bus(home.url)
    subject = await make_stream(bus, pool, subjects=[f"tts.v1.acme.jobout.{pool}.*"], max_msgs=4)
    other, owner = Output(bus, pool, output_subject("acme", pool, 1)), Output(bus, pool, subject)
    await other.claim()
    await other.manifest(b"{}")
    await owner.claim()
    await say(owner, 0)
    with pytest.raises(StorageFull):
        await say(owner, 1)
    await other.purge()
    await say(owner, 1)
    assert (await owner.read()).first_missing(["k", "k", "k"]) == 2


async def test_a_finished_chapter_is_its_manifest_alone(home: EmbeddedServer, make_bus: MakeBus, pool: str) -> None:
    bus = await make_bus(home.url)
    subject = await make_stream(bus, pool)
    owner = Output(bus, pool, subject)
    await owner.claim()
    await say(owner, 0)
    with pytest.raises(ValueError, match="finished"):
        await owner.purge()
    await owner.manifest(b"{}")
    await owner.purge()
    heir = Output(bus, pool, subject)
    progress = await heir.claim()
    assert (progress.finished, progress.segments, heir.epoch) == (b"{}", {}, 0)


async def test_a_killed_server_loses_nothing_that_was_appended(home: EmbeddedServer, make_bus: MakeBus) -> None:
    bus = await make_bus(home.url)
    job = "a-job-of-16-chars"
    owner = Output(bus, job, await make_stream(bus, job), timeout_s=0.5)
    await owner.claim()
    await say(owner, 0)
    await home.stop(kill=True)
    going_on = asyncio.create_task(say(owner, 1))
    await home.start()
    await going_on
    assert (await owner.read()).first_missing(["k", "k"]) == 2
