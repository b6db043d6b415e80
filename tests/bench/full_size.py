"""Write a random checkpoint with the structure and size of kyutai/tts-1.6b-en_fr, load it, step it, and hold the memory
that this takes against the plan said beforehand.

    python -m tests.bench.full_size FOLDER            # 3.9 GB on disk, and about as much memory; minutes
    python -m tests.bench.full_size FOLDER --tiny     # the same in small, in seconds

Linux only (it reads /proc). The checkpoint is left in FOLDER and used again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from engine.plan import MemoryPlan, plan_memory
from tests.parity import mimi_reference
from tests.parity import tiny_checkpoints as tiny
from tests.parity.test_whole_checkpoint import codec as small_codec

MIB = 2**20


def full_size() -> tiny.Json:
    """Values that third-party parsers of the published file assert; the file itself was not at hand."""
    raw = tiny.published(
        card=2048,
        n_q=32,
        dep_q=32,
        delays=[0, 0] + [2] * 31,
        dim=2048,
        text_card=8000,
        num_heads=16,
        num_layers=16,
        context=500,
        depformer_dim=1024,
        depformer_num_heads=16,
        depformer_num_layers=4,
        depformer_dim_feedforward=3072,
        depformer_context=32,
        depformer_weights_per_step_schedule=[*range(8), *[8] * 8, *[9] * 8, *[10] * 8],
        depformer_low_rank_embeddings=128,
        tts_config={"audio_delay": 1.28, "second_stream_ahead": 2},
    )
    steps = [f"{1 + 0.5 * index:.1f}" for index in range(7)]
    raw["conditioners"] = {
        "speaker_wavs": {"type": "tensor", "tensor": {"dim": 512}},
        "cfg": {"type": "lut", "lut": {"n_bins": 7, "dim": 16, "tokenizer": "noop", "possible_values": steps}},
        "control": {"type": "lut", "lut": {"n_bins": 1, "dim": 2048, "tokenizer": "noop", "possible_values": ["ok"]}},
    }
    return raw


def write_tiny(folder: Path) -> None:
    write(folder, tiny.published(mimi_config_name="mimi.json"), small_codec())


def write(folder: Path, raw: tiny.Json, codec: tiny.Json | None) -> None:
    """bfloat16 but for the conditioners, as published. codec: None for Mimi as published."""
    from moshi.models.loaders import get_moshi_lm

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    if codec is not None:
        (folder / raw["mimi_config_name"]).write_text(json.dumps(codec))
    info = tiny.checkpoint_info(folder, raw)
    # Each conditioner gets "device" and "output_dim" written into its part of the configuration: hence from the file.
    model = get_moshi_lm(None, info.lm_config, device="meta", dtype=torch.bfloat16)
    random = torch.Generator().manual_seed(1)
    weights = {}
    for name, tensor in model.state_dict().items():
        drawn = torch.empty(tensor.shape, dtype=tensor.dtype).normal_(generator=random)
        weights[name] = drawn.fill_(1.0) if name.endswith("alpha") else drawn.mul_(0.5 / tensor.shape[-1] ** 0.5)
    save_file(weights, folder / raw["moshi_name"])
    mimi_reference.write_mimi(folder / raw["mimi_name"], codec, 2)
    (folder / "tokenizer.model").write_bytes(b"")
    (folder / "voices").mkdir(exist_ok=True)
    dim = raw["conditioners"]["speaker_wavs"]["tensor"]["dim"]
    voice = {"speaker_wavs": torch.randn(1, dim, 125, generator=random)}
    save_file(voice, folder / "voices" / "someone.feed@7.safetensors")


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    loaded_s: float
    step_s: float
    """Of the last frame, with all codebooks and the codec."""
    bytes: int
    """Resident, beyond what the imports took."""
    samples: int


def resident() -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(fields["VmRSS"].split()[0]) * 1024


def measure(folder: Path, slots: int) -> Measured:
    """Loads the folder and steps one slot to its first sound. In a process of its own, or the numbers mean nothing."""
    from engine.contract import Entry
    from engine.loading import load_engine

    torch.ones(64, 64) @ torch.ones(64, 64)
    before, clock = resident(), time.perf_counter()
    engine = load_engine(folder, capacity=slots)
    loaded = time.perf_counter() - clock
    for slot in range(slots):
        engine.open(slot, engine.info.defaults)
        engine.kernels.clear(slot)
    engine.push(0, [Entry((5, 6))] * 100)
    samples = 0
    while not samples:
        clock = time.perf_counter()
        samples = len(engine.collect(engine.launch([0]))[0].pcm) // 2
    return Measured(loaded, time.perf_counter() - clock, resident() - before, samples)


def compare(folder: Path, slots: int) -> tuple[MemoryPlan, Measured]:
    plan = plan_memory(folder)
    command = [sys.executable, "-m", "tests.bench.full_size", str(folder), "--measure", str(slots)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return plan, Measured(**json.loads(out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--measure", type=int, metavar="SLOTS", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure is not None:
        print(json.dumps(dataclasses.asdict(measure(asked.folder, asked.measure))))
        return
    if not (asked.folder / "voices").exists():
        if asked.tiny:
            write_tiny(asked.folder)
        else:
            write(asked.folder, full_size(), None)
    plan = plan_memory(asked.folder)
    print(
        f"plan: {plan.parameters / 1e6:.1f} M parameters, {plan.slot_bytes / MIB:.1f} MiB a slot, "
        f"{plan.voice_bytes / MIB:.1f} MiB a voice; {plan.total(asked.slots, 1) / MIB:.0f} MiB for {asked.slots} slots",
        flush=True,
    )
    _plan, found = compare(asked.folder, asked.slots)
    print(
        f"measured: {found.bytes / MIB:.0f} MiB ({found.bytes / plan.total(asked.slots, 1):.3f} of the plan), "
        f"loaded in {found.loaded_s:.1f} s, a frame in {found.step_s:.2f} s, {found.samples} samples"
    )


if __name__ == "__main__":
    main()
