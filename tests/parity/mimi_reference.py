"""The oracle: moshi 0.2.13's own Mimi on a file of random weights that this module writes.

The weights keep every activation near unit scale and make each part audible (branch scales of 0.1 to 0.5 where training
starts from 0.01, sharp attention, unused codewords), so that a fault in any part is far above the tolerance.
"""

from __future__ import annotations

import os

os.environ.setdefault("NO_TORCH_COMPILE", "1")  # read while moshi is imported

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from moshi.models.compression import MimiModel
from moshi.models.loaders import get_mimi
from moshi.utils.compile import no_compile
from safetensors.torch import save_file
from torch import Tensor

NEAR_TIE = 1e-3
"""Two codewords whose distances from a latent differ by less than this may change places with the order of a sum."""


def write_mimi(path: Path, config: dict[str, Any] | None, seed: int, older_names: bool = False) -> None:
    """Random weights as moshi reads them; ``older_names``: in the spellings that its loader maps to its own."""
    state = get_mimi(None, config, num_codebooks=3).state_dict()
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in state.items():
        tensor.copy_(_random(name, tensor, generator))
    for name in [name for name in state if name.endswith("embedding_sum")]:
        usage = state[name.replace("embedding_sum", "cluster_usage")]
        state[name].mul_(usage.clamp(min=1e-5)[:, None])
    save_file({_older(name) if older_names else name: tensor for name, tensor in state.items()}, path)


def load_reference(path: Path, config: dict[str, Any] | None, codebooks: int) -> MimiModel:
    return get_mimi(path, config, num_codebooks=codebooks)


def _random(name: str, tensor: Tensor, generator: torch.Generator) -> Tensor:
    normal, uniform = torch.randn(tensor.shape, generator=generator), torch.rand(tensor.shape, generator=generator)
    if name.endswith("_initialized"):
        return torch.ones(1)
    if name.endswith("cluster_usage"):
        return (uniform * 4.0).where(uniform > 0.01, 0.0)  # one in a hundred was never used
    if name.endswith("embedding_sum"):
        book = int(name.split(".")[-3]) + ("rvq_rest" in name)
        return normal * 0.22 * 0.976**book  # about what the residual of a 256-dimensional latent asks for
    if ".norm" in name and name.endswith("weight"):
        return 1 + normal * 0.1
    if name.endswith("bias"):
        return normal * 0.1
    if name.endswith("scale"):
        return 0.1 + 0.4 * uniform
    if "convtr" in name:
        taps = 2  # of a kernel of twice the stride, that meet in an output
        return normal / math.sqrt(taps * (1 if name.startswith("upsample") else tensor.shape[0]))
    gain = 1.5 if "in_proj" in name and "attn" in name else 1.0
    return normal * gain / math.sqrt(tensor[0].numel())


def _older(name: str) -> str:
    for new, old in (
        ("self_attn.in_projs.0.weight", "self_attn.in_proj_weight"),
        ("self_attn.out_projs.0.weight", "self_attn.out_proj.weight"),
        ("_codebook._initialized", "_codebook.inited"),
        ("_codebook.cluster_usage", "_codebook.cluster_size"),
        ("_codebook.embedding_sum", "_codebook.embed_avg"),
    ):
        name = name.replace(new, old)
    return name


@dataclass(frozen=True, slots=True)
class Schedule:
    """What happens to each row at each step. Rows that are not run are fed, too; nothing may come of it."""

    resets: Tensor
    """bool [steps, rows]: a new stream starts in this row before this step."""
    runs: Tensor
    """bool [steps, rows]"""

    def __iter__(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        for step in range(len(self.runs)):
            yield step, self.resets[step], self.runs[step]


def schedule(steps: int, joins: tuple[int, ...], stalls: tuple[int, ...]) -> Schedule:
    """Row r is another's until step ``joins[r]``, and stalls at every ``stalls[r]``-th step (0: never)."""
    resets, runs = torch.zeros(2, steps, len(joins), dtype=torch.bool), torch.ones(steps, len(joins), dtype=torch.bool)
    for row, (join, stall) in enumerate(zip(joins, stalls, strict=True)):
        resets[0, join, row] = True
        if stall:
            runs[stall - 1 :: stall, row] = False
    return Schedule(resets[0], runs)


def stream(model: MimiModel, plan: Schedule, frame: Callable[[int], Tensor]) -> Tensor:
    """``frame``: step -> that step's output, [rows, ...]. Returns all steps' outputs, [steps, rows, ...]."""
    outputs = []
    with torch.inference_mode(), no_compile(), model.streaming(plan.runs.shape[1]):
        for step, resets, runs in plan:
            if resets.any():
                model.reset_streaming(resets)
            model.set_exec_mask(runs)
            outputs.append(frame(step))
    return torch.stack(outputs)


def unlike_codes(model: MimiModel, latents: Tensor, ours: Tensor, theirs: Tensor) -> tuple[int, float]:
    """latents: [frames, dim]; ours, theirs: int64 [frames, codebooks] -> frames whose codes differ, and by how much the
    distances of the first code that differs do, at most (later codes follow from it)."""
    count, worst = 0, 0.0
    quantizer: Any = model.quantizer
    split = quantizer.n_q_semantic
    for latent, mine, other in zip(latents, ours, theirs, strict=True):
        for part, start, end in ((quantizer.rvq_first, 0, split), (quantizer.rvq_rest, split, len(mine))):
            different = (mine[start:end] != other[start:end]).nonzero()
            if len(different):
                count += 1
                at = int(different[0])
                left = part.input_proj(latent[None, :, None])[0, :, 0]
                for book in range(at):
                    left = left - part.vq.layers[book].embedding[mine[start + book]]
                table = part.vq.layers[at].embedding
                distances = [float((left - table[codes[start + at]]).norm()) for codes in (mine, other)]
                worst = max(worst, abs(distances[0] - distances[1]))
    return count, worst
