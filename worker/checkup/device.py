"""A CUDA device: graphs, parity with the CPU, and the time of a step against what the device could do at best."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from worker.checkup.finding import Finding, Probe, brief, fails, note, works
from worker.checkup.model import chosen_device, entries_of, free_bytes, planned
from worker.sections import ModelSettings, Settings
from worker.service import CUDA_SLOTS, model_folder

if TYPE_CHECKING:
    from engine.dsm import DsmEngine
    from engine.plan import MemoryPlan
    from engine.trial import Parity, StepTime

SWEPT = (1, 4, 16, 64, 128, 256)
PARITY_ROWS, PARITY_STEPS = 4, 24
LOGITS_OFF, SAMPLES_OFF = 2e-3, 66
"""Largest differences between float32 on the device and on the CPU that rounding explains; of int16: a fifth of a
percent of full scale."""


def trial(settings: Settings) -> Sequence[Finding]:
    """Nothing where the model speaks on the CPU. Blocks for a minute or so."""
    import torch

    model = settings.model
    device = chosen_device(model)
    if not device.startswith("cuda") or not torch.cuda.is_available():
        return []
    from engine.errors import EngineError

    try:
        return tried(model, device)
    except (EngineError, RuntimeError) as error:  # CUDA says everything with a RuntimeError
        return [fails("device", brief(error), "please report it with this output; ANTIPHON_MODEL__DEVICE=cpu speaks")]


def tried(model: ModelSettings, device: str, most: int = CUDA_SLOTS) -> list[Finding]:
    """most: slots to try at once. Raises EngineError and, of the device, RuntimeError."""
    from engine.loading import load_engine

    folder = model_folder(model)
    found = [agreement(folder, device)] if (folder / "codec.json").exists() else []
    plan, free = planned(model, folder), free_bytes(device)
    fit = None if plan is None or free is None else fitting(plan, free)
    slots = max(1, min(most if fit is None else fit, model.slots or most))
    engine = load_engine(
        folder,
        capacity=slots,
        device=device,
        precision=model.precision,
        voices=model.voice_place,
        codebooks=model.codebooks,
        steps="graphs",
    )
    found.append(captures(engine))
    found.append(same_sound(engine, folder, device, model))
    return [*found, *pace(engine, device, fit)]


def fitting(plan: MemoryPlan, free: int) -> int:
    """Slots beside the voices that graphs keep room for, and the scratch slot."""
    from engine.conditioners import RESIDENT

    return plan.slots_that_fit(free, RESIDENT) - 1


def agreement(folder: Path, device: str) -> Finding:
    """The device's float32 against the CPU's, token by token the same."""
    from engine.loading import load_engine
    from engine.trial import parity

    here, there = (
        load_engine(folder, capacity=PARITY_ROWS, device=place, kernels="torch", precision="float32", steps="plain")
        for place in ("cpu", device)
    )
    return agreed(parity(here, there, PARITY_ROWS, PARITY_STEPS))


def agreed(found: Parity) -> Finding:
    said = (
        f"float32 as on the CPU: logits within {max(found.text_logits, found.audio_logits):.1e}, "
        f"samples within {found.samples} of int16"
    )
    if max(found.text_logits, found.audio_logits) > LOGITS_OFF or found.samples > SAMPLES_OFF:
        return fails("parity", f"not {said}", "please report it with this output; ANTIPHON_MODEL__DEVICE=cpu speaks")
    return works("parity", said)


def captures(engine: DsmEngine) -> Finding:
    made = engine.captured
    if made is None:
        return note("graphs", "steps are called kernel by kernel", "please report it with this output")
    if made.failed:
        return note("graphs", str(made), "steps are slow; the log says which and why: please report it")
    return works("graphs", str(made))


def same_sound(engine: DsmEngine, folder: Path, device: str, model: ModelSettings) -> Finding:
    """Captured steps against plain ones on the same device, in a batch that fills its graph."""
    from engine.loading import load_engine
    from engine.trial import spoken

    rows = min(PARITY_ROWS, engine.capacity)
    plain = load_engine(
        folder,
        capacity=rows,
        device=device,
        kernels="torch",
        precision=model.precision,
        voices=model.voice_place,
        codebooks=model.codebooks,
        steps="plain",
    )
    entries = entries_of(folder)
    want, got = (spoken(each, entries, rows) for each in (plain, engine))
    equal = sum(one == other for one, other in zip(want, got, strict=True))
    said = f"{equal} of {rows} rows from graphs sound byte for byte as from plain steps"
    if not any(got):
        return fails("replay", "graphs bring no sound", "please report it with this output")
    return works("replay", said) if equal == rows else note("replay", said, "sums in another order; listen to it once")


def pace(engine: DsmEngine, device: str, slots_that_fit: int | None) -> list[Finding]:
    import torch

    from engine.trial import step_time

    sizes = [rows for rows in SWEPT if rows <= engine.capacity] or [engine.capacity]
    times = [step_time(engine, rows) for rows in sizes]
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else ""
    return paced(engine, times, name, slots_that_fit)


def paced(engine: DsmEngine, times: Sequence[StepTime], name: str, slots_that_fit: int | None) -> list[Finding]:
    """name: the driver's, of the device."""
    from engine import roofline
    from engine.kernels import TorchKernels

    weight_bytes = engine.kernels.weight_bytes if isinstance(engine.kernels, TorchKernels) else 4.0
    frame = roofline.work(engine.config, engine.codec, weight_bytes)
    known = roofline.hardware(name)
    steps = ", ".join(f"{time.rows}: {1000 * time.full_s:.2f}" for time in times)
    found = [works("steps", f"ms of a whole frame by rows: {steps}; host {1000 * times[-1].host_s:.2f}")]
    if known is not None:
        over = ", ".join(
            f"{time.rows}: {time.full_s / roofline.floor(frame, known, time.rows).total:.1f}" for time in times
        )
        found.append(works("roofline", f"times the floor of {known.name}, by rows: {over}"))
    limit_s = 0.7 * engine.info.frame_ms / 1000
    live = roofline.rows_measured({time.rows: time.full_s for time in times}, limit_s)
    said = f"{live} by time (0.7 of a frame)" + (f", {slots_that_fit} by memory" if slots_that_fit is not None else "")
    if not live:
        remedy = "use a faster device, precision int8, or a smaller model"
        return [*found, fails("sessions", f"{said}: slower than it is heard", remedy)]
    return [*found, works("sessions", f"live sessions that this predicts: {said}")]


PROBES = (Probe("device", trial, "please report it with this output; ANTIPHON_MODEL__DEVICE=cpu speaks"),)
