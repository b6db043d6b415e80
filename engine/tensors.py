"""A safetensors file: memory-mapped tensors that are asked for by name and shape; none may be left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.errors import CheckpointError

KINDS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(slots=True)
class TensorFile:
    path: Path
    left: dict[str, Tensor]
    """Tensors not yet taken. On the CPU, pages of the file that nobody has touched take no memory."""
    derived: torch.dtype = torch.float32
    """Precision of what is computed from them once and for all."""

    @classmethod
    def read(cls, path: Path, derived: torch.dtype = torch.float32) -> TensorFile:
        """Raises CheckpointError if the file cannot be read, is cut short, or is no safetensors file."""
        try:
            if not path.is_file():
                raise CheckpointError(str(path), "is missing or is not a file")
            with safe_open(path, framework="pt") as file:
                return cls(path, {name: file.get_tensor(name) for name in file.keys()}, derived)  # noqa: SIM118
        except (OSError, SafetensorError, RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(str(path), f"cannot be read as safetensors ({error})") from error

    def take(self, name: str, *shape: int) -> Tensor:
        """Raises CheckpointError unless there is such a tensor of that shape, of floats."""
        tensor = self.left.pop(name, None)
        if tensor is None:
            raise CheckpointError(str(self.path), f"tensor {name!r} is missing")
        if tuple(tensor.shape) != shape:
            raise CheckpointError(str(self.path), f"tensor {name!r} is {list(tensor.shape)}, expected {list(shape)}")
        if tensor.dtype not in KINDS:
            raise CheckpointError(str(self.path), f"tensor {name!r} is of {tensor.dtype}, expected floats")
        return tensor

    def has(self, name: str) -> bool:
        return name in self.left

    def all_taken(self) -> None:
        """Raises CheckpointError for a tensor that nobody has taken."""
        if self.left:
            raise CheckpointError(str(self.path), f"unexpected tensor {min(self.left)!r}")


def stored_dtype(path: Path) -> torch.dtype:
    """bfloat16 for a file most of whose numbers are, float32 for any other. Raises CheckpointError."""
    sizes = dict.fromkeys(KINDS, 0)
    for tensor in TensorFile.read(path).left.values():
        if tensor.dtype in sizes:
            sizes[tensor.dtype] += tensor.numel()
    return torch.bfloat16 if sizes[torch.bfloat16] > sum(sizes.values()) / 2 else torch.float32
