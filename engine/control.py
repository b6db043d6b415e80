"""The host's writes into the slots' integer buffers: in place, or gathered into one copy a step.

A write from pageable memory makes the host wait for the device, once for every few numbers. ``StagedControl`` keeps
them until the step that needs them is launched: one copy from pinned memory, one scatter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from engine.device import Device, Mark

STAGED_WRITES = 1 << 15
"""Numbers that go in one copy (half a megabyte); more go in several."""
STAGES = 4


class Control(Protocol):
    def put(self, buffer: Tensor, slot: int, start: int, values: Sequence[int]) -> None:
        """Write at absolute index ``start`` of a slot's ring. buffer: int64 [slots, capacity of the ring]."""
        ...

    def apply(self) -> None:
        """All writes so far come before whatever is launched next."""
        ...

    def settle(self) -> None:
        """All writes so far are done."""
        ...


class PlainControl:
    """Writes at once."""

    def put(self, buffer: Tensor, slot: int, start: int, values: Sequence[int]) -> None:
        size = buffer.shape[1]
        at = start % size
        if buffer.device.type != "cpu":
            index = torch.arange(start, start + len(values), device=buffer.device) % size
            buffer[slot, index] = torch.tensor(values, dtype=torch.int64, device=buffer.device)
            return
        ring, ahead = buffer[slot].numpy(), size - at
        ring[at : at + len(values)] = values[:ahead]
        if len(values) > ahead:
            ring[: len(values) - ahead] = values[ahead:]

    def apply(self) -> None:
        pass

    def settle(self) -> None:
        pass


class StagedControl:
    """Gathers writes to buffers that are parts of one arena (``SlotBuffers``)."""

    def __init__(self, arena: Tensor, device: Device, room: int = STAGED_WRITES) -> None:
        """arena: int64, flat, all of its storage. room: writes a copy."""
        assert (arena.dim(), arena.storage_offset()) == (1, 0)
        self._arena, self._device, self._room = arena, device, room
        self._writes: dict[int, int] = {}  # the last write to a place wins
        self._stages = [device.pinned(room, 2, dtype=torch.int64) for _ in range(STAGES)]
        self._marks: list[Mark | None] = [None] * STAGES
        self._landing = torch.zeros(room, 2, dtype=torch.int64, device=arena.device)
        self._turn = 0

    def put(self, buffer: Tensor, slot: int, start: int, values: Sequence[int]) -> None:
        size = buffer.shape[1]
        base, at = buffer.storage_offset() + slot * buffer.stride(0), start % size
        ahead = size - at
        self._writes.update(zip(range(base + at, base + size), values[:ahead], strict=False))
        if len(values) > ahead:
            self._writes.update(zip(range(base, base + len(values) - ahead), values[ahead:], strict=True))

    def apply(self) -> None:
        writes, self._writes = self._writes, {}
        items = iter(writes.items())
        while part := dict(islice(items, self._room)):
            self._send(part)

    def settle(self) -> None:
        self.apply()
        self._device.mark().wait()

    def _send(self, writes: Mapping[int, int]) -> None:
        turn, self._turn = self._turn, (self._turn + 1) % STAGES
        if (mark := self._marks[turn]) is not None:
            mark.wait()
        stage, count = self._stages[turn], len(writes)
        numbers = stage.numpy()
        numbers[:count, 0] = np.fromiter(writes.keys(), np.int64, count)
        numbers[:count, 1] = np.fromiter(writes.values(), np.int64, count)
        landing = self._landing[:count]
        self._device.upload(landing, stage[:count])
        self._device.do(lambda: self._arena.scatter_(0, landing[:, 0], landing[:, 1]))
        self._marks[turn] = self._device.mark()
