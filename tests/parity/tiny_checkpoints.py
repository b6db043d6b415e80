"""Random tiny checkpoints in Kyutai's layout, and moshi 0.2.13's own ``TTSModel.generate`` over them, on record.

The weights are those of a freshly made moshi ``LMModel`` with every tensor drawn anew: heads are scaled so that logits
spread by more than 1, and nothing (biases, learnt paddings, layer scales) is left at a value that hides it.
"""

from __future__ import annotations

import os

os.environ.setdefault("NO_TORCH_COMPILE", "1")  # read while moshi is imported; no_compile covers an earlier import

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from moshi.conditioners.base import ConditionAttributes
from moshi.models.lm import LMModel
from moshi.models.loaders import FRAME_RATE, CheckpointInfo
from moshi.models.tts import Entry as MachineEntry
from moshi.models.tts import StateMachine, TokenIds, TTSModel
from moshi.utils.compile import no_compile
from safetensors.torch import save_file

from engine.contract import Entry

CARD, TEXT_CARD = 24, 40
VOICE_DIM, VOICE_POSITIONS = 12, 6
SIGNATURE = {"sig": "feed", "epoch": 7}

Json = dict[str, Any]


def published(**changes: Any) -> Json:
    """A small configuration with the structure of kyutai/tts-1.6b-en_fr; ``changes`` of None drop a field."""
    raw: Json = {
        "card": CARD,
        "n_q": 4,
        "dep_q": 4,
        "delays": [0, 0, 2, 2, 2],
        "dim": 32,
        "text_card": TEXT_CARD,
        "existing_text_padding_id": 3,
        "num_heads": 2,
        "num_layers": 2,
        "hidden_scale": 4.125,
        "causal": True,
        "layer_scale": None,
        "context": 64,
        "max_period": 10000,
        "gating": "silu",
        "norm": "rms_norm_f32",
        "positional_embedding": "rope",
        "depformer_dim": 24,
        "depformer_num_heads": 2,
        "depformer_num_layers": 2,
        "depformer_dim_feedforward": 72,
        "depformer_layer_scale": None,
        "depformer_multi_linear": True,
        "depformer_context": 4,
        "depformer_max_period": 10000,
        "depformer_gating": "silu",
        "depformer_pos_emb": "none",
        "depformer_weights_per_step": True,
        "depformer_weights_per_step_schedule": [0, 1, 2, 2],
        "depformer_low_rank_embeddings": 8,
        "demux_second_stream": True,
        "text_card_out": None,
        "cross_attention": True,
        "conditioners": conditioners("speaker_wavs", "control", "cfg"),
        "fuser": {
            "cross_attention_pos_emb": True,
            "cross_attention_pos_emb_scale": 1,
            "sum": ["control", "cfg"],
            "prepend": [],
            "cross": ["speaker_wavs"],
        },
        "model_type": "tts",
        "moshi_name": "dsm_tts.safetensors",
        "mimi_name": "mimi.safetensors",
        "tokenizer_name": "tokenizer.model",
        "tts_config": {"audio_delay": 0.4, "second_stream_ahead": 2},
        "stt_config": None,
        "lm_gen_config": {"temp": 0.6, "temp_text": 0.6, "top_k": 250, "top_k_text": 50},
        "model_id": SIGNATURE,
    }
    return raw | changes


def conditioners(*names: str) -> Json:
    every: Json = {
        "speaker_wavs": {"type": "tensor", "tensor": {"dim": VOICE_DIM}},
        "cfg": {
            "type": "lut",
            "lut": {"n_bins": 3, "dim": 8, "tokenizer": "noop", "possible_values": ["1.0", "1.5", "2.0"]},
        },
        "control": {"type": "lut", "lut": {"n_bins": 1, "dim": 32, "tokenizer": "noop", "possible_values": ["ok"]}},
    }
    return {name: every[name] for name in names}


def plain(**changes: Any) -> Json:
    """Without cross attention and without conditions, but knowing guidance, like kyutai/tts-0.75b-en-public."""
    nothing: Json = {"cross_attention": False, "conditioners": {}, "fuser": {"sum": [], "cross": [], "prepend": []}}
    return published(**(nothing | changes))


def write_checkpoint(
    folder: Path, raw: Json, seed: int, fused: bool = False, dtype: torch.dtype = torch.float32
) -> None:
    """config.json and the language model's weights; fused: the projections of all weight sets in one tensor each."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = checkpoint_info(folder, raw).get_moshi(dtype=torch.float32, load_weight=False)
        for name, tensor in model.state_dict().items():
            tensor.copy_(_drawn(name, tensor))
    weights = {name: tensor.to(dtype, copy=True) for name, tensor in model.state_dict().items()}
    save_file(_fused(weights) if fused else weights, folder / raw["moshi_name"])


def _drawn(name: str, tensor: torch.Tensor) -> torch.Tensor:
    noise, width = torch.randn_like(tensor), float(tensor.shape[-1]) ** 0.5
    if name.endswith("alpha") or ("norm" in name and name.endswith("weight")):
        return torch.add(torch.mul(noise, 0.2), 1.0)
    if name.endswith("scale"):
        return torch.add(torch.mul(noise, 0.2), 0.5)
    if tensor.dim() < 2 or "learnt_padding" in name:
        return torch.mul(noise, 0.3)
    if name.startswith("text_linear."):
        return torch.mul(noise, 1.6 / width)
    if name.startswith("linears."):
        return torch.mul(noise, 1.0 / width)
    if "emb." in name and name.endswith("weight") and "low_rank" not in name and "out" not in name:
        return torch.mul(noise, 0.7)
    return torch.mul(noise, 1.2 / width)


def _fused(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The other published spelling: ``in_proj_weight`` and ``out_proj.weight`` hold all weight sets."""
    out: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        for kind, target in (("in", "in_proj_weight"), ("out", "out_proj.weight")):
            if f".{kind}_projs." in name:
                at = name[: name.index(f"{kind}_projs.")] + target
                out[at] = torch.cat([out[at], tensor]) if at in out else tensor
                break
        else:
            out[name] = tensor
    return out


def write_voice(folder: Path, name: str, seed: int, positions: int = VOICE_POSITIONS) -> Path:
    path = folder / f"{name}.{SIGNATURE['sig']}@{SIGNATURE['epoch']}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    random = torch.Generator().manual_seed(seed)
    save_file({"speaker_wavs": torch.randn(1, VOICE_DIM, positions, generator=random)}, path)
    return path


def checkpoint_info(folder: Path, raw: Json) -> CheckpointInfo:
    return CheckpointInfo.from_hf_repo(
        "",
        moshi_weights=folder / raw["moshi_name"],
        mimi_weights=folder / "none",
        tokenizer=folder / "none",
        config_path=folder / "config.json",
        mimi_config_path=folder / raw["mimi_config_name"] if "mimi_config_name" in raw else None,
    )


@dataclass(frozen=True, slots=True)
class Row:
    """What one session asks for."""

    entries: tuple[Entry, ...]
    voices: tuple[Path, ...] = ()
    cfg: float | None = None
    """A look-up of a distilled model."""
    prefix: torch.Tensor | None = None
    """int64 [1 + codebooks, frames]"""
    script: tuple[Entry, ...] | None = None
    """What moshi makes of the same text, if it is not one speaker's."""

    def marked(self, hears_voices: bool) -> tuple[Entry, ...]:
        """As moshi gets them: models that hear voices were trained with the token of the speaker's turn."""
        if self.script is not None or not hears_voices:
            return self.script or self.entries
        first, *rest = self.entries
        assert first.is_word
        assert not first.padding
        return (Entry((TokenIds.main, *first.tokens)), *rest)


@dataclass(slots=True)
class Record:
    """All rows of one run; T steps, B rows, Q generated codebooks."""

    delay: int
    delays: tuple[int, ...]
    """Of the generated codebooks."""
    text_logits: list[torch.Tensor] = field(default_factory=list)
    """T of [B, text_card_out]"""
    heads: list[list[torch.Tensor]] = field(default_factory=list)
    """For each step past the delay, Q of [B or 2 B, card]"""
    sampled: list[list[int]] = field(default_factory=list)
    """[B][T]: what the text head chose."""
    fed: list[list[int]] = field(default_factory=list)
    """[B][T]: what the text machine, or the prefix, made of it."""
    frames: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    """int64 [B, Q, T - max delay]: what goes to the codec."""
    end_steps: list[int | None] = field(default_factory=list)
    dtype: torch.dtype = torch.float32
    """Of the run."""

    @property
    def steps(self) -> int:
        return len(self.text_logits)

    def audio_logits(self, step: int, row: int, strength: float) -> torch.Tensor:
        """float32 [Q, card], under guidance if there is one."""
        both = torch.stack(self.heads[step - self.delay]).to(self.dtype)  # [Q, B or 2 B, card]
        if strength == 1.0:
            return both[:, row].float()
        rows = both.shape[1] // 2
        return (both[:, row + rows] + (both[:, row] - both[:, row + rows]) * strength).float()


def generate(
    folder: Path,
    raw: Json,
    rows: Sequence[Row],
    *,
    strength: float = 1.0,
    codebooks: int | None = None,
    padding_bonus: float = 0.0,
    max_padding: int = 8,
    steps: int = 90,
    dtype: torch.dtype = torch.float32,
) -> Record:
    """moshi speaks the rows as one batch, each token its arg-max. strength: of guidance by a second row."""
    info = checkpoint_info(folder, raw)
    with no_compile(), torch.no_grad():
        lm = info.get_moshi(dtype=dtype)
        tts = info.tts_config
        model = TTSModel(
            lm=lm,
            mimi=cast(Any, None),  # generate() asks it for nothing
            tokenizer=cast(Any, None),
            voice_suffix="",
            voice_repo="",
            machine=StateMachine(TokenIds(lm.text_card + 1), tts.get("second_stream_ahead", 0), max_padding, 2),
            delay_steps=int(tts["audio_delay"] * FRAME_RATE),
            n_q=codebooks or lm.dep_q,
            cfg_coef=strength,
            padding_bonus=padding_bonus,
            max_gen_length=steps,
        )
        if codebooks is not None:
            lm.dep_q = codebooks
        record = Record(model.delay_steps, tuple(lm.delays[1 : 1 + model.n_q]), dtype=dtype)
        _tap(lm, record, model.n_q, len(rows))
        hears = "speaker_wavs" in raw["conditioners"]
        entries = [[MachineEntry(list(e.tokens), "w", e.padding) for e in row.marked(hears)] for row in rows]
        prefixes = [row.prefix for row in rows] if rows[0].prefix is not None else None
        result = model.generate(
            entries,
            [_attributes(model, raw, row) for row in rows],
            prefixes=cast(Any, copy.deepcopy(prefixes)),
            use_sampling=False,
        )
    for row in range(len(rows)):
        record.sampled.append([pair[0] for pair in result.logged_text_tokens[row]])
        record.fed.append([pair[1] for pair in result.logged_text_tokens[row]])
    record.frames = torch.cat(result.frames, dim=2)[:, 1:]
    record.end_steps = list(result.end_steps)
    return record


def _attributes(model: TTSModel, raw: Json, row: Row) -> ConditionAttributes:
    attributes = model.make_condition_attributes(list(row.voices), row.cfg)
    attributes.text = {name: value for name, value in attributes.text.items() if name in raw["conditioners"]}
    return attributes


def _tap(lm: LMModel, record: Record, generated: int, rows: int) -> None:
    """Record what the heads say, as they say it."""

    def on_text(_head: object, _args: object, out: torch.Tensor) -> None:
        record.text_logits.append(out[:rows, 0].float().clone())

    def on_audio(_head: object, _args: object, out: torch.Tensor) -> None:
        if not record.heads or len(record.heads[-1]) == generated:
            record.heads.append([])
        record.heads[-1].append(out[:, 0].float().clone())

    lm.text_linear.register_forward_hook(on_text)
    for head in lm.linears:
        head.register_forward_hook(on_audio)
