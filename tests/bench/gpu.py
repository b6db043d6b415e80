"""Everything that a CUDA device is to show, in one run of under ten minutes:

    python -m tests.bench.gpu --json gpu.json                 # on a machine with a GPU, from a checkout
    python -m tests.bench.gpu --device cpu --small            # the same stages in small, anywhere

Builds the kernels, holds captured steps against plain ones and both against the CPU, sweeps the buckets with the
built-in voice and with the full 1.6 B configuration (random weights, 3.9 GB in --folder), and measures the time to the
first audio through NATS. Every stage is a process of its own with a time of its own: one that fails, hangs or breaks
the device costs the others nothing, and what is known so far is in the file after each.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

TOTAL_S = 560.0
LEAST_S = 5.0
"""A stage with less time than this left is not begun."""
Figures = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    device: str
    small: bool
    folder: Path
    """Of the full-size checkpoint."""

    @property
    def sizes(self) -> tuple[int, ...]:
        return (1, 2) if self.small else (1, 4, 16, 64, 128, 256)

    @property
    def repeats(self) -> int:
        return 2 if self.small else 40


# -- stages: each runs in a process of its own -------------------------------------------------------------------------


def environment(asked: Asked) -> Figures:
    import torch

    found: Figures = {"torch": torch.__version__, "cuda": torch.version.cuda, "cores": len(os.sched_getaffinity(0))}
    if asked.device.startswith("cuda"):
        free, total = torch.cuda.mem_get_info()
        found |= {"device": torch.cuda.get_device_name(), "capability": list(torch.cuda.get_device_capability())}
        found |= {"free_bytes": free, "total_bytes": total}
    return found


def build(asked: Asked) -> Figures:
    """The kernels: nvcc's for a device, the C++ compiler's for the CPU."""
    from cuda_ext import toolkit

    began = time.perf_counter()
    library = toolkit.device_library() if asked.device.startswith("cuda") else toolkit.twin_library()
    return {"library": library.name, "seconds": time.perf_counter() - began}


def against_cpu(asked: Asked, kernels: str = "torch") -> Figures:
    """Plain steps of the built-in voice on the device and on the CPU, float32, with the same tokens forced."""
    from engine.loading import load_engine
    from engine.trial import parity

    rows = 2 if asked.small else 4
    here = load_engine(capacity=rows, kernels="torch", steps="plain")
    there = load_engine(capacity=rows, device=asked.device, kernels=_kind(kernels), steps="plain")
    steps = here.config.warm_up_steps + (2 if asked.small else 24)
    return dataclasses.asdict(parity(here, there, rows, steps))


def phases_against_cpu(asked: Asked) -> Figures:
    return against_cpu(asked, "native" if asked.device.startswith("cuda") else "torch")


def replay(asked: Asked, kernels: str = "torch") -> Figures:
    """Captured steps against plain ones on the device: speech, byte for byte."""
    from engine.contract import Entry
    from engine.loading import load_engine
    from engine.trial import spoken

    sizes = asked.sizes[:1] if asked.small else (1, 4, 16)
    text = [Entry((40 + i, 200 + i)) for i in range(1 if asked.small else 12)]
    captured = load_engine(capacity=max(sizes), device=asked.device, kernels=_kind(kernels), steps="graphs")
    plain = load_engine(capacity=max(sizes), device=asked.device, kernels=_kind(kernels), steps="plain")
    equal = {}
    for rows in sizes:
        want, got = (spoken(engine, text, rows) for engine in (plain, captured))
        equal[rows] = sum(one == other and len(one) > 0 for one, other in zip(want, got, strict=True))
    return {"equal_rows": equal, "captured": str(captured.captured)}


def builtin_sweep(asked: Asked, kernels: str = "torch") -> Figures:
    from engine.loading import load_engine

    return _swept(
        asked, load_engine(capacity=max(asked.sizes), device=asked.device, kernels=_kind(kernels), steps="graphs")
    )


def builtin_sweep_phases(asked: Asked) -> Figures:
    return builtin_sweep(asked, "native" if asked.device.startswith("cuda") else "torch")


def write_full(asked: Asked) -> Figures:
    """The random checkpoint on disk, with the built-in voice's tokenizer, so that it can be served."""
    from engine.loading import BUILTIN, tokenizer_file
    from tests.bench import full_size

    began = time.perf_counter()
    if not (asked.folder / "voices").exists():
        if asked.small:
            full_size.write_tiny(asked.folder)
        else:
            full_size.write(asked.folder, full_size.full_size(), None)
        (asked.folder / "tokenizer.model").write_bytes(tokenizer_file(BUILTIN).read_bytes())
    return {"seconds": time.perf_counter() - began}


def full_sweep(asked: Asked, kernels: str = "torch") -> Figures:
    from engine.loading import load_engine

    began = time.perf_counter()
    sizes = asked.sizes if asked.small else (1, 16, 64, 256)
    engine = load_engine(asked.folder, capacity=max(sizes), device=asked.device, kernels=_kind(kernels), steps="graphs")
    return {"load_s": time.perf_counter() - began, **_swept(asked, engine, sizes)}


def full_sweep_phases(asked: Asked) -> Figures:
    return full_sweep(asked, "native" if asked.device.startswith("cuda") else "torch")


def first_audio(asked: Asked, path: str = "builtin") -> Figures:
    """Through NATS, server and worker each a process: one session after the other, then many at once."""
    found = {}
    loads = ((1, 3.0),) if asked.small else ((1, 10.0), (64, 12.0))
    for sessions, seconds in loads:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "bench.json"
            command = [sys.executable, "-m", "worker.cli.main", "bench", "--sessions", str(sessions)]
            command += ["--seconds", str(seconds), "--idle-seconds", "0.5", "--json", str(out)]
            settings = {"ANTIPHON_MODEL__DEVICE": asked.device, "ANTIPHON_MODEL__PATH": path}
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings})
            if done.returncode:
                raise RuntimeError(done.stderr.strip()[-800:])
            found[str(sessions)] = _heard(json.loads(out.read_text()))
    return found


def full_first_audio(asked: Asked) -> Figures:
    return first_audio(
        asked, "builtin" if asked.small else str(asked.folder)
    )  # the small one's rate is no sound card's


def _heard(document: Mapping[str, Any]) -> Figures:
    """Of the report of ``antiphon bench``: what concerns promptness."""
    runs = document["runs"]
    wanted = ("outcomes", "first_audio_ms", "lateness_ms", "underruns", "audio_s", "machine_stalls")
    return {key: runs[0][key] for key in wanted}


def _swept(asked: Asked, engine: Any, sizes: Sequence[int] | None = None) -> Figures:
    """Step times by rows, over the roofline where the device is known, and the live sessions that they predict."""
    import torch

    from engine import roofline
    from engine.kernels import TorchKernels
    from engine.trial import step_time

    assert isinstance(engine.kernels, TorchKernels)
    frame = roofline.work(engine.config, engine.codec, engine.kernels.weight_bytes)
    known = roofline.hardware(torch.cuda.get_device_name()) if asked.device.startswith("cuda") else None
    steps = []
    for rows in sizes or asked.sizes:
        time_of = step_time(engine, rows, asked.repeats)
        line = {**dataclasses.asdict(time_of)}
        if known is not None:
            line |= {"floor_s": (least := roofline.floor(frame, known, rows).total), "over": time_of.full_s / least}
        steps.append(line)
    limit_s = 0.7 * engine.info.frame_ms / 1000
    live = roofline.rows_measured({line["rows"]: line["full_s"] for line in steps}, limit_s)
    return {"captured": str(engine.captured), "steps": steps, "live_sessions_by_time": live}


def _kind(kernels: str) -> Any:
    return kernels


STAGES: dict[str, tuple[Callable[[Asked], Figures], float]] = {
    "environment": (environment, 30.0),
    "build": (build, 120.0),
    "against_cpu": (against_cpu, 60.0),
    "replay": (replay, 60.0),
    "builtin_sweep": (builtin_sweep, 60.0),
    "first_audio": (first_audio, 90.0),
    "phases_against_cpu": (phases_against_cpu, 60.0),
    "builtin_sweep_phases": (builtin_sweep_phases, 60.0),
    "write_full": (write_full, 150.0),
    "full_sweep": (full_sweep, 120.0),
    "full_sweep_phases": (full_sweep_phases, 120.0),
    "full_first_audio": (full_first_audio, 130.0),
}
"""In this order, each with the seconds that it may take: what is surest and cheapest first."""


# -- the run -----------------------------------------------------------------------------------------------------------


def run(
    asked: Asked,
    stages: Sequence[str],
    report: Callable[[str, Figures], None],
    total_s: float = TOTAL_S,
    limit_s: Callable[[str], float] = lambda stage: STAGES[stage][1],
) -> dict[str, Figures]:
    """Never raises for what happens in a stage: it is the stage's result."""
    found: dict[str, Figures] = {}
    began = time.monotonic()
    for stage in stages:
        left = min(limit_s(stage), total_s - (time.monotonic() - began))
        found[stage] = attempt(asked, stage, left) if left >= LEAST_S else {"skipped": "no time is left"}
        report(stage, found[stage])
    return found


def attempt(asked: Asked, stage: str, limit_s: float) -> Figures:
    command = [sys.executable, "-m", "tests.bench.gpu", "--stage", stage, "--device", asked.device]
    command += ["--folder", str(asked.folder), *(["--small"] if asked.small else [])]
    began = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {limit_s:.0f} s"}
    took = {"took_s": round(time.monotonic() - began, 1)}
    if done.returncode:
        return {"failed": done.stderr.strip()[-1500:] or f"exit code {done.returncode}", **took}
    result: Figures = json.loads(done.stdout.splitlines()[-1])
    return {**result, **took}


def lines(stage: str, figures: Figures) -> list[str]:
    """A stage for people."""
    if "failed" in figures or "skipped" in figures:
        said = str(figures.get("failed", figures.get("skipped"))).splitlines()
        return [f"!! {stage}: {said[-1] if said else 'failed'}"]
    if stage.endswith("first_audio"):
        heard = [(n, f["first_audio_ms"], f) for n, f in figures.items() if isinstance(f, dict)]
        return [
            f"ok {stage}: {n} at once: p50 {ms['p50']:.0f} ms, p99 {ms['p99']:.0f} ms, {f['underruns']} underruns"
            for n, ms, f in heard
        ]
    if "steps" not in figures:
        return [f"ok {stage}: " + ", ".join(f"{name} {value}" for name, value in figures.items())]
    out = [f"ok {stage}: {figures['captured']}; live sessions by time: {figures['live_sessions_by_time']}"]
    out.append(
        f"   {'rows':>5} {'frame ms':>9} {'text ms':>8} {'alone ms':>9} {'host ms':>8} {'floor ms':>9} {'over':>6}"
    )
    for step in figures["steps"]:
        numbers = [1000 * step[name] for name in ("full_s", "text_s", "alone_s", "host_s")]
        floor = f"{1000 * step['floor_s']:9.2f} {step['over']:6.1f}" if "floor_s" in step else f"{'-':>9} {'-':>6}"
        out.append("   {:5d} {:9.2f} {:8.2f} {:9.2f} {:8.2f} ".format(step["rows"], *numbers) + floor)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "antiphon-full-size")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default=",".join(STAGES), help="stages, by name")
    parser.add_argument("--seconds", type=float, default=TOTAL_S, help="for all stages together")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    asked = Asked(options.device, options.small, options.folder)
    if options.stage:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        print(json.dumps(STAGES[options.stage][0](asked)))
        return
    found: dict[str, Figures] = {}

    def report(stage: str, figures: Figures) -> None:
        found[stage] = figures
        print("\n".join(lines(stage, figures)), flush=True)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n")

    run(asked, options.only.split(","), report, options.seconds)


if __name__ == "__main__":
    main()
