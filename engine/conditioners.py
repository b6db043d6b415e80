"""What a slot is conditioned on: values added to every step, and voices heard through cross attention.

moshi ``conditioners/base.py``: a condition is projected, and where there is none a learnt vector stands. The keys and
values of a voice are computed once and shared by all slots that hear it; the least recently used give way.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.backbone import Heard, hear
from engine.config import MOST_SPEAKERS, VOICE_POSITIONS, ConditionerConfig, ModelConfig
from engine.language import BackboneWeights, ConditionerWeights
from engine.layers import sin_embedding

RESIDENT = 32
"""Voices kept beyond those in use."""
Key = tuple[tuple[str, ...], int]
"""Names of the voices heard together (none: the condition dropped), positions of each."""


class Conditions:
    """Conditions of all slots. A slot has a second row, without conditions, if the model is guided by one."""

    def __init__(
        self,
        config: ModelConfig,
        weights: tuple[ConditionerWeights, ...],
        backbone: BackboneWeights,
        capacity: int,
        device: torch.device,
    ) -> None:
        """backbone: on ``device`` in the model's precision."""
        self._config, self._capacity, self._backbone = config, capacity, backbone
        pairs = zip(config.conditioners or (), weights, strict=True)
        self._parts = {part.name: (part, _on(device, own)) for part, own in pairs}
        rows = 2 * capacity if config.guided else capacity
        self._dtype = backbone.text_head.dtype
        self._sums = torch.zeros(rows, config.backbone.dim, dtype=self._dtype, device=device)
        self._table = VoiceTable(config, rows, device, self._dtype) if config.fuser.cross else None

    def assign(self, slot: int, names: tuple[str, ...], voices: tuple[Tensor, ...], cfg: float | None) -> None:
        """Condition a slot. voices: float32 [positions, dim of the conditioner] of each name, as many positions each;
        cfg: one of the model's ``guidance_values``."""
        values = {"control": "ok", "cfg": None if cfg is None else format(cfg, ".1f")}
        self._sums[slot] = self._sum(values)
        if self._config.guided:
            self._sums[slot + self._capacity] = self._sum({})
        if self._table is None:
            return
        positions = len(voices[0]) if voices else 0
        table = self._table
        table.assign(slot, (names, positions), lambda: self._heard(self._source(voices, positions, values)))
        if self._config.guided:
            table.assign(slot + self._capacity, ((), positions), lambda: self._heard(self._source((), positions, {})))

    def release(self, slot: int) -> None:
        """The slot's voices may give way."""
        if self._table is not None:
            self._table.release(slot)
            if self._config.guided:
                self._table.release(slot + self._capacity)

    def add(self, x: Tensor, slots: Tensor) -> Tensor:
        return x + self._sums[slots] if self._config.fuser.sums else x

    def heard(self, slots: Tensor) -> Heard | None:
        return None if self._table is None else self._table.heard(slots)

    def reserve(self) -> None:
        """Room for as many voices as are kept, of the length that Kyutai's have, so that the table need not move."""
        if self._table is not None:
            self._table.reserve(min(RESIDENT, self._capacity), MOST_SPEAKERS * VOICE_POSITIONS)

    def addresses(self) -> tuple[int, ...]:
        return () if self._table is None else self._table.addresses()

    @property
    def voices_computed(self) -> int:
        """How often keys and values were computed."""
        return 0 if self._table is None else self._table.computed

    def _sum(self, values: dict[str, str | None]) -> Tensor:
        total = torch.zeros(self._config.backbone.dim, device=self._sums.device)
        for index, name in enumerate(self._config.fuser.sums):
            vector = self._look_up(name, values.get(name))
            total = total + vector if index else vector
        return total.to(self._dtype)

    def _look_up(self, name: str, value: str | None) -> Tensor:
        """float32 [dim]"""
        part, weights = self._parts[name]
        if value is None:
            return _absent(weights, self._config.backbone.dim, self._sums.device)
        assert weights.table is not None
        return _project(weights, weights.table[_row(part, value)][None])[0]

    def _source(self, voices: tuple[Tensor, ...], positions: int, values: dict[str, str | None]) -> Tensor:
        """What cross attention hears, float32 [positions, dim]."""
        parts = []
        for name in self._config.fuser.cross:
            if self._parts[name][0].bins:
                parts.append(self._look_up(name, values.get(name))[None])
            else:
                parts.append(self._voices(self._parts[name][1], voices, positions))
        source = torch.cat(parts)
        if self._config.fuser.cross_positions:
            place = torch.arange(len(source), device=source.device)
            source = source + self._config.fuser.cross_scale * sin_embedding(place, source.shape[1], 10000.0)
        return source

    def _voices(self, weights: ConditionerWeights, voices: tuple[Tensor, ...], positions: int) -> Tensor:
        """The voices, then padding in the place of those that the model could hear beside them."""
        device = self._sums.device
        silent = _absent(weights, self._config.backbone.dim, device)
        padding = silent.expand(positions * (MOST_SPEAKERS - len(voices)), -1)
        return torch.cat([*(_project(weights, voice.to(device, torch.float32)) for voice in voices), padding])

    def _heard(self, source: Tensor) -> Tensor:
        return hear(self._backbone, self._config, source.to(self._dtype))


class VoiceTable:
    """Keys and values of voices in one table, and which of them each row hears. The table grows with the voices in use;
    beyond ``RESIDENT`` the least recently assigned that nobody hears gives way."""

    def __init__(self, config: ModelConfig, rows: int, device: torch.device, dtype: torch.dtype) -> None:
        c = config.backbone
        self._table = torch.zeros(0, c.layers, 2, c.heads, 0, c.dim // c.heads, dtype=dtype, device=device)
        self._voice = torch.zeros(rows, dtype=torch.int64, device=device)
        self._length = torch.zeros(rows, dtype=torch.int64, device=device)
        self._places: OrderedDict[Key, int] = OrderedDict()  # the least recently assigned first
        self._lengths: dict[int, int] = {}  # positions at each place
        self._users: dict[int, Key] = {}
        self.computed = 0

    def assign(self, row: int, key: Key, compute: Callable[[], Tensor]) -> None:
        """compute: -> [layers, 2, heads, positions, head_dim], called if the voice is not in the table."""
        self._users.pop(row, None)
        if key not in self._places:
            fresh = compute()
            self.computed += 1
            place = self._free_place()
            self._fit(place + 1, fresh.shape[3])
            self._table[place, :, :, :, : fresh.shape[3]] = fresh
            self._places[key], self._lengths[place] = place, fresh.shape[3]
        self._places.move_to_end(key)
        self._users[row] = key
        self._voice[row] = self._places[key]
        self._length[row] = self._lengths[self._places[key]]

    def reserve(self, places: int, positions: int) -> None:
        self._fit(places, positions)

    def addresses(self) -> tuple[int, ...]:
        """Where the table is: it moves when it grows."""
        return (self._table.data_ptr(), *self._table.shape)

    def release(self, row: int) -> None:
        self._users.pop(row, None)

    def heard(self, rows: Tensor) -> Heard:
        if len(rows) == 1 and rows.device.type == "cpu":
            # Without the longer voices' padding: a row's arithmetic must not depend on what else is in the table.
            voice, length = int(self._voice[rows]), int(self._length[rows])
            return Heard(self._table[voice : voice + 1, :, :, :, :length], None, self._length[rows])
        return Heard(self._table, self._voice[rows], self._length[rows])

    def _free_place(self) -> int:
        if len(self._places) >= RESIDENT:
            used = set(self._users.values())
            oldest = next((key for key in self._places if key not in used), None)
            if oldest is not None:
                return self._places.pop(oldest)
        taken = set(self._places.values())
        return next(place for place in range(len(taken) + 1) if place not in taken)

    def _fit(self, places: int, positions: int) -> None:
        """Make the table large enough; what is in it stays."""
        shape = list(self._table.shape)
        wanted = [max(places, shape[0]), max(positions, shape[4])]
        if wanted == [shape[0], shape[4]]:
            return
        if wanted[0] > shape[0]:
            wanted[0] = max(places, min(2 * shape[0], RESIDENT))
        larger = self._table.new_zeros(wanted[0], *shape[1:4], wanted[1], shape[5])
        larger[: shape[0], :, :, :, : shape[4]] = self._table
        self._table = larger


def _on(device: torch.device, weights: ConditionerWeights) -> ConditionerWeights:
    parts = (weights.projection, weights.padding, weights.table)
    return ConditionerWeights(*(None if part is None else part.to(device) for part in parts))


def _project(weights: ConditionerWeights, x: Tensor) -> Tensor:
    return x if weights.projection is None else F.linear(x, weights.projection)


def _absent(weights: ConditionerWeights, dim: int, device: torch.device) -> Tensor:
    return torch.zeros(dim, device=device) if weights.padding is None else weights.padding


def _row(part: ConditionerConfig, value: str) -> int:
    """Row of a look-up table (moshi ``conditioners/text.py`` ``NoopTokenizer``)."""
    if part.values is not None:
        return part.values.index(value)
    return int(hashlib.sha256(value.encode()).hexdigest(), 16) % part.bins
