"""Kyutai's published ``config.json`` -> ``ModelConfig``.

Every argument that moshi 0.2.13's loader takes (``models/loaders.py``, ``models/lm.py``, ``modules/transformer.py``) is
taken with its default, or refused by name; so is any other field, unless it plainly is a note for people. Inside the
objects whose further fields moshi itself ignores (``tts_config``, ``lm_gen_config``, ``model_id``) they are logged.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from engine.config import (
    FRAME_RATE,
    ConditionerConfig,
    FuserConfig,
    ModelConfig,
    SamplingConfig,
    TextMachineConfig,
    TransformerConfig,
)
from engine.errors import CheckpointError, UnsupportedModel
from engine.fields import Fields, read_json

log = logging.getLogger(__name__)

NORMS = ("layer_norm", "layer_norm_f32", "rms_norm", "rms_norm_f32")
POSITIONS = ("sin", "rope", "sin_rope", "rope_concat", "none")
GATES = ("silu", "gelu", "relu", "sigmoid", "tanh", "leaky_relu", "elu", "mish", "softsign", "identity", "none")
NOTES = frozenset(
    {
        "description",
        "license",
        "name",
        "version",
        "author",
        "authors",
        "comment",
        "language",
        "languages",
        "tags",
        "url",
    }
)
PADDING_ID = 3
"""moshi ``models/tts.py`` ``TokenIds.pad``: of every text-to-speech model, whatever its configuration says."""
MOST_CODEBOOKS, MOST_LAYERS, MOST_DELAY = 256, 512, 512
UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "quantize": (False, None),
    "lora": (False, None),
    "lora_name": (None,),
    "kv_repeat": (1,),
    "depformer_kv_repeat": (1,),
    "skip_self_attn": (False,),
    "depformer_skip_self_attn": (False,),
    "weights_per_step": (0,),
    "weights_per_step_schedule": (None,),
    "causal": (True,),
    "depformer_weights_per_step": (True,),
}
"""Arguments of moshi's with the values that the engine runs them with."""
UNUSED = (
    "existing_text_padding_id",
    "depformer_causal",
    "depformer_context",
    "depformer_cross_attention",
    "depformer_positional_embedding",
    "existing_text_end_padding_id",
    "gradient_checkpointing",
    "betas",
    "depformer_betas",
    "lora_rank",
    "lora_scaling",
    "stt_config",
)
"""Arguments that change nothing of what moshi generates."""


def load_model_config(folder: Path, codebooks: int | None = None) -> ModelConfig:
    """Read ``config.json``. codebooks: generate only so many, as moshi's ``TTSModel.n_q``.

    Raises:
        CheckpointError: the file is missing, is not JSON, lacks a field, or has one of a wrong type or range.
        UnsupportedModel: a field is unknown or has a value that this engine does not run.
    """
    path = folder / "config.json"
    return read_model_config(Fields(path, read_json(path)), (folder / "codec.json").exists(), codebooks)


def read_model_config(raw: Fields, own_sampling: bool = False, codebooks: int | None = None) -> ModelConfig:
    """own_sampling: ``lm_gen_config`` counts; moshi's text-to-speech ignores it."""
    _refuse(raw)
    conditioners, fuser = _conditioners(raw), _fuser(raw)
    demux = _demux(raw)
    delays = raw.wholes("delays", [0])
    streams = raw.whole("n_q", 8, least=1, most=MOST_CODEBOOKS)
    stored = raw.whole("dep_q", 8, least=1, most=MOST_CODEBOOKS)
    if len(delays) != streams + 1 or max(delays) > MOST_DELAY:
        raise raw.wrong("delays", f"a list of {streams + 1} delays up to {MOST_DELAY}")
    if stored > streams:
        raise UnsupportedModel("dep_q", stored)
    schedule = _schedule(raw, stored)
    backbone, depth, hidden = _transformers(raw, max(schedule) + 1)
    generated = stored if codebooks is None else codebooks
    if not 1 <= generated <= stored:
        raise UnsupportedModel("n_q", codebooks)
    text_card = raw.whole("text_card", 32000, least=PADDING_ID + 1, most=1 << 20)
    config = ModelConfig(
        backbone=backbone,
        depth=depth,
        depth_schedule=schedule[:generated],
        codebooks=streams,
        card=raw.whole("card", 1024, least=1, most=1 << 20),
        text_card=text_card,
        text_card_out=raw.whole("text_card_out", text_card, least=PADDING_ID + 1, most=1 << 20),
        padding_id=PADDING_ID,
        context=raw.whole("context", least=1, most=1 << 20),
        delays=delays,
        text=_text_machine(raw, demux),
        sampling=_sampling(raw, own_sampling),
        lm_name=raw.file("moshi_name", "model.safetensors"),
        codec_name=raw.file("mimi_name", "tokenizer-e351c8d8-checkpoint125.safetensors"),
        tokenizer_name=raw.file("tokenizer_name", "tokenizer_spm_32k_3.model"),
        codec_config_name=raw.file("mimi_config_name") if raw.given("mimi_config_name") else None,
        demux=demux,
        stored_depth=stored,
        stored_sets=max(schedule) + 1,
        depth_inputs=raw.flag("depformer_multi_linear"),
        depth_hidden=hidden,
        depth_norm=_depth_norm(raw),
        low_rank=_optional(raw, "depformer_low_rank_embeddings"),
        norm_embeddings=raw.flag("norm_emb"),
        head_bias=raw.flag("bias_proj"),
        extra_heads=(
            raw.whole("extra_heads_num_heads", 0, most=MOST_CODEBOOKS),
            raw.whole("extra_heads_dim", 6, least=1),
        ),
        conditioners=conditioners,
        fuser=fuser,
        voice_signature=_signature(raw),
    )
    _leftovers(raw)
    _consistent(config)
    return config


def _refuse(raw: Fields) -> None:
    raw.choice("model_type", "moshi", ("tts", "moshi"))
    for field, values in UNSUPPORTED.items():
        if field == "depformer_weights_per_step" and not raw.has(field):
            raise UnsupportedModel(field, False)  # moshi's default, which it cannot stream
        raw.fixed(field, *values)
    for field in UNUSED:
        raw.take(field)


def _optional(raw: Fields, field: str) -> int | None:
    return raw.whole(field, least=1) if raw.given(field) else None


def _depth_norm(raw: Fields) -> str | None:
    return raw.choice("depformer_norm", None, NORMS) if raw.given("depformer_norm") else None


def _demux(raw: Fields) -> bool:
    newer = raw.flag("demux_second_text_stream")
    return raw.flag("demux_second_stream", newer)


def _schedule(raw: Fields, stored: int) -> tuple[int, ...]:
    field = "depformer_weights_per_step_schedule"
    schedule = raw.wholes(field, list(range(stored)))
    if len(schedule) != stored or max(schedule) >= MOST_CODEBOOKS:
        raise raw.wrong(field, f"a list of {stored} weight sets")
    return schedule


def _transformers(raw: Fields, sets: int) -> tuple[TransformerConfig, TransformerConfig, tuple[int, ...]]:
    """Backbone, depth transformer (which takes what it is not told from the backbone), feed-forward width of each
    weight set of the latter."""
    scale = raw.number("hidden_scale", 4, least=1e-3, most=1e3)
    norm = raw.choice("norm", "layer_norm", NORMS)
    dim, depth_dim = (
        raw.whole("dim", 128, least=2, most=1 << 16),
        raw.whole("depformer_dim", 256, least=2, most=1 << 16),
    )
    gate, layers = raw.choice("gating", "none", GATES), raw.whole("num_layers", least=1, most=MOST_LAYERS)
    period = raw.number("max_period", 10000, least=1)
    positional = raw.number("positional_scale", 1)
    scaled = _layer_scale(raw, "layer_scale", False)
    backbone = TransformerConfig(
        dim=dim,
        heads=raw.whole("num_heads", 8, least=1),
        layers=layers,
        hidden=_hidden(gate, dim, int(scale * dim)),
        norm=norm,
        gating=gate,
        positions=raw.choice("positional_embedding", "sin", POSITIONS),
        max_period=period,
        positional_scale=positional,
        layer_scale=scaled,
        cross_attention=raw.flag("cross_attention"),
    )
    depth_gate = raw.choice("depformer_gating", gate, GATES)
    if depth_gate == "none":
        raise UnsupportedModel("depformer_gating", depth_gate)
    widths = _depth_widths(raw, sets, int(scale * depth_dim))
    hidden = tuple(_hidden(depth_gate, depth_dim, width) for width in widths)
    depth = TransformerConfig(
        dim=depth_dim,
        heads=raw.whole("depformer_num_heads", least=1),
        layers=raw.whole("depformer_num_layers", layers, least=1, most=MOST_LAYERS),
        hidden=hidden[0],
        norm=norm,
        gating=depth_gate,
        positions=raw.choice("depformer_pos_emb", "sin", POSITIONS),
        max_period=raw.number("depformer_max_period", period, least=1),
        positional_scale=raw.number("depformer_positional_scale", positional),
        layer_scale=_layer_scale(raw, "depformer_layer_scale", scaled),
    )
    return backbone, depth, hidden


def _layer_scale(raw: Fields, field: str, inherited: bool) -> bool:
    """Given as a number (its initial value) or null."""
    if not raw.has(field):
        return inherited
    if not raw.given(field):
        return False
    raw.number(field)
    return True


def _depth_widths(raw: Fields, sets: int, otherwise: int) -> tuple[int, ...]:
    field = "depformer_dim_feedforward"
    if isinstance(raw.left().get(field), list):
        widths = raw.wholes(field)
        if len(widths) != sets:
            raise raw.wrong(field, f"a number or a list of {sets}")
        return widths
    return (raw.whole(field, otherwise),) * sets


def _hidden(gate: str, dim: int, feed_forward: int) -> int:
    """moshi ``modules/gating.py``."""
    if gate == "none":
        return feed_forward
    return 21 * dim // 8 if feed_forward == 4 * dim else 2 * feed_forward // 3


def _text_machine(raw: Fields, demux: bool) -> TextMachineConfig:
    if not raw.has("tts_config"):
        raise CheckpointError(str(raw.path), "field 'tts_config' is missing: not a text-to-speech model")
    tts = raw.inner("tts_config")
    tts.fixed("multistream", False)
    ahead = tts.whole("second_stream_ahead", 0, most=16)
    if ahead and not demux:
        raise UnsupportedModel("tts_config.second_stream_ahead", ahead)
    config = TextMachineConfig(
        delay_steps=int(tts.number("audio_delay", least=0, most=60) * FRAME_RATE),
        second_stream_ahead=ahead,
        initial_padding=tts.whole("initial_padding", 2, most=1000),
        max_padding=tts.whole("max_padding", 8, most=1000),
        final_padding=tts.whole("final_padding", 4, most=1000),
    )
    _note(tts)
    return config


def _sampling(raw: Fields, own: bool) -> SamplingConfig:
    """moshi's text-to-speech takes one temperature for text and audio, and ``LMGen``'s own top k."""
    given = raw.inner("lm_gen_config")
    if not own:
        return SamplingConfig(temperature=0.6, temperature_text=0.6, top_k=250, top_k_text=25)
    config = SamplingConfig(
        temperature=given.number("temp", 0.6, least=0),
        temperature_text=given.number("temp_text", 0.6, least=0),
        top_k=given.whole("top_k", 250),
        top_k_text=given.whole("top_k_text", 25),
    )
    _note(given)
    return config


def _conditioners(raw: Fields) -> tuple[ConditionerConfig, ...] | None:
    if not raw.has("conditioners"):
        return None
    given = raw.inner("conditioners")
    return tuple(_conditioner(given.inner(name), name) for name in given.left())


def _conditioner(given: Fields, name: str) -> ConditionerConfig:
    kind = given.choice("type", None, ("lut", "tensor"))
    if name not in (("cfg", "control") if kind == "lut" else ("speaker_wavs",)):
        raise UnsupportedModel(given.at.rstrip("."), kind)  # nothing that text-to-speech could give it
    if not given.has(kind):
        raise CheckpointError(str(given.path), f"field {given.name(kind)!r} is missing")
    table = given.inner(kind)
    bins, values = 0, None
    if kind == "lut":
        bins = table.whole("n_bins", least=1)
        table.choice("tokenizer", None, ("noop",))
        values = table.texts("possible_values") if table.given("possible_values") else None
        table.take("init_scale")
        if values is not None and len(values) > bins:
            raise table.wrong("possible_values", f"a list of up to {bins} strings")
    table.fixed("output_bias", False)
    table.take("pad_empty")
    table.take("device")
    config = ConditionerConfig(
        name=name,
        dim=table.whole("dim", least=1, most=1 << 16),
        projected=table.flag("force_linear", True),
        learnt_padding=table.flag("learn_padding", True),
        bins=bins,
        values=values,
    )
    table.take("output_dim")
    table.none()
    _note(given)
    return config


def _fuser(raw: Fields) -> FuserConfig:
    given = raw.inner("fuser")
    given.fixed("prepend", [])
    config = FuserConfig(
        sums=given.texts("sum", []),
        cross=given.texts("cross", []),
        cross_positions=given.flag("cross_attention_pos_emb"),
        cross_scale=given.number("cross_attention_pos_emb_scale", 1),
    )
    given.none()
    return config


def _signature(raw: Fields) -> str:
    """moshi ``TTSModel.from_checkpoint_info``: voices for this model are named ``*.<sig>@<epoch>.safetensors``."""
    model = raw.inner("model_id")
    parts: list[Any] = [model.take("sig"), model.take("epoch")]
    _note(model)
    return "" if None in parts else f".{parts[0]}@{parts[1]}"


def _note(given: Fields) -> None:
    for field in given.left():
        log.warning("configuration field %r is unknown and is ignored", given.name(field))


def _leftovers(raw: Fields) -> None:
    for field, value in raw.left().items():
        if not field.startswith("_") and field not in NOTES:
            raise UnsupportedModel(field, value)
    _note(raw)


def _consistent(config: ModelConfig) -> None:
    """Raises UnsupportedModel for parts that do not go together."""
    for name, part in (("", config.backbone), ("depformer_", config.depth)):
        if part.dim % part.heads or ("rope" in part.positions and part.dim // part.heads % 2):
            raise UnsupportedModel(f"{name}num_heads", part.heads)
        if "sin" in part.positions and part.dim % 2:
            raise UnsupportedModel(f"{name}dim", part.dim)
        if part.hidden < 1:
            raise UnsupportedModel("hidden_scale", part.hidden)
    if min(config.set_hidden) < 1:
        raise UnsupportedModel("depformer_dim_feedforward", min(config.set_hidden))
    if config.demux and config.norm_embeddings:
        raise UnsupportedModel("norm_emb", True)
    known = {c.name: c for c in config.conditioners or ()}
    for name in (*config.fuser.sums, *config.fuser.cross):
        if name not in known:
            raise UnsupportedModel("fuser", name)
    if any(known[name].bins == 0 for name in config.fuser.sums):
        raise UnsupportedModel("fuser.sum", list(config.fuser.sums))
    if known and not (config.fuser.sums or config.fuser.cross):
        raise UnsupportedModel("fuser", None)
    if config.backbone.cross_attention != bool(config.fuser.cross):
        raise UnsupportedModel("cross_attention", config.backbone.cross_attention)
    control = known.get("control")
    if control is not None and control.values is not None and "ok" not in control.values:
        raise UnsupportedModel("conditioners.control", list(control.values))
    _consistent_guidance(known.get("cfg"))


def _consistent_guidance(cfg: ConditionerConfig | None) -> None:
    if cfg is None:
        return
    try:
        valid = bool(cfg.values) and all(format(float(value), ".1f") == value for value in cfg.values or ())
    except ValueError:
        valid = False
    if not valid:
        raise UnsupportedModel("conditioners.cfg", cfg.values)
