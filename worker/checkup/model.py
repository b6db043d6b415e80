"""The model: torch and the device, the native kernels, the memory it takes, the checkpoint, and real frames."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.hub import HUB
from worker.checkup.finding import Finding, Probe, brief, fails, note, skipped, works
from worker.measure.machine import VECTOR_FLAGS, available_bytes, vector_flags
from worker.sections import ModelSettings, Settings
from worker.service import model_folder, slots_of

if TYPE_CHECKING:
    from torch import Tensor

    from engine.contract import Entry, FrameEngine
    from engine.dsm import DsmEngine
    from engine.errors import EngineError
    from engine.plan import MemoryPlan

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
    """Builds them if they are not cached: about ten seconds, once a machine (nvcc: half a minute)."""
    from cuda_ext import build

    if chosen_device(settings.model).startswith("cuda"):
        return [skipped("kernels", "no device")] if _no_device(settings.model) else [cuda_kernels()]
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


def cuda_kernels() -> Finding:
    from cuda_ext import build, toolkit

    try:
        return works("kernels", f"built with {toolkit.nvcc()}: {toolkit.device_library().name}")
    except build.BuildError as error:
        said = f"{brief(error)}; torch computes in the place of our kernels"
        return note("kernels", said, "install the CUDA toolkit, or set NVCC to its compiler")


def memory(settings: Settings) -> Sequence[Finding]:
    """What a model with Mimi will take, said before anything is loaded. Blocks for as long as a download takes."""
    from engine.errors import EngineError

    if _no_device(settings.model):
        return []
    try:
        plan = planned(settings.model, model_folder(settings.model))
    except EngineError:
        return []  # the next probe meets the same, and says it
    return [] if plan is None else [held_against(plan, settings.model, free_bytes(chosen_device(settings.model)))]


def planned(model: ModelSettings, folder: Path) -> MemoryPlan | None:
    """None for a model with the spectral codec, which is weighed when it is loaded. Raises EngineError."""
    import torch

    from engine.plan import plan_memory

    if (folder / "codec.json").exists():
        return None
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(model.precision)
    return plan_memory(folder, model.codebooks, dtype=dtype, int8=model.precision == "int8")


def held_against(plan: MemoryPlan, model: ModelSettings, free: int | None) -> Finding:
    """free: bytes; None: the system does not tell."""
    said = (
        f"{plan.parameters / 1e6:.1f} M parameters, {_size(plan.held(0))} of weights, tables and codec, "
        f"{_size(plan.slot_bytes)} a slot, {_size(plan.voice_bytes)} a voice"
    )
    if free is None:
        return works("plan", said)
    fit, slots = plan.slots_that_fit(free), _slots(model)
    said = f"{said}; {fit} slots fit into {_size(free)} that are free"
    if not fit:
        return fails("plan", said, "free some memory, set ANTIPHON_MODEL__PRECISION=int8, or take a smaller model")
    if fit < slots:
        return note("plan", f"{said}, {slots} are wanted", f"set ANTIPHON_MODEL__SLOTS to {fit} or less")
    return works("plan", said)


def speech(settings: Settings) -> Sequence[Finding]:
    """Loads the model as ``serve`` does, if it fits, and speaks."""
    import torch

    from engine.errors import EngineError
    from engine.loading import load_engine

    model = settings.model
    if _no_device(model):
        return [skipped("model", "no such device")]
    device, threads = chosen_device(model), torch.get_num_threads()
    torch.set_num_threads(model.threads or 1)
    try:
        folder = model_folder(model)
        plan, free = planned(model, folder), free_bytes(device)
        rows = ROWS if plan is None or free is None else min(ROWS, plan.slots_that_fit(free))
        if not rows:
            return [skipped("model", "does not fit"), skipped("speech", "no model")]
        clock = time.perf_counter()
        engine = load_engine(
            folder,
            capacity=rows,
            device=device,
            precision=model.precision,
            voices=model.voice_place,
            codebooks=model.codebooks,
            threads=model.threads,
        )
        seconds = time.perf_counter() - clock
        loaded = _weighed(model, folder, engine, seconds) if plan is None else _loaded(engine, seconds)
        return [loaded, *spoken(engine, entries_of(folder))]
    except EngineError as error:
        return [fails("model", brief(error), _remedy(error, model)), skipped("speech", "no model")]
    finally:
        torch.set_num_threads(threads)


def _remedy(error: EngineError, model: ModelSettings) -> str:
    from engine.errors import CheckpointError, KernelError, UnusableVoice, VoiceNotFound

    if isinstance(error, KernelError):
        return "leave ANTIPHON_MODEL__PRECISION at auto, and see the kernels above"
    place = model.voice_place
    voices = {place, str(Path(place))} if place else set()
    if isinstance(error, UnusableVoice | VoiceNotFound) or (
        isinstance(error, CheckpointError) and error.path in voices
    ):
        return "name a folder or hf:// repository with the model's voices in ANTIPHON_MODEL__VOICES"
    if model.path.startswith(HUB):
        return "fetch the files where the hub is in reach (HF_TOKEN, HF_HOME), or name a folder in ANTIPHON_MODEL__PATH"
    return "name a folder with a Kyutai-format checkpoint in ANTIPHON_MODEL__PATH, or builtin"


def _no_device(model: ModelSettings) -> bool:
    import torch

    return chosen_device(model).startswith("cuda") and not torch.cuda.is_available()


def chosen_device(model: ModelSettings) -> str:
    import torch

    if model.device != "auto":
        return model.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _slots(model: ModelSettings) -> int:
    return slots_of(model, chosen_device(model))


def _size(size_bytes: int) -> str:
    gigabytes, megabytes = size_bytes / 1024**3, size_bytes / 1024**2
    return f"{gigabytes:.1f} GiB" if gigabytes >= 1 else f"{megabytes:.1f} MiB"


def _loaded(engine: DsmEngine, seconds: float) -> Finding:
    info = engine.info
    return works(
        "model", f"{info.name}, {len(info.voices)} voices, digest {info.digest[:12]}, loaded in {seconds:.1f} s"
    )


def _weighed(model: ModelSettings, folder: Path, engine: DsmEngine, seconds: float) -> Finding:
    size, device, slots = weigh(folder), chosen_device(model), _slots(model)
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


def entries_of(folder: Path) -> list[Entry]:
    """What the front end makes of a sentence."""
    from engine.frontend.normaliser import Normaliser
    from engine.frontend.stream import TextStream
    from engine.frontend.tokenizer import Tokenizer
    from engine.loading import tokenizer_file

    stream = TextStream(Normaliser(), Tokenizer(tokenizer_file(folder)))
    return [piece.entry for piece in (*stream.feed(TEXT), *stream.finish())]


def spoken(
    engine: FrameEngine, entries: Sequence[Entry], clock: Callable[[], float] = time.perf_counter
) -> Sequence[Finding]:
    """All slots of ``engine`` are free; ``clock`` in seconds."""
    most = min(ROWS, engine.capacity)
    frames(engine, entries, most, clock)  # finds its memory cold
    alone, several = (frames(engine, entries, rows, clock) for rows in (1, most))
    beat_ms = engine.info.frame_ms
    said = f"a frame of {beat_ms:g} ms takes {alone.typical_ms:.1f} ms alone, {several.typical_ms:.1f} ms for {most}"
    if alone.failed or several.failed or alone.peak < AUDIBLE:
        return [fails("speech", "the model's arithmetic fails on this machine", "please report it with this output")]
    if alone.typical_ms > beat_ms:
        remedy = "install g++ for the native kernels, use a faster machine or a CUDA device, or a smaller model"
        return [fails("speech", f"{said}: slower than it is heard", remedy)]
    if several.typical_ms > beat_ms:
        return [note("speech", f"{said}: fewer than {most} sessions at once", "see antiphon bench --find-limit")]
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
    Probe("plan", memory, "the model cannot be used; try ANTIPHON_MODEL__PATH=builtin"),
    Probe("model", speech, "the model cannot be used; try ANTIPHON_MODEL__PATH=builtin"),
)
