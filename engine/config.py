"""What a model is made of, frozen: language model, conditioners, text machine, sampling, and the spectral codec.

Names follow moshi 0.2.13 (``models/lm.py``, ``models/tts.py``, ``modules/transformer.py``). ``engine/manifest.py``
reads the language model's part from a published ``config.json``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from engine.errors import CheckpointError, UnsupportedModel
from engine.fields import Fields, read_json

NEW_WORD = 0
"""Text token that asks for the next word (moshi ``TokenIds.new_word``)."""
ZERO = -1
"""Token whose embedding is exactly zero."""
FRAME_RATE = 12.5
"""Frames a second."""
MOST_SPEAKERS = 5
"""Voices that a model with cross attention hears at once (moshi ``TTSModel.max_speakers``)."""
VOICE_POSITIONS = 125
"""Of a voice as Kyutai publishes it: ten seconds."""


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    dim: int
    heads: int
    layers: int
    hidden: int
    """Width of the feed-forward layer: gated (moshi ``modules/gating.py``), or plain where ``gating`` is ``none``."""
    norm: str = "rms_norm_f32"
    """layer_norm | layer_norm_f32 | rms_norm | rms_norm_f32"""
    gating: str = "silu"
    """The gate's activation; ``none``: a plain feed-forward layer with GELU."""
    positions: str = "rope"
    """sin | rope | sin_rope | rope_concat | none"""
    max_period: float = 10000.0
    positional_scale: float = 1.0
    """Of the sinusoidal embedding."""
    layer_scale: bool = False
    cross_attention: bool = False


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
class ConditionerConfig:
    """moshi ``conditioners/``: a look-up table of ``bins`` values, or a projected tensor where ``bins`` is 0."""

    name: str
    dim: int
    projected: bool
    learnt_padding: bool
    bins: int = 0
    values: tuple[str, ...] | None = None
    """The table's rows by name; None: a row by hash."""


@dataclass(frozen=True, slots=True)
class FuserConfig:
    sums: tuple[str, ...] = ()
    cross: tuple[str, ...] = ()
    cross_positions: bool = False
    cross_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    backbone: TransformerConfig
    depth: TransformerConfig
    depth_schedule: tuple[int, ...]
    """Generated codebook -> weight set of the depth transformer."""
    codebooks: int
    """Audio streams that the backbone reads."""
    card: int
    text_card: int
    text_card_out: int
    padding_id: int
    context: int
    """Steps that the backbone's ring of keys and values holds."""
    delays: tuple[int, ...]
    """Delays in steps: text first, then one a codebook."""
    text: TextMachineConfig
    sampling: SamplingConfig
    lm_name: str
    codec_name: str
    tokenizer_name: str
    codec_config_name: str | None = None
    """File with the codec's configuration; None: Mimi as published."""
    demux: bool = True
    """Whether a text token holds two streams, ``(second + 1) * (text_card + 1) + main``."""
    stored_depth: int = 0
    """Codebooks that the stored depth transformer has; 0: as many as it generates."""
    stored_sets: int = 0
    """Weight sets that the stored depth transformer has; 0: as many as the schedule names."""
    depth_inputs: bool = True
    """Whether each weight set has an input projection of its own."""
    depth_hidden: tuple[int, ...] = ()
    """Feed-forward width of each weight set; empty: ``depth.hidden`` for all."""
    depth_norm: str | None = None
    """Kind of the norm before each codebook's head."""
    low_rank: int | None = None
    """Rank of the depth transformer's embeddings."""
    norm_embeddings: bool = False
    head_bias: bool = False
    extra_heads: tuple[int, int] = (0, 0)
    """Count and width of heads that text-to-speech does not use."""
    conditioners: tuple[ConditionerConfig, ...] | None = None
    """None: the model knows no conditions and no guidance."""
    fuser: FuserConfig = FuserConfig()
    voice_signature: str = ""
    """What the file names of voices for this model end on, before ``.safetensors``."""

    @property
    def max_period(self) -> float:
        return self.backbone.max_period

    @property
    def generated(self) -> int:
        """Codebooks that the depth transformer generates; the backbone is fed -1 for the rest."""
        return len(self.depth_schedule)

    @property
    def max_delay(self) -> int:
        return max(self.delays)

    @property
    def depth_sets(self) -> int:
        return self.stored_sets or max(self.depth_schedule) + 1

    @property
    def warm_up_steps(self) -> int:
        """Steps of a generation that yield no audio."""
        return self.text.delay_steps + self.max_delay

    @property
    def set_hidden(self) -> tuple[int, ...]:
        """Feed-forward width of each weight set of the depth transformer."""
        return self.depth_hidden or (self.depth.hidden,) * self.depth_sets

    def conditioner(self, name: str) -> ConditionerConfig | None:
        return next((c for c in self.conditioners or () if c.name == name), None)

    @property
    def hears_voices(self) -> bool:
        """Whether voices come in through cross attention."""
        return self.conditioner("speaker_wavs") is not None

    @property
    def takes_prefixes(self) -> bool:
        """Whether a voice is audio that the model goes on from."""
        return self.conditioners is not None and not self.hears_voices

    @property
    def guidance_values(self) -> tuple[float, ...]:
        """Guidance strengths that the model was distilled for; empty: none."""
        cfg = self.conditioner("cfg")
        return tuple(sorted(float(value) for value in cfg.values or ())) if cfg else ()

    @property
    def guided(self) -> bool:
        """Whether guidance is by a second, unconditional row for each slot (moshi ``LMGen`` ``cfg_coef``)."""
        return self.conditioners is not None and not self.guidance_values


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


def load_spectral_config(folder: Path) -> SpectralConfig:
    """Read ``codec.json``.

    Raises:
        CheckpointError: the file is missing, is not JSON, or lacks a field.
        UnsupportedModel: a field is unknown, or the codec is not a spectral one.
    """
    path = folder / "codec.json"
    raw = Fields(path, read_json(path))
    if (kind := raw.take("type")) != "spectral":
        raise UnsupportedModel("type", kind)
    raw.take("frame_rate")
    numbers = {
        field.name: raw.number(field.name, least=0.0) if field.type == "float" else raw.whole(field.name, least=1)
        for field in fields(SpectralConfig)
    }
    raw.none()
    try:
        return SpectralConfig(**numbers)  # type: ignore[arg-type]
    except TypeError as wrong:
        raise CheckpointError(str(path), str(wrong)) from wrong
