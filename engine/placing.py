"""Which kernels a model runs on where the CPU's own do not, and what its steps are captured on."""

from __future__ import annotations

from typing import Literal

import torch

from cuda_ext.build import BuildError
from engine.checkpoint import Checkpoint, MimiCheckpoint
from engine.codec.streams import CodecStream
from engine.device import CudaDevice, Device, HostDevice
from engine.errors import KernelError
from engine.kernels import TorchKernels

Steps = Literal["auto", "graphs", "plain"]
"""How steps are run: captured and one ahead of the host, or as plain calls; ``auto``: captured on CUDA. On the CPU
``graphs`` is the same machinery around plain calls."""


def queue_of(place: torch.device, steps: Steps) -> Device | None:
    """None: steps are plain calls."""
    if steps == "plain" or (steps == "auto" and place.type == "cpu"):
        return None
    return HostDevice() if place.type == "cpu" else CudaDevice(place)


def device_kernels(
    model: Checkpoint | MimiCheckpoint,
    rows: int,
    place: torch.device,
    native: bool = False,
    row_by_row: bool | None = None,
    dtype: torch.dtype = torch.float32,
    codec: CodecStream | None = None,
    int8: bool = False,
) -> TorchKernels:
    """rows: slots, the scratch slot of graphs too. native: the phases of ``cuda_ext``; on the CPU that is their host
    twin, which is for tests. row_by_row: by default on the CPU.

    Raises KernelError if native kernels are demanded and cannot be built.
    """
    if native:
        from engine.cuda_kernels import CudaKernels

        try:
            return CudaKernels(model, rows, place, dtype, codec, int8)
        except BuildError as error:
            raise KernelError(str(error)) from error
    alone = place.type == "cpu" if row_by_row is None else row_by_row
    return TorchKernels(model, rows, place, alone, dtype, codec, int8)
