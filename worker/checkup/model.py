"""The model: torch and the device, the native kernels, the checkpoint, and real frames of speech."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from worker.checkup.finding import Finding, Probe, brief, fails, note, skipped, works
from worker.measure.machine import VECTOR_FLAGS, available_bytes, vector_flags
from worker.sections import ModelSettings, Settings
from worker.service import CPU_SLOTS, CUDA_SLOTS, model_folder

if TYPE_CHECKING:
    from torch import Tensor

    from engine.contract import Entry, FrameEngine
    from engine.dsm import DsmEngine

TEXT = "Thank you for calling. One moment, please."
ROWS = 8
FRAMES = 12
AUDIBLE = 64
"""Of int16: a model whose arithmetic has failed says less than that, or nothing."""
RUNTIME_BYTES = 600 * 1024**2
"""What Python and torch take before any model, about."""


def torch_and_device(settings: Settings) -> Sequence[Finding]:
    import torch

    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU only"
    said = f"{torch.__version__} ({built})"
    if chosen_device(settings.model).startswith("cuda"):
        if not torch.version.cuda:
            return [fails("torch", f"{said}; a CUDA device is asked for", "install torch's CUDA build (README)")]
        if not torch.cuda.is_available():
            return [fails("torch", f"{said}; no CUDA device is seen", "install the NVIDIA driver; see nvidia-smi")]
        name = torch.cuda.get_device_name(chosen_device(settings.model))
        return [works("torch", f"{said}; {name}")]
    return [works("torch", f"{said}; speaks on the CPU")]


def kernels(settings: Settings) -> Sequence[Finding]:
    """Builds them if they are not cached: about ten seconds, once a machine."""
    from cuda_ext import build

    if chosen_device(settings.model).startswith("cuda"):
        return [skipped("kernels", "are for the CPU")]
    flags = ", ".join(vector_flags()) or f"none of {', '.join(VECTOR_FLAGS)}"
    began, clock = time.time(), time.perf_counter()
    try:
        library = build.library()
    except build.BuildError as error:
        return [
            note(
                "kernels",
                f"{brief(error)}; speech is several times slower",
                "install g++ (Debian: apt-get install g++) or set CXX to a C++17 compiler",
            )
        ]
    how = f"built in {time.perf_counter() - clock:.1f} s" if library.stat().st_mtime > began - 1 else "cached"
    return [works("kernels", f"{how} with {build.compiler()}; {flags}")]


def speech(settings: Settings) -> Sequence[Finding]:
    """Loads the model as ``serve`` does, and speaks."""
    import torch

    from engine.errors import EngineError, KernelError
    from engine.loading import load_engine

    folder, device = model_folder(settings.model), chosen_device(settings.model)
    if device.startswith("cuda") and not torch.cuda.is_available():
        return [skipped("model", "no such device")]
    threads = torch.get_num_threads()
    torch.set_num_threads(settings.model.threads or 1)
    try:
        clock = time.perf_counter()
        engine = load_engine(folder, capacity=ROWS, device=device, precision=settings.model.precision)
        seconds = time.perf_counter() - clock
        return [_loaded(settings.model, folder, engine, seconds), *spoken(engine, _entries(folder))]
    except EngineError as error:
        remedy = "name a folder with a Kyutai-format checkpoint in ANTIPHON_MODEL__PATH, or builtin"
        if isinstance(error, KernelError):
            remedy = "leave ANTIPHON_MODEL__PRECISION at auto, and see the kernels above"
        return [fails("model", brief(error), remedy), skipped("speech", "no model")]
    finally:
        torch.set_num_threads(threads)


def chosen_device(model: ModelSettings) -> str:
    import torch

    if model.device != "auto":
        return model.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _loaded(model: ModelSettings, folder: Path, engine: DsmEngine, seconds: float) -> Finding:
    size, device = weigh(folder), chosen_device(model)
    slots = model.slots or (CPU_SLOTS if device == "cpu" else CUDA_SLOTS)
    said = (
        f"{engine.info.name}, {size.parameters / 1e6:.1f} M parameters, digest {engine.info.digest[:12]}, "
        f"loaded in {seconds:.1f} s; {size.slot_bytes / 1024**2:.1f} MiB a slot"
    )
    available = free_bytes(device)
    needed = RUNTIME_BYTES + 2 * size.weight_bytes + slots * size.slot_bytes
    if available is not None and needed > available:
        short = f"{slots} slots need about {needed / 1024**3:.1f} GiB, {available / 1024**3:.1f} are free"
        return note("model", f"{said}; {short}", "lower ANTIPHON_MODEL__SLOTS")
    return works("model", said)


def free_bytes(device: str) -> int | None:
    """Of the memory that the slots are in."""
    import torch

    return torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else available_bytes()


@dataclass(frozen=True, slots=True)
class Size:
    parameters: int
    weight_bytes: int
    slot_bytes: int
    """Static buffers of one more slot."""


def weigh(folder: Path) -> Size:
    """Loads the checkpoint once more, but builds the slots on torch's meta device, where they take no memory."""
    import torch

    from engine.checkpoint import load_checkpoint
    from engine.kernels import TorchKernels
    from engine.slots import SlotBuffers

    model, nowhere = load_checkpoint(folder), torch.device("meta")
    weights = list(_tensors((model.backbone, model.depth, model.spectral)))

    def static(slots: int) -> int:
        parts = (SlotBuffers.empty(model.config, slots, nowhere), TorchKernels(model, slots, nowhere, row_by_row=False))
        return sum(tensor.nbytes for part in parts for tensor in _tensors(part))

    return Size(
        parameters=sum(tensor.numel() for tensor in weights),
        weight_bytes=sum(tensor.nbytes for tensor in weights),
        slot_bytes=static(2) - static(1),
    )


def _tensors(part: object) -> Iterator[Tensor]:
    """All of an object's tensors, through tuples, dataclasses and plain attributes."""
    import torch

    if isinstance(part, torch.Tensor):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from _tensors(item)
    elif is_dataclass(part):
        for field in fields(part):
            yield from _tensors(getattr(part, field.name))
    elif hasattr(part, "__dict__"):
        for value in vars(part).values():
            yield from _tensors(value)


def _entries(folder: Path) -> list[Entry]:
    """What the front end makes of a sentence."""
    from engine.frontend.normaliser import Normaliser
    from engine.frontend.stream import TextStream
    from engine.frontend.tokenizer import Tokenizer

    stream = TextStream(Normaliser(), Tokenizer(folder / "tokenizer.model"))
    return [piece.entry for piece in (*stream.feed(TEXT), *stream.finish())]


def spoken(
    engine: FrameEngine, entries: Sequence[Entry], clock: Callable[[], float] = time.perf_counter
) -> Sequence[Finding]:
    """``engine`` has ``ROWS`` free slots; ``clock`` in seconds."""
    frames(engine, entries, ROWS, clock)  # finds its memory cold
    alone, several = (frames(engine, entries, rows, clock) for rows in (1, ROWS))
    beat_ms = engine.info.frame_ms
    said = f"a frame of {beat_ms:g} ms takes {alone.typical_ms:.1f} ms alone, {several.typical_ms:.1f} ms for {ROWS}"
    if alone.failed or several.failed or alone.peak < AUDIBLE:
        return [fails("speech", "the model's arithmetic fails on this machine", "please report it with this output")]
    if alone.typical_ms > beat_ms:
        remedy = "install g++ for the native kernels, use a faster machine or a CUDA device, or a smaller model"
        return [fails("speech", f"{said}: slower than it is heard", remedy)]
    if several.typical_ms > beat_ms:
        return [note("speech", f"{said}: fewer than {ROWS} sessions at once", "see antiphon bench --find-limit")]
    return [works("speech", said)]


@dataclass(frozen=True, slots=True)
class Frames:
    typical_ms: float
    peak: int
    """Loudest sample, of int16."""
    failed: bool


def frames(engine: FrameEngine, entries: Sequence[Entry], rows: int, clock: Callable[[], float]) -> Frames:
    """Speak the same text in so many slots at once, for a dozen frames; the delay's cheap steps are not timed."""
    import numpy as np

    slots = range(rows)
    for slot in slots:
        engine.open(slot, engine.info.defaults)
        engine.push(slot, entries)
        engine.finish(slot)
    took_ms: list[float] = []
    peak, over, failed = 0, False, False
    while len(took_ms) < FRAMES and not over:
        whole, began = not engine.in_delay(0), clock()
        done = engine.collect(engine.launch(slots))
        if whole:
            took_ms.append(1000 * (clock() - began))
        failed = any(frame.failed for frame in done)
        over = failed or any(frame.ended or not frame.committed for frame in done)
        sounds = [np.abs(np.frombuffer(frame.pcm, "<i2").astype(np.int32)).max() for frame in done if frame.pcm]
        peak = max([peak, *map(int, sounds)])
    for slot in slots:
        engine.close(slot)
    return Frames(statistics.median(took_ms) if took_ms else 0.0, peak, failed)


PROBES = (
    Probe("torch", torch_and_device, "install torch (README, Installing)"),
    Probe("kernels", kernels, "the kernels' cache folder must be writable (XDG_CACHE_HOME)"),
    Probe("model", speech, "the model cannot be used; try ANTIPHON_MODEL__PATH=builtin"),
)
