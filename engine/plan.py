"""What a model will take of memory, said before it is loaded: from its configuration and the headers of its files."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch

from engine.checkpoint import load_codec_config
from engine.codec.mimi.state import slot_bytes
from engine.config import MOST_SPEAKERS, VOICE_POSITIONS, ModelConfig
from engine.errors import CheckpointError
from engine.manifest import load_model_config
from engine.slots import SlotBuffers

MOST_HEADER = 100 << 20
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes on the device that the model runs on, except where it says otherwise."""

    parameters: int
    """Of the language model."""
    weight_bytes: int
    """The language model's matrices, norms and heads in the precision of the run: on the CPU a mapped file, if that is
    the file's own."""
    table_bytes: int
    """What is computed from embeddings and kept."""
    source_bytes: int
    """Embeddings that were read for it: pages of the mapped file that the system may take back."""
    codec_bytes: int
    slot_bytes: int
    """Of one slot."""
    voice_bytes: int
    """Keys and values of one voice, shared by the slots that hear it; 0 if the model hears none."""

    def held(self, slots: int, voices: int = 0) -> int:
        """What stays."""
        return (
            self.weight_bytes
            + self.table_bytes
            + self.codec_bytes
            + slots * self.slot_bytes
            + voices * self.voice_bytes
        )

    def total(self, slots: int, voices: int = 0) -> int:
        """What a process shows after its first frames on the CPU."""
        return self.held(slots, voices) + self.source_bytes

    def slots_that_fit(self, free_bytes: int, voices: int = 1) -> int:
        return max(0, free_bytes - self.held(0, voices)) // self.slot_bytes


def plan_memory(
    folder: Path, codebooks: int | None = None, dtype: torch.dtype | None = None, int8: bool = False
) -> MemoryPlan:
    """For a folder as Kyutai publishes it. dtype: precision of the run; None: the file's own. int8: matrices in eight
    bits.

    Raises CheckpointError or UnsupportedModel, as the loading would for configuration and headers.
    """
    config = load_model_config(folder, codebooks)
    codec = load_codec_config(folder, config)
    tensors = read_header(folder / config.lm_name)
    stored = {name: count for name, (_kind, count) in tensors.items()}
    kinds: dict[str, int] = {}
    for kind, count in tensors.values():
        kinds[kind] = kinds.get(kind, 0) + count
    own = torch.bfloat16 if kinds.get("BF16", 0) > sum(stored.values()) / 2 else torch.float32
    run = own if dtype is None else dtype
    kept = {name: count for name, count in stored.items() if not _is_source(name, config)}
    matrices = sum(count for name, count in kept.items() if int8 and _is_matrix(name))
    sources = sum(stored.values()) - sum(kept.values())
    mapped = run == own and own.itemsize == min(SIZES[kind] for kind in kinds)
    return MemoryPlan(
        parameters=sum(stored.values()),
        weight_bytes=(sum(kept.values()) - matrices) * run.itemsize + matrices,
        table_bytes=_table_numbers(config) * run.itemsize,
        source_bytes=sources * own.itemsize if mapped else 0,
        codec_bytes=4 * sum(count for _kind, count in read_header(folder / config.codec_name).values()),
        slot_bytes=_slot_bytes(config, run) + slot_bytes(codec),
        voice_bytes=_voice_numbers(config) * run.itemsize,
    )


def read_header(path: Path) -> dict[str, tuple[str, int]]:
    """Kind and number of elements of each tensor of a safetensors file. Raises CheckpointError."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > MOST_HEADER:
                raise CheckpointError(str(path), "is not a safetensors file")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        out = {name: (item["dtype"], prod(item["shape"])) for name, item in header.items()}
    except OSError as error:
        raise CheckpointError(str(path), f"cannot be read ({error.strerror})") from error
    except (struct.error, ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(str(path), f"cannot be read as safetensors ({error})") from error
    if not out or any(kind not in SIZES for kind, _count in out.values()):
        raise CheckpointError(str(path), "holds no tensors, or tensors of another kind than floats")
    return out


def _is_source(name: str, config: ModelConfig) -> bool:
    """Whether a tensor is only read to compute a table, or not used at all."""
    if name.startswith(("emb.", "text_emb.", "depformer_text_emb.", "extra_heads.")):
        return True
    if not name.startswith(("depformer_emb.", "linears.", "depformer_norms.")):
        return False
    book = int(name.split(".")[1])
    if name.startswith("depformer_emb."):
        return book >= config.generated - 1 or config.low_rank is not None or config.norm_embeddings
    return book >= config.generated


def _is_matrix(name: str) -> bool:
    parts = ("self_attn", "cross_attention", "gating", "linear1", "linear2", "depformer_in")
    return any(f"{part}." in name for part in parts)


def _table_numbers(config: ModelConfig) -> int:
    dim, depth = config.backbone.dim, config.depth.dim
    streams = 2 if config.demux else 1
    audio = (config.codebooks * (config.card + 1) + 1) * dim
    text = streams * (config.text_card + 2) * (dim + depth)
    projected = config.low_rank is not None or config.norm_embeddings
    books = (config.generated - 1) * (config.card + 1) * depth if projected else 0
    return audio + text + books


def _slot_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    c = config.backbone
    rows = 2 if config.guided else 1
    ring = rows * c.layers * 2 * config.context * c.dim * dtype.itemsize
    sums = rows * c.dim * dtype.itemsize if config.conditioners else 0

    def buffers(slots: int) -> int:
        made = SlotBuffers.empty(config, slots, torch.device("meta"))
        text = made.text
        tensors = (text.state, text.tokens, text.word_begin, text.entries, made.history, made.whole, made.real)
        return sum(t.nbytes for t in (*tensors, made.strength, made.prefix_length, made.prefix))

    return ring + sums + buffers(2) - buffers(1)


def _voice_numbers(config: ModelConfig) -> int:
    if not config.hears_voices:
        return 0
    return 2 * config.backbone.layers * config.backbone.dim * MOST_SPEAKERS * VOICE_POSITIONS
