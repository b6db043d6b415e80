"""Who dies or is cut off in mid-sentence, who notices within how many seconds, and what happens: the table "What dies"
in ARCHITECTURE.md, row by row, on real processes. Everything that can die at the same time does."""

from __future__ import annotations

import asyncio
import json
import secrets
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from engine.fake import FakeEngine
from tests.integration.cable import LISTEN_EVERYWHERE, cable_to, in_a_namespace
from tests.integration.conftest import MakeServer
from tests.integration.ear import Ear
from tests.integration.fleet import fleet
from tests.integration.live import PATIENCE_S, House, eventually, house, live_settings
from tests.integration.mailbox import until
from tests.integration.pair import cluster, lame
from worker.client import Client, Gap, Listening, Patience, Speech, TimedAudio, WorkerGone
from worker.connection import BusOptions
from worker.errors import WireError
from worker.sections import NatsSettings, Settings
from worker.wire.events import End
from worker.wire.requests import Open

ROOT = Path(__file__).parents[2]
FAKE = (sys.executable, "-m", "tests.integration.fake_worker")
PINGS = 'ping_interval: "1s"\nping_max: 2\n' + LISTEN_EVERYWHERE
SERVER_NOTICES_S = 3.0
"""With these pings; 15 s with those of the deployed configuration."""
LONG = "word " * 300
SLACK = 3.0
"""A loaded machine takes so many times as long as the table says, at most."""

T = TypeVar("T")


def fake_settings(url: str, **nats: float) -> Settings:
    return live_settings(nats=NatsSettings(url=(url,), embedded="off", **nats))  # type: ignore[arg-type]


def now() -> float:
    return asyncio.get_running_loop().time()


async def within(limit_s: float, awaitable: Awaitable[T]) -> T:
    async with asyncio.timeout(SLACK * limit_s + PATIENCE_S):
        return await awaitable


# --- producers and listeners ------------------------------------------------------------------------------------------


@asynccontextmanager
async def callers(url: str, pool: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, str]]]:
    """A process with sessions, and their names by role."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.callers", url, pool), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            yield process, json.loads(await process.stdout.readline())
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]


async def ends(home: House, name: str, at: float) -> float:
    """Seconds from ``at`` to the end of a session, having been held before if nobody heard it."""
    live = home.service.desk._sessions[name]
    await eventually(lambda: live.over)
    return now() - at


def ended(home: House, reason: str) -> float:
    registry = home.service.telemetry.registry
    assert registry is not None
    return registry.get_sample_value("tts_sessions_ended_total", {"pool": home.pool, "reason": reason}) or 0.0


async def test_callers_who_are_killed_or_cut_off(make_server: MakeServer) -> None:
    """One process is killed, another cut off, each with four sessions; their listeners elsewhere hear how it ends."""
    server = await make_server(extra=PINGS)
    async with (
        cable_to(server.url) as cable,
        house(fake_settings(server.url), load=lambda: FakeEngine(16)) as home,
    ):
        free = home.service.desk._tokens.target
        supervisor = await Ear(await home.client()).attend("*")
        async with (
            callers(server.url, home.pool) as (process, killed),
            callers(cable.url, home.pool) as (_, cut),
        ):
            sessions = {**{f"killed {role}": name for role, name in killed.items()}}
            sessions |= {f"cut {role}": name for role, name in cut.items()}
            lives = {role: home.service.desk._sessions[name] for role, name in sessions.items()}
            at = now()
            process.kill()
            cable.cut()
            for role in ("killed speaking", "killed silent"):
                await within(3.0, eventually(lambda: lives[role].audience.held))  # noqa: B023
            waits = await asyncio.gather(*(ends(home, name, at) for name in sessions.values()))
            took = dict(zip(sessions, waits, strict=True))
            cable.mend()
        limits = {
            "killed speaking": 6.0,
            "killed silent": 6.0,
            "killed pinging": 5.0,
            "killed mute": 6.0,
            "cut speaking": 6.0 + SERVER_NOTICES_S,
            "cut silent": 6.0 + SERVER_NOTICES_S,
            "cut pinging": 5.0,
            "cut mute": 6.0,
        }
        for role, limit_s in limits.items():
            assert took[role] <= SLACK * limit_s, role
        for role in ("killed speaking", "killed silent"):
            assert took[role] >= 3.0, "a listener may come back"
            assert took[role] < took[role.replace("killed", "cut")], "a closed socket is seen sooner"
        assert (ended(home, "gone"), ended(home, "idle")) == (6.0, 2.0)
        said = [event.fields["reason"] for event in supervisor.events if event.kind == "end"]
        assert sorted(said) == ["gone", "gone", "idle", "idle"], "those that he could hear"
        await home.empty()
        await eventually(lambda: home.service.desk._tokens.armed == free)


# --- workers ----------------------------------------------------------------------------------------------------------


class Party:
    """What one caller has at one worker: a producer with text to send, one that waits for audio, one that only asks
    whether the worker is there, and a listener."""

    texting: Speech
    waiting: Speech
    pinging: Speech
    listening: Listening

    @classmethod
    async def meet(cls, client: Client, worker: str) -> Party:
        one = cls()
        one.texting = await opened(client, worker, Open(text="Well, "))
        one.waiting = await opened(client, worker, Open(text=LONG, final=True))
        one.pinging = await opened(client, worker, Open(), pings=True)
        fanned = await opened(client, worker, Open(text=LONG, final=True, fanout=True))
        one.listening = await client.listen(fanned.ready.session)
        await one.listening.begun()
        async for event in one.waiting:
            if isinstance(event, TimedAudio):
                return one
        raise AssertionError("it ended")

    async def farewell(self) -> dict[str, tuple[float, str]]:
        """How long each of them was left in the dark, and what it was told."""
        at = now()
        sources = {name: getattr(self, name) for name in ("texting", "waiting", "pinging", "listening")}
        told = await asyncio.gather(*(gone(source, at) for source in sources.values()))
        return dict(zip(sources, told, strict=True))


async def gone(source: Speech | Listening, at: float) -> tuple[float, str]:
    try:
        async for event in source:
            assert not isinstance(event, End), "nobody is there to say so"
    except WorkerGone as error:
        return now() - at, error.reason
    raise AssertionError("it ended")


async def opened(client: Client, worker: str, request: Open, *, pings: bool = False) -> Speech:
    """At this worker. Where another one got the open, it is asked again."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                speech = await client.open(request, timeout_s=PATIENCE_S, pings=pings)
            except WireError:  # its slots are on their way back from another session
                await asyncio.sleep(0.05)
                continue
            if speech.ready.worker == worker:
                return speech
            await speech.cancel()


async def fills(client: Client, count: int) -> set[str]:
    """Returns when so many sessions can be had at once; the names of their workers."""
    speeches: list[Speech] = []
    async with asyncio.timeout(2 * PATIENCE_S):
        while len(speeches) < count:
            try:
                speeches.append(await client.open(Open()))
            except (WireError, TimeoutError):
                await asyncio.sleep(0.05)
    workers = {speech.ready.worker for speech in speeches}
    for speech in speeches:
        await speech.cancel()
        async for _ in speech:
            pass
    return workers


async def test_workers_who_are_killed_or_cut_off(make_server: MakeServer) -> None:
    """Two at once, and a third that goes on: nobody else's session notices."""
    server = await make_server(extra=PINGS)
    async with cable_to(server.url) as cable, fleet(server.url) as workers, fleet(cable.url) as remote:
        await asyncio.gather(
            workers.start("dying", command=FAKE, flags=("--worker.pool", "dying")),
            workers.start("spare", command=FAKE, flags=("--worker.pool", "remote")),
            remote.start("remote", command=FAKE, slots=5, flags=("--worker.pool", "remote")),
        )
        options = BusOptions((server.url,))
        async with (
            await Client.connect(options, pool="dying") as one,
            await Client.connect(options, pool="remote") as other,
        ):
            left, cut = await Party.meet(one, "dying"), await Party.meet(other, "remote")
            spared = await opened(other, "spare", Open(text=LONG, final=True, pace="fast"))
            await workers.kill("dying")
            cable.cut()
            await asyncio.gather(left.texting.send("more "), cut.texting.send("more "))
            of_left, of_cut = await asyncio.gather(left.farewell(), cut.farewell())
            limits = {"texting": 1.5, "waiting": 3.5, "pinging": 2.5, "listening": 5.5}
            for role, (took, _) in of_left.items():
                assert took <= SLACK * limits[role], role
            assert of_left["texting"][1] == of_left["pinging"][1] == "nobody receives the session's text"
            limits |= {"texting": 3.5, "pinging": 3.5}
            for role, (took, reason) in of_cut.items():
                assert took <= SLACK * limits[role], role
                assert reason.startswith("nothing heard for "), role
            async for event in spared:
                assert not isinstance(event, Gap)
            assert spared.end is not None
            assert spared.end.reason == "finished"

            with pytest.raises(WireError, match="no_capacity"):
                await one.open(Open())
            elsewhere = await other.open(Open(text="Good morning.", final=True))
            assert elsewhere.ready.worker == "spare", "the open that the dead one got is repeated"
            async for _ in elsewhere:
                pass

            cable.mend()
            assert await fills(other, 9) == {"spare", "remote"}, "it is back, with all its slots"


# --- the server -------------------------------------------------------------------------------------------------------


async def test_a_server_that_is_killed_and_comes_back(make_server: MakeServer) -> None:
    """Three sessions live through it: one in mid-sentence, one that waits for text and gets it while nobody is there to
    take it, one with a listener of its own. What is missing is missing visibly; nothing comes twice."""
    server = await make_server()
    async with house(fake_settings(server.url), load=lambda: FakeEngine(8)) as home:
        options = BusOptions((server.url,), reconnect_wait_s=0.05)
        patience = Patience(silence_s=30.0, unheard_s=30.0)
        async with await Client.connect(options, pool=home.pool, patience=patience) as client:
            name = secrets.token_hex(16)
            listening = await client.listen(name)
            waiting = await client.open(Open(text="Well, "), timeout_s=PATIENCE_S)
            speaking = await client.open(Open(text="word " * 12, final=True, seed=1), timeout_s=PATIENCE_S)
            fanned = await client.open(
                Open(text="word " * 12, final=True, seed=1, fanout=True, session=name), timeout_s=PATIENCE_S
            )
            await audio_of(speaking)
            await audio_of(fanned)
            await server.stop(kill=True)
            lives = list(home.service.desk._sessions.values())
            await until(lambda: not client._bus.connected and all(live.audience.offline for live in lives))
            assert all(live.audience.held for live in lives)
            await waiting.send("all the same.")
            await waiting.finish()
            await server.start()
            ends = await asyncio.gather(*(ended_well(one) for one in (waiting, speaking, fanned, listening)))
            whole = await client.open(Open(text="word " * 12, final=True, seed=1, pace="fast"), timeout_s=PATIENCE_S)
            reference = b"".join([event.payload async for event in whole.audio()])
            assert waiting.usage is not None
            assert waiting.usage.characters == len("Well, all the same.")
            for heard in ends[1:]:
                for event in heard:
                    assert event.payload == reference[2 * event.pts : 2 * event.pts + len(event.payload)]
                missing = len(reference) // 2 - sum(len(event.payload) // 2 for event in heard)
                assert missing <= 5 * 1920, "what the server had and did not pass on"
        await home.empty()


async def test_a_server_that_is_to_stop_is_left_in_mid_sentence(make_server: MakeServer) -> None:
    """Worker and callers move to another server of the cluster before it goes; nothing is missing and nothing comes
    twice, text nor audio."""
    staying, leaving = await cluster(make_server)
    async with house(fake_settings(leaving.url, leave_within_s=0.0), load=lambda: FakeEngine(8)) as home:
        options = BusOptions((leaving.url,), move_within_s=0.0)
        async with (
            await Client.connect(options, pool=home.pool) as client,
            await Client.connect(BusOptions((staying.url,)), pool=home.pool) as other,
        ):
            name = secrets.token_hex(16)
            waiting = await client.open(Open(text="Well, ", pace="fast"), timeout_s=PATIENCE_S)
            fanned = await client.open(
                Open(text="word " * 12, final=True, seed=1, fanout=True, session=name), timeout_s=PATIENCE_S
            )
            listening = await other.listen(name)
            await listening.begun()
            await audio_of(fanned)
            lame(leaving)
            texts = [f"number {number} " for number in range(40)]
            for text in texts:
                await waiting.send(text)
                await asyncio.sleep(0.01)
            await until(lambda: home.service.bus.stats.moves == client._bus.stats.moves == 1)
            await leaving.stop(kill=True)
            await waiting.finish()
            heard = [await ended_well(one) for one in (waiting, fanned, listening)]
            assert waiting.usage is not None
            assert waiting.usage.characters == len("Well, " + "".join(texts))
            for audio in heard[1:]:
                numbers = [event.seq for event in audio]
                assert numbers == list(range(numbers[0], heard[1][-1].seq + 1))
            assert home.service.bus.stats.reconnects == client._bus.stats.reconnects == 0
            assert home.service.bus.stats.shed == 0
            again = await client.open(Open(text="Good morning.", final=True), timeout_s=PATIENCE_S)
            await ended_well(again)


async def audio_of(speech: Speech) -> TimedAudio:
    async for event in speech:
        if isinstance(event, TimedAudio):
            return event
    raise AssertionError("it ended")


async def ended_well(source: Speech | Listening) -> list[TimedAudio]:
    heard: list[TimedAudio] = []
    end: End | None = None
    async for event in source:
        if isinstance(event, TimedAudio):
            assert not heard or event.seq > heard[-1].seq
            heard.append(event)
        elif isinstance(event, End):
            end = event
    assert end is not None
    assert end.reason == "finished"
    return heard


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_the_same_where_the_kernel_drops_the_packets() -> None:
    """A silent cut that no program simulates: the tests above in a network namespace with a route to nowhere."""
    tests = f"{shlex.quote(sys.executable)} -m pytest -q -m 'not long' {shlex.quote(__file__)} -k 'killed_or_cut_off'"
    code, output = await in_a_namespace(tests)
    if code == 77:
        pytest.skip("this machine allows no network namespace")
    assert code == 0, output
