"""A captured step may not look at the host: no value read, no shape that depends on data, nothing sent over.

The step runs on torch's meta device, which has no values to read, under a mode that sees every operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from engine.checkpoint import Checkpoint, MimiCheckpoint, load_checkpoint, load_mimi_checkpoint
from engine.device import Body, HostDevice, Strictness
from engine.graphs import GraphRunner, buckets, spare
from engine.kernels import TorchKernels
from engine.loading import BUILTIN
from engine.slots import SlotBuffers
from engine.step import FusedStep

NOWHERE = torch.device("meta")
READS = frozenset(
    {"local_scalar_dense", "nonzero", "masked_select", "unique", "unique2", "equal", "is_nonzero", "item"}
)


class OnDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fails on an operation that would make the host wait, or that a capture refuses."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        name = func.__name__.split(".")[0].strip("_")
        assert name not in READS, f"{func} reads a value"
        for tensor in tensors((args, tuple((kwargs or {}).values()))):
            assert tensor.device == NOWHERE, f"{func} takes a tensor of the host"
        if name in ("index", "index_put"):
            assert all(index.dtype != torch.bool for index in tensors(args[1])), f"{func} selects by a mask"
        return func(*args, **(kwargs or {}))


def tensors(part: object) -> Iterator[Tensor]:
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, list | tuple):
        for item in part:
            yield from tensors(item)


class Watched(HostDevice):
    """Runs what is captured under watch, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[int] = []

    def do(self, body: Body) -> None:
        pass

    def capture(self, body: Body, strictness: Strictness) -> Body:
        with OnDevice() as watch:
            body()
        self.operations.append(watch.operations)
        return super().capture(body, strictness)


def capture(model: Checkpoint | MimiCheckpoint, guided: bool, capacity: int = 2) -> list[int]:
    """Operations of each captured step."""
    kernels = TorchKernels(model, capacity + 1, NOWHERE, row_by_row=False)
    if kernels.conditions is not None:
        kernels.conditions.reserve()
    buffers = SlotBuffers.empty(model.config, capacity + 1, NOWHERE, spare(capacity))
    step = FusedStep(model.config, kernels, buffers, model.codec.frame_samples, rests=True)
    device = Watched()
    runner = GraphRunner(step, kernels, buffers, device)
    runner.capture(guided)
    assert len(device.operations) == 2 * len(buckets(capacity))
    return device.operations


def test_the_built_in_voice() -> None:
    operations = capture(load_checkpoint(BUILTIN), guided=False, capacity=1)
    assert min(operations) > 100, "the watch has seen no step"


@pytest.mark.parametrize("kind", ["hears voices", "goes on from audio"])
def test_kyutai_checkpoints(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("moshi")
    from tests.parity import test_whole_checkpoint as whole
    from tests.parity import tiny_checkpoints as tiny

    going_on = kind == "goes on from audio"
    whole.write(tmp_path, tiny.plain(mimi_config_name="mimi.json") if going_on else whole.published())
    capture(load_mimi_checkpoint(tmp_path), guided=going_on)


def test_the_watch_sees_what_it_should() -> None:
    x = torch.ones(3, device=NOWHERE)
    with pytest.raises(AssertionError, match="takes a tensor of the host"), OnDevice():
        x + torch.ones(3)
    with pytest.raises(AssertionError, match="selects by a mask"), OnDevice():
        x[x > 0]
    with pytest.raises(AssertionError, match="reads a value"), OnDevice():
        bool(x.sum() > 0)
    with pytest.raises(AssertionError, match="reads a value"), OnDevice():
        torch.nonzero(x)
    with pytest.raises(AssertionError, match="host"), OnDevice():
        torch.tensor([1, 2]).to(NOWHERE)
