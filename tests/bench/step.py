"""The fused step against the reference, interleaved in one run: ``python -m tests.bench.step [--json F] [--plot F]``.

Ours is the whole frame (LM, text machine, codec, int16, host side); the reference is moshi's ``LMGen`` alone, on the
same weights in its fastest dtype here. Each figure is the median over repeats of the mean over a few frames; a repeat
measures every case once, in turn, so that a slow moment of the machine falls on all of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("NO_TORCH_COMPILE", "1")

import torch

from engine.contract import Entry
from engine.dsm import DsmEngine
from engine.loading import BUILTIN, load_engine

Case = tuple[str, int]
"""What runs, and its rows."""


def words(count: int) -> list[Entry]:
    return [Entry((10 + 7 * i % 2000, 11 + 5 * i % 2000)) for i in range(count)]


class OurStep:
    """Rows in the middle of their speech; they are opened again before their text or the ring's growth runs out."""

    def __init__(self, engine: DsmEngine, rows: int) -> None:
        self._engine, self._rows = engine, range(rows)

    def prepare(self) -> None:
        for slot in self._rows:
            self._engine.open(slot, dataclasses.replace(self._engine.info.defaults, seed=slot))
            self._engine.push(slot, words(200))
        for _ in range(12):
            self.frame()

    def frame(self) -> None:
        self._engine.collect(self._engine.launch(self._rows))


class ReferenceStep:
    """moshi's LMGen as it runs: the whole batch each step, no text machine, no codec."""

    def __init__(self, rows: int, dtype: torch.dtype) -> None:
        from moshi.models.lm import LMGen

        from tests.parity.reference import ReferenceVoice

        voice = ReferenceVoice.load(BUILTIN, dtype)
        self._generator = LMGen(voice.model, temp=0.4, temp_text=0.6, top_k=100, top_k_text=25)
        self._rows = rows
        self._nothing = torch.empty((rows, 0, 1), dtype=torch.long)
        self._streaming = self._generator.streaming(rows)
        self._streaming.__enter__()

    def prepare(self) -> None:
        for _ in range(3):
            self.frame()

    def frame(self) -> None:
        with torch.no_grad():
            self._generator.step(self._nothing)


def seconds(frame: Callable[[], None], frames: int) -> float:
    start = time.perf_counter()
    for _ in range(frames):
        frame()
    return (time.perf_counter() - start) / frames


def measure(batches: list[int], repeats: int, frames: int) -> dict[str, dict[int, float]]:
    """Milliseconds a frame, by what ran and its rows."""
    cases: dict[Case, OurStep | ReferenceStep] = {}
    for precision in ("float32", "fixed16"):
        engine = load_engine(capacity=max(batches), kernels="native", precision=precision)
        cases |= {(precision, rows): OurStep(engine, rows) for rows in batches}
    cases |= {("moshi float32", rows): ReferenceStep(rows, torch.float32) for rows in batches}
    cases |= {("moshi bfloat16", rows): ReferenceStep(rows, torch.bfloat16) for rows in batches}
    taken: dict[Case, list[float]] = {case: [] for case in cases}
    for _ in range(repeats):
        for case, step in cases.items():
            step.prepare()
            taken[case].append(1000 * seconds(step.frame, frames))
    table: dict[str, dict[int, float]] = {}
    for (name, rows), values in taken.items():
        table.setdefault(name, {})[rows] = statistics.median(values)
    return table


def plot(table: dict[str, dict[int, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    for name, line in table.items():
        axes.plot(list(line), list(line.values()), marker="o", label=name)
    axes.axhline(80.0, color="grey", linestyle=":", label="the beat")
    axes.set(
        xlabel="rows", ylabel="ms a frame", xscale="log", yscale="log", title="One fused step (ours: LM and codec)"
    )
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1,4,16,32,64")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--frames", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    batches = [int(rows) for rows in options.rows.split(",")]
    table = measure(batches, options.repeats, options.frames)
    print(f"{'ms a frame':16}" + "".join(f"{f'B={rows}':>9}" for rows in batches))
    for name, line in table.items():
        print(f"{name:16}" + "".join(f"{line[rows]:9.2f}" for rows in batches))
    best = {rows: min(line[rows] for name, line in table.items() if name.startswith("moshi")) for rows in batches}
    for name in ("float32", "fixed16"):
        print(f"{'x ' + name:16}" + "".join(f"{best[rows] / table[name][rows]:9.2f}" for rows in batches))
    if options.json:
        options.json.write_text(json.dumps({"ms": table, "threads": torch.get_num_threads()}, indent=1))
    if options.plot:
        plot(table, options.plot)


if __name__ == "__main__":
    main()
