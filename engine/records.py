"""What is kept of a committed step, so that its slot can be rebuilt elsewhere: text token, new word or not, codes.

Little-endian: uint32 (its highest bit: the text head chose a new word), then a uint16 a codebook.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.config import ZERO
from engine.errors import UnusableRecord

_NEW = 1 << 31
_NONE = 0xFFFF
"""A code that stands for none: inside the delay, or of a codebook that is not generated."""


def pack(tokens: Sequence[int], new: bool) -> bytes:
    """tokens: [1 + codebooks], what the model reads at the next step."""
    token, *codes = tokens
    plain = [_NONE if code == ZERO else code for code in codes]
    return struct.pack(f"<I{len(codes)}H", token | _NEW if new else token, *plain)


def unpack(records: Sequence[bytes], codebooks: int) -> tuple[Tensor, Tensor]:
    """int64 [steps, 1 + codebooks] and bool [steps]. Raises UnusableRecord for one of another size."""
    layout = struct.Struct(f"<I{codebooks}H")
    if any(len(record) != layout.size for record in records):
        raise UnusableRecord("is of another model")
    rows = torch.tensor([layout.unpack(record) for record in records], dtype=torch.int64).reshape(-1, 1 + codebooks)
    new = rows[:, 0] >= _NEW
    rows[:, 0] %= _NEW
    rows[:, 1:][rows[:, 1:] == _NONE] = ZERO
    return rows, new
