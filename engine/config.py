"""Kyutai's ``config.json`` (LM, depformer, text machine, sampling) and the spectral codec's ``codec.json``, frozen.

Field names and defaults follow moshi 0.2.13 (``models/loaders.py``, ``models/lm.py``, ``models/tts.py``). What the
engine cannot run is refused by name, never ignored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError, UnsupportedModel

NEW_WORD = 0
"""Text token that asks for the next word (moshi ``TokenIds.new_word``)."""
ZERO = -1
"""Token whose embedding is exactly zero."""


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    dim: int
    heads: int
    layers: int
    hidden: int
    """Width of the gated feed-forward layer (moshi ``modules/gating.py``)."""


@dataclass(frozen=True, slots=True)
class TextMachineConfig:
    delay_steps: int
    """Steps by which audio trails text."""
    second_stream_ahead: int
    """Words of look-ahead in the demuxed second text stream; 0 = none."""
    initial_padding: int
    max_padding: int
    final_padding: int


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    temperature: float
    temperature_text: float
    top_k: int
    top_k_text: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    backbone: TransformerConfig
    depth: TransformerConfig
    depth_schedule: tuple[int, ...]
    """Codebook -> weight set of the depth transformer."""
    codebooks: int
    card: int
    text_card: int
    text_card_out: int
    padding_id: int
    context: int
    """Steps that the backbone's ring of keys and values holds."""
    max_period: float
    delays: tuple[int, ...]
    """Acoustic delays in steps: text first, then one a codebook."""
    text: TextMachineConfig
    sampling: SamplingConfig
    lm_name: str
    codec_name: str
    tokenizer_name: str

    @property
    def max_delay(self) -> int:
        return max(self.delays)

    @property
    def depth_sets(self) -> int:
        return max(self.depth_schedule) + 1

    @property
    def warm_up_steps(self) -> int:
        """Steps of a generation that yield no audio."""
        return self.text.delay_steps + self.max_delay


@dataclass(frozen=True, slots=True)
class SpectralConfig:
    sample_rate: int
    codebooks: int
    bins: int
    latent_dim: int
    frame_dim: int
    frame_hidden: int
    frame_layers: int
    frame_kernel: int
    subframes: int
    dim: int
    hidden: int
    layers: int
    kernel: int
    n_fft: int
    hop: int
    gain: float
    log_magnitude_max: float

    @property
    def frame_samples(self) -> int:
        return self.subframes * self.hop

    @property
    def overlap(self) -> int:
        """Samples of a frame that only the next frame completes."""
        return self.n_fft - self.hop


def _gated_hidden(dim: int, feed_forward: int) -> int:
    return 21 * dim // 8 if feed_forward == 4 * dim else 2 * feed_forward // 3


_FIXED: dict[str, object] = {
    "causal": True,
    "layer_scale": None,
    "gating": "silu",
    "norm": "rms_norm_f32",
    "positional_embedding": "rope",
    "depformer_layer_scale": None,
    "depformer_multi_linear": True,
    "depformer_gating": "silu",
    "depformer_pos_emb": "none",
    "depformer_weights_per_step": True,
    "demux_second_text_stream": True,
    "model_type": "tts",
}
_OPEN = frozenset(
    {
        "dim",
        "text_card",
        "existing_text_padding_id",
        "n_q",
        "dep_q",
        "card",
        "num_heads",
        "num_layers",
        "hidden_scale",
        "context",
        "max_period",
        "depformer_dim",
        "depformer_dim_feedforward",
        "depformer_num_heads",
        "depformer_num_layers",
        "depformer_max_period",
        "depformer_weights_per_step_schedule",
        "delays",
        "text_card_out",
        "moshi_name",
        "mimi_name",
        "tokenizer_name",
        "tts_config",
        "lm_gen_config",
    }
)


def load_model_config(folder: Path) -> ModelConfig:
    """Read ``config.json``.

    Raises:
        CheckpointError: the file is missing, is not JSON, or lacks a field.
        UnsupportedModel: a field is unknown or has a value that this engine does not run.
    """
    path = folder / "config.json"
    raw = _read_json(path)
    for name, value in raw.items():
        if name in _FIXED:
            if value != _FIXED[name]:
                raise UnsupportedModel(name, value)
        elif name not in _OPEN:
            raise UnsupportedModel(name, value)
    for name in _FIXED:
        if name not in raw:
            raise CheckpointError(str(path), f"field {name!r} is missing")
    try:
        return _model_config(raw)
    except KeyError as missing:
        raise CheckpointError(str(path), f"field {missing} is missing") from missing
    except (TypeError, ValueError) as wrong:
        raise CheckpointError(str(path), f"a field has the wrong type ({wrong})") from wrong


def _model_config(raw: dict[str, Any]) -> ModelConfig:
    if raw["n_q"] != raw["dep_q"]:
        raise UnsupportedModel("dep_q", raw["dep_q"])
    dim, depth_dim = int(raw["dim"]), int(raw["depformer_dim"])
    schedule = tuple(int(index) for index in raw["depformer_weights_per_step_schedule"])
    delays = tuple(int(delay) for delay in raw["delays"])
    if len(schedule) != raw["dep_q"] or len(delays) != raw["n_q"] + 1 or min(*delays, *schedule) < 0 or delays[0] != 0:
        raise UnsupportedModel("delays", list(delays))
    tts, sampling = raw["tts_config"], raw.get("lm_gen_config", {})
    return ModelConfig(
        backbone=TransformerConfig(
            dim, int(raw["num_heads"]), int(raw["num_layers"]), _gated_hidden(dim, int(raw["hidden_scale"] * dim))
        ),
        depth=TransformerConfig(
            depth_dim,
            int(raw["depformer_num_heads"]),
            int(raw["depformer_num_layers"]),
            _gated_hidden(depth_dim, int(raw["depformer_dim_feedforward"])),
        ),
        depth_schedule=schedule,
        codebooks=int(raw["n_q"]),
        card=int(raw["card"]),
        text_card=int(raw["text_card"]),
        text_card_out=int(raw.get("text_card_out") or raw["text_card"]),
        padding_id=int(raw["existing_text_padding_id"]),
        context=int(raw["context"]),
        max_period=float(raw["max_period"]),
        delays=delays,
        text=TextMachineConfig(
            delay_steps=round(float(tts["audio_delay"]) * 12.5),
            second_stream_ahead=int(tts["second_stream_ahead"]),
            initial_padding=int(tts.get("initial_padding", 2)),
            max_padding=int(tts.get("max_padding", 8)),
            final_padding=int(tts.get("final_padding", 4)),
        ),
        sampling=SamplingConfig(
            temperature=float(sampling.get("temp", 0.6)),
            temperature_text=float(sampling.get("temp_text", 0.6)),
            top_k=int(sampling.get("top_k", 250)),
            top_k_text=int(sampling.get("top_k_text", 25)),
        ),
        lm_name=str(raw["moshi_name"]),
        codec_name=str(raw["mimi_name"]),
        tokenizer_name=str(raw["tokenizer_name"]),
    )


def load_spectral_config(folder: Path) -> SpectralConfig:
    """Read ``codec.json``.

    Raises:
        CheckpointError: the file is missing, is not JSON, or lacks a field.
        UnsupportedModel: a field is unknown, or the codec is not a spectral one.
    """
    path = folder / "codec.json"
    raw = _read_json(path)
    if raw.pop("type", None) != "spectral":
        raise UnsupportedModel("type", raw.get("type"))
    raw.pop("frame_rate", None)
    for name in raw:
        if name not in SpectralConfig.__slots__:
            raise UnsupportedModel(name, raw[name])
    try:
        return SpectralConfig(**raw)
    except TypeError as wrong:
        raise CheckpointError(str(path), str(wrong)) from wrong


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(str(path), f"cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise CheckpointError(str(path), f"is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise CheckpointError(str(path), "is not a JSON object")
    return value
