"""How long until the sessions of a worker that dies are heard again from another.

One worker, a process of its own, speaks some sessions at once; a second one is idle. The first is killed (its socket is
closed, which the server sees) or stopped (nothing is closed, and nobody answers). The project's client notices and has
the sessions taken over; the time runs from the signal to the first new audio of each session. ``silence``: how long a
listener who plays from the first audio on hears nothing.

    python -m tests.bench.takeover --sessions 1 2 4 8 16 --cut kill stop
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from tests.integration.fleet import fleet
from worker.client import Client, Speech, TimedAudio
from worker.connection import BusOptions
from worker.embedded import EmbeddedServer
from worker.measure.machine import this_machine
from worker.measure.report import machine_dict
from worker.measure.texts import UTTERANCES
from worker.wire.requests import Open

Cut = Literal["kill", "stop"]
HEARD_S = 5.0
"""Audio of each session before the cut, at least."""
GIVE_UP_S = 30.0
RATE = 24_000


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Of one session, in seconds."""

    heard_again_s: float
    silence_s: float
    spoken_s: float
    """Audio of the generation that was there before, all of which the new worker has to go through."""


@dataclass(frozen=True, slots=True)
class Result:
    cut: Cut
    sessions: int
    takeovers: list[TakeOver]

    def line(self) -> str:
        again = sorted(each.heard_again_s for each in self.takeovers)
        silence = sorted(each.silence_s for each in self.takeovers)
        spoken = max(each.spoken_s for each in self.takeovers)
        return (
            f"{self.cut:4}  {self.sessions:3} sessions of up to {spoken:.0f} s: heard again after "
            f"p50 {middle(again):.2f} s, max {again[-1]:.2f} s; "
            f"silence p50 {middle(silence):.2f} s, max {silence[-1]:.2f} s"
        )


def middle(values: Sequence[float]) -> float:
    return values[len(values) // 2]


class Listener:
    """Plays one session from its first audio on."""

    def __init__(self, speech: Speech) -> None:
        self.speech = speech
        self.enough, self.again = asyncio.Event(), asyncio.Event()
        self._first_at = 0.0
        self._heard = 0
        self._cut_at: float | None = None
        self._numbers = -1
        self.takeover: TakeOver | None = None

    async def run(self) -> None:
        async for event in self.speech:
            if isinstance(event, TimedAudio):
                self._hear(event)

    def cut(self, now: float) -> None:
        self._cut_at = now

    def _hear(self, audio: TimedAudio) -> None:
        self._first_at = self._first_at or audio.at
        if self._cut_at is not None and audio.gen > 0 and self.takeover is None:
            due = self._first_at + self._heard / RATE
            silence = max(0.0, audio.at - max(due, self._cut_at))
            self.takeover = TakeOver(audio.at - self._cut_at, silence, self._heard / RATE)
            self.again.set()
        self._heard = audio.pts + len(audio.payload) // 2
        if self._heard >= HEARD_S * RATE:
            self.enough.set()


async def measure(cut: Cut, sessions: int, slots: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        async with EmbeddedServer(store_dir=Path(folder)) as server, fleet(server.url) as workers:
            await workers.start("first", slots=slots)
            async with await Client.connect(BusOptions((server.url,))) as client:
                listeners = [Listener(await _open(client, index)) for index in range(sessions)]
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(listener.run()) for listener in listeners]
                    await workers.start("second", slots=slots)
                    for listener in listeners:
                        await listener.enough.wait()
                    for listener in listeners:
                        listener.cut(asyncio.get_running_loop().time())
                    workers.signal("first", signal.SIGKILL if cut == "kill" else signal.SIGSTOP)
                    async with asyncio.timeout(GIVE_UP_S):
                        for listener in listeners:
                            await listener.again.wait()
                    for task in tasks:
                        task.cancel()
    return Result(cut, sessions, [listener.takeover for listener in listeners if listener.takeover is not None])


async def _open(client: Client, index: int) -> Speech:
    text = " ".join(UTTERANCES[(index + at) % len(UTTERANCES)] for at in range(40))
    return await client.open(Open(text=text, final=True, resume=True), timeout_s=5.0)


async def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--cut", choices=get_args(Cut), nargs="+", default=["kill", "stop"])
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args(arguments)
    results = []
    for cut in chosen.cut:
        for sessions in chosen.sessions:
            results.append(await measure(cut, sessions, slots=max(4, sessions)))
            print(results[-1].line(), flush=True)
    if chosen.output is not None:
        report = {"machine": machine_dict(this_machine()), "results": [asdict(result) for result in results]}
        await asyncio.to_thread(chosen.output.write_text, json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
