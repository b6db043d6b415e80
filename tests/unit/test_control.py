"""The host's writes, gathered: what lands is what plain writes leave, whatever the order, the wraps and the room."""

from __future__ import annotations

import random

import torch

from engine.control import STAGES, PlainControl, StagedControl
from engine.device import HostDevice
from engine.loading import BUILTIN
from engine.manifest import load_model_config
from engine.slots import SlotBuffers

SLOTS = 3


def test_staged_writes_leave_what_plain_ones_do() -> None:
    rng = random.Random(1)
    config, cpu = load_model_config(BUILTIN), torch.device("cpu")
    device = HostDevice(late=True)
    plain, staged = (SlotBuffers.empty(config, SLOTS, cpu, spare=4) for _ in range(2))
    control, gathered = PlainControl(), StagedControl(staged.arena, device, room=7)
    for _ in range(200):
        name, slot = rng.choice(("tokens", "word_begin", "entries", "state")), rng.randrange(SLOTS)
        ring = getattr(plain.text, name)
        start = rng.choice((0, 5, ring.shape[1] - 2, 10 * ring.shape[1] - 1))
        values = [rng.randrange(-9, 1 << 40) for _ in range(rng.randint(0, min(12, ring.shape[1])))]
        control.put(ring, slot, start, values)
        gathered.put(getattr(staged.text, name), slot, start, values)
        if rng.random() < 0.3:
            gathered.apply()
    gathered.apply()
    device.synchronise()
    assert torch.equal(plain.arena, staged.arena)
    assert int(plain.arena.count_nonzero()) > 100


def test_a_stage_is_not_written_while_its_copy_is_under_way() -> None:
    arena = torch.zeros(64, dtype=torch.int64)
    device = HostDevice(late=True)
    control = StagedControl(arena, device, room=2)
    for at in range(4 * STAGES):
        control.put(arena[None], 0, at, (at + 1,))
        control.apply()
    device.synchronise()
    assert arena[: 4 * STAGES].tolist() == list(range(1, 4 * STAGES + 1))


def test_parts_of_the_arena_do_not_touch() -> None:
    buffers = SlotBuffers.empty(load_model_config(BUILTIN), SLOTS, torch.device("cpu"), spare=4)
    parts = (*(getattr(buffers.text, name) for name in ("state", "tokens", "word_begin", "entries")), buffers.whole)
    for number, part in enumerate(parts, start=1):
        part.fill_(number)
    assert [int(part.unique()) for part in parts] == [1, 2, 3, 4, 5]
    assert buffers.arena[-4:].tolist() == [0, 0, 0, 0]
    assert len(buffers.arena) == sum(part.numel() for part in parts) + 4


def test_late_work_is_done_when_somebody_waits_and_not_before() -> None:
    device, done = HostDevice(late=True), list[int]()
    device.do(lambda: done.append(1))
    first = device.mark()
    device.do(lambda: done.append(2))
    assert done == []
    first.wait()
    assert done == [1]
    device.synchronise()
    first.wait()
    assert done == [1, 2]
