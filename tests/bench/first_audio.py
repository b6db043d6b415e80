"""Time to first audio through NATS on an idle machine: ``python -m tests.bench.first_audio [--opens N] [--json F]``.

One session after another, each with a text of its own: from just before the open is published to the first audio
message; then the session is cancelled. Five runs, and of these the best by p99 and the median one, each beside the p99
wake-up delay of an idle process in the same run: what the machine adds by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from worker.client_events import TimedAudio
from worker.measure.machine import this_machine
from worker.measure.report import machine_dict
from worker.measure.rig import Rig, rigged
from worker.measure.spread import Spread
from worker.measure.texts import UTTERANCES
from worker.settings import load
from worker.wire.requests import Open


@dataclass(frozen=True, slots=True)
class Run:
    """Milliseconds."""

    p50: float
    p95: float
    p99: float
    longest: float
    wake_p99: float
    """How late an idle process woke, in the same run."""
    wake_longest: float


async def first_audio(rig: Rig, text: str, seed: int) -> float:
    """Seconds from before the open to the first audio."""
    async with await rig.client.open(Open(text=text, final=True, seed=seed), timeout_s=5.0) as speech:
        async for event in speech:
            if isinstance(event, TimedAudio):
                await speech.cancel()
                return event.at - speech.opened_at
    raise RuntimeError("a session ended without audio")


async def run(rig: Rig, opens: int) -> Run:
    await rig.control.lap()
    taken = [await first_audio(rig, rig.texts[n % len(rig.texts)], n) for n in range(opens)]
    idle, spread = await rig.control.lap(), Spread.of(taken)
    assert spread is not None
    times = (spread.p50, spread.p95, spread.p99, spread.max, idle.p99_s, idle.max_s)
    return Run(*(round(1000 * seconds, 1) for seconds in times))


async def measure(runs: int, opens: int) -> list[Run]:
    async with rigged(load(), UTTERANCES, own=True) as rig:
        await rig.warm_up()
        return [await rig.guarded(run(rig, opens)) for _ in range(runs)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--opens", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    runs = asyncio.run(measure(options.runs, options.opens))
    for each in runs:
        print(each)
    ranked = sorted(runs, key=lambda each: each.p99)
    print(f"best:   {ranked[0]}\nmedian: {ranked[len(ranked) // 2]}")
    if options.json:
        figures = {
            "machine": machine_dict(this_machine()),
            "opens": options.opens,
            "runs": [asdict(each) for each in runs],
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
