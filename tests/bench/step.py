"""The fused step against the reference, interleaved in one run: ``python -m tests.bench.step [--json F] [--plot F]``.

Ours is the whole frame (LM, text machine, codec, int16, host side), and the LM alone (the same call with the codec left
out); the reference is moshi's ``LMGen``, LM alone, on the same weights in each of its dtypes. Both use the machine's
cores. Each figure is the median over repeats of the mean over a few frames; a repeat measures every case once, in turn,
so that a slow moment of the machine falls on all of them.

Two more curves: what a frame costs as its sessions grow longer (flat once the ring of keys is full), and a bound: the
time that the multiplications alone would take at the best rate seen here.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("NO_TORCH_COMPILE", "1")

import torch

from cuda_ext import kernels as k
from engine.contract import Entry
from engine.dsm import DsmEngine
from engine.loading import BUILTIN, load_engine
from engine.native_runner import NativeRunner
from tests.bench.step_plot import plot

Table = dict[str, dict[int, float]]
"""Milliseconds a frame, by what ran and its rows (or the steps that its sessions have gone)."""
NEVER = 2**31 - 1
REFERENCE = "moshi "


def words(count: int) -> list[Entry]:
    return [Entry((10 + 7 * i % 2000, 11 + 5 * i % 2000)) for i in range(count)]


class OurStep:
    """Rows in the middle of their speech; they are opened again before their text or the ring's growth runs out."""

    def __init__(self, engine: DsmEngine, rows: int) -> None:
        self._engine, self._rows = engine, range(rows)

    def prepare(self, steps: int = 12) -> None:
        for slot in self._rows:
            self._engine.open(slot, dataclasses.replace(self._engine.info.defaults, seed=slot))
            self._engine.push(slot, words(200 + steps))
        for _ in range(steps):
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


def without_codec(engine: DsmEngine) -> DsmEngine:
    """An engine whose sessions never leave their warm-up, so that no sound is made."""
    runner = engine._runner
    assert isinstance(runner, NativeRunner)
    runner._frame.warm_up = NEVER
    return engine


def seconds(frame: Callable[[], None], frames: int) -> float:
    start = time.perf_counter()
    for _ in range(frames):
        frame()
    return (time.perf_counter() - start) / frames


def measure(batches: Sequence[int], repeats: int, frames: int) -> Table:
    cases: dict[tuple[str, int], OurStep | ReferenceStep] = {}
    for precision in ("fixed16", "int8", "float32"):
        engine = load_engine(capacity=max(batches), kernels="native", precision=precision)
        cases |= {(precision, rows): OurStep(engine, rows) for rows in batches}
    mute = without_codec(load_engine(capacity=max(batches), kernels="native", precision="fixed16"))
    cases |= {("fixed16 LM", rows): OurStep(mute, rows) for rows in batches}
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        cases |= {(REFERENCE + name, rows): ReferenceStep(rows, dtype) for rows in batches}
    taken: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    for _ in range(repeats):
        for case, step in cases.items():
            step.prepare()
            taken[case].append(1000 * seconds(step.frame, frames))
    table: Table = {}
    for (name, rows), values in taken.items():
        table.setdefault(name, {})[rows] = round(statistics.median(values), 3)
    return table


def by_length(rows: Sequence[int], most: int = 500, stride: int = 25) -> Table:
    """The least of each stride's frames, as sessions grow from their first step on."""
    table: Table = {}
    for count in rows:
        engine = load_engine(capacity=count, kernels="native", precision="fixed16")
        step = OurStep(engine, count)
        step.prepare(0)
        for slot in range(count):
            engine.push(slot, words(most))
        line = table.setdefault(f"B = {count}", {})
        for start in range(0, most, stride):
            line[start + stride] = round(1000 * min(seconds(step.frame, 1) for _ in range(stride)), 3)
    return table


def bound(batches: Sequence[int]) -> dict[int, float]:
    """Milliseconds that the products of a frame (three of whole numbers each) would take on all cores at the best rate
    of a product whose operands stay in the first cache."""
    packer = k.Packer.empty(k.FIXED_16)
    inner, outer, rows = 128, 64, 64
    matrix, x, y = packer.linear(torch.randn(outer, inner)), torch.randn(rows, inner), torch.empty(rows, outer)
    lib = k.load()

    def product() -> None:
        for _ in range(50):
            lib.antiphon_linear(ctypes.addressof(matrix), rows, x.data_ptr(), inner, y.data_ptr(), outer)

    rate = 50 * rows * inner * outer / min(seconds(product, 1) for _ in range(40))
    macs = products_of_a_row()
    return {rows: round(1000 * macs * rows / rate / len(os.sched_getaffinity(0)), 3) for rows in batches}


def products_of_a_row() -> int:
    """Multiplications of matrices with vectors in one frame of the built-in voice."""
    from engine.checkpoint import load_checkpoint

    model = load_checkpoint(BUILTIN)
    layers = sum(w.numel() for layer in model.backbone.layers for w in (layer.qkv, layer.out, layer.up, layer.down))
    depth = 0
    for book, group in enumerate(model.config.depth_schedule):
        each = [w[group].numel() for layer in model.depth.layers for w in (layer.qkv, layer.out, layer.up, layer.down)]
        depth += sum(each) + model.depth.inputs[group].numel() + model.depth.heads[book].numel()
    s, count = model.spectral, model.codec.subframes
    blocks = sum(b.up.numel() + b.down.numel() for b in s.frame_blocks) + count * sum(
        b.up.numel() + b.down.numel() for b in s.sub_blocks
    )
    return layers + depth + blocks + s.project[0].numel() + s.expand[0].numel() + count * s.head[0].numel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1,4,16,32,64")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--frames", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))  # moshi's; ours brings its own
    batches = [int(rows) for rows in options.rows.split(",")]
    table = measure(batches, options.repeats, options.frames)
    best = {rows: min(line[rows] for name, line in table.items() if name.startswith(REFERENCE)) for rows in batches}
    ours = [name for name in table if not name.startswith(REFERENCE)]
    ratios = {name: {rows: round(best[rows] / table[name][rows], 2) for rows in batches} for name in ours}
    least, length = bound(batches), by_length([1, max(1, batches[-1] // 2)])
    print(f"{'ms a frame':18}" + "".join(f"{f'B={rows}':>9}" for rows in batches))
    for name, line in {**table, "products alone": least}.items():
        print(f"{name:18}" + "".join(f"{line[rows]:9.2f}" for rows in batches))
    for name, ratio in ratios.items():
        print(f"{'x ' + name:18}" + "".join(f"{ratio[rows]:9.2f}" for rows in batches))
    for name, line in length.items():
        print(f"{name:18}" + "".join(f"{f'{step}: {ms:.2f}':>12}" for step, ms in list(line.items())[::4]))
    if options.json:
        result = {"ms": table, "bound_ms": least, "ratios": ratios, "by_length_ms": length}
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if options.plot:
        plot({**table, "products alone": least}, length, options.plot)


if __name__ == "__main__":
    main()
