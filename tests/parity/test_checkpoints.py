"""Parity with moshi's own ``TTSModel.generate`` over random checkpoints that together turn every switch, arg-max,
float32: every token, and every logit to 1e-4. Where the reference's two best logits nearly tie, its choice is taken."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

from cuda_ext.build import compiler
from engine.checkpoint import MimiCheckpoint, load_language_model
from engine.codec.mimi.config import PUBLISHED
from engine.codec.mimi.weights import MimiWeights
from engine.codec.streams import Saved
from engine.contract import Entry
from engine.dsm import DsmEngine
from engine.kernels import TorchKernels
from engine.loading import torch_engine
from engine.step import Forced
from engine.voices import VoicedOptions

if TYPE_CHECKING:
    from tests.parity.tiny_checkpoints import Json, Record, Row

pytest.importorskip("moshi")

TOLERANCE = 1e-4
NEAR_TIE = 1e-4
MAX_NEAR_TIES = 3
STEPS = 70
PADDING_ID = 3
"""Index of the padding token, to which the bonus goes."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    changes: dict[str, Any] = field(default_factory=dict)
    voiced: bool = True
    """Of the kind that hears voices."""
    voices: tuple[int, ...] = (1, 2)
    """Speakers of each row."""
    cfg: tuple[float | None, ...] = (2.0, 1.5)
    """Of each row, looked up if the model was distilled for it."""
    strength: float = 1.0
    prefix: int = 0
    codebooks: int | None = None
    fused: bool = False
    padding_bonus: float = 0.0
    max_padding: int = 8
    steps: int = STEPS


def tts(ahead: int, delay: float = 0.4) -> dict[str, Any]:
    return {"tts_config": {"audio_delay": delay, "second_stream_ahead": ahead}}


CASES = (
    Case("as published"),
    Case("three and five voices, no look-ahead", tts(0), voices=(3, 5), cfg=(1.0, 1.5)),
    Case("one word ahead, fused projections", tts(1), voices=(4, 1), fused=True, max_padding=3),
    Case(
        "three words ahead, one weight set a codebook, full rank",
        tts(3) | {"depformer_weights_per_step_schedule": None, "depformer_low_rank_embeddings": None},
        padding_bonus=1.5,
    ),
    Case("the ring wraps", {"context": 9} | tts(2), cfg=(2.0, 2.0)),
    Case("small text head, norms before the heads", {"text_card_out": 5, "depformer_norm": "rms_norm_f32"}),
    Case("fewer codebooks than there are", codebooks=2, voices=(2, 1)),
    Case(
        "guided voices",
        {
            "conditioners": None,
            "fuser": {"sum": ["control"], "cross": ["speaker_wavs"], "cross_attention_pos_emb": True},
        },
        strength=2.0,
    ),
    Case("guided, no conditions at all", voiced=False, strength=3.0),
    Case("audio prefix", voiced=False, prefix=9),
    Case("guided audio prefix, uneven delays", {"delays": [0, 0, 1, 3, 2]}, voiced=False, prefix=12, strength=2.0),
    Case(
        "one plain text stream",
        tts(0) | {"demux_second_stream": False, "delays": [1, 1, 2, 3, 4], "norm_emb": True},
        voiced=False,
    ),
    Case(
        "layer norms, sine positions, plain feed-forward, layer scale",
        {
            "norm": "layer_norm",
            "positional_embedding": "sin",
            "gating": "none",
            "layer_scale": 0.1,
            "depformer_gating": "gelu",
            "depformer_layer_scale": 0.1,
            "depformer_pos_emb": "sin",
            "depformer_norm": "layer_norm",
            "bias_proj": True,
            "extra_heads_num_heads": 2,
        },
    ),
    Case(
        "other norms and positions, widths by weight set",
        {
            "norm": "rms_norm",
            "positional_embedding": "sin_rope",
            "positional_scale": 0.5,
            "depformer_pos_emb": "rope",
            "depformer_multi_linear": False,
            "depformer_dim_feedforward": [72, 48, 96],
            "hidden_scale": 4,
            "gating": "mish",
            "existing_text_padding_id": 7,
        },
        voices=(5, 5),
    ),
    Case(
        "halved rotary positions, 32-bit layer norms, no acoustic delay",
        {
            "norm": "layer_norm_f32",
            "positional_embedding": "rope_concat",
            "depformer_pos_emb": "rope_concat",
            "delays": [0, 0, 0, 0, 0],
            "depformer_num_layers": 1,
        },
    ),
)


def configuration(case: Case) -> Json:
    from tests.parity import tiny_checkpoints as tiny

    changes = dict(case.changes)
    if "conditioners" in changes:
        changes["conditioners"] = tiny.conditioners("speaker_wavs", "control")
    return tiny.published(**changes) if case.voiced else tiny.plain(**changes)


def words(count: int, seed: int, card: int) -> tuple[Entry, ...]:
    rng = random.Random(seed)
    out = []
    for index in range(count):
        tokens = tuple(rng.randrange(4, card) for _ in range(rng.randint(1, 3)))
        padding = rng.choice([0, 0, 2]) if index else 0
        out.append(Entry((), 4) if index == 3 else Entry(tokens, padding))
    return tuple(out)


class Mute:
    """A codec of no sound: parity of the language model needs none."""

    def clear(self, slot: int) -> None: ...

    def decode(self, codes: torch.Tensor, slots: torch.Tensor, commit: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(slots), 1920)

    def tail(self, slot: int) -> torch.Tensor:
        return torch.zeros(0)

    def tails(self, slots: torch.Tensor, over: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(slots), 0)

    def save(self, slot: int) -> Saved:
        return ()

    def restore(self, slot: int, saved: Saved) -> None: ...


@dataclass(frozen=True, slots=True)
class Spoken:
    """A case in the reference's hands."""

    case: Case
    folder: Path
    rows: Sequence[Row]
    names: Sequence[tuple[str, ...]]
    record: Record


def speak(case: Case, folder: Path, dtype: torch.dtype = torch.float32) -> Spoken:
    """dtype: of the file, and of moshi's run."""
    from tests.parity import tiny_checkpoints as tiny

    raw = configuration(case)
    tiny.write_checkpoint(folder, raw, seed=len(case.name), fused=case.fused, dtype=dtype)
    rows, names = [], []
    for index in range(2):
        own = tuple(f"people/{index}-{n}" for n in range(case.voices[index])) if case.voiced else ()
        paths = tuple(tiny.write_voice(folder / "voices", name, seed) for seed, name in enumerate(own, 10 * index))
        prefix = None
        if case.prefix:
            own = (f"prefix-{index}",)
            prefix = write_prefix(folder / "voices", own[0], raw, case.prefix, index)
        entries = words(5 + index, 5 * index + len(case.name), raw["text_card"])
        cfg = case.cfg[index] if "cfg" in raw["conditioners"] else None
        rows.append(tiny.Row(entries, paths, cfg, prefix))
        names.append(own)
    record = tiny.generate(
        folder,
        raw,
        rows,
        strength=case.strength,
        codebooks=case.codebooks,
        padding_bonus=case.padding_bonus,
        max_padding=case.max_padding,
        steps=case.steps,
        dtype=dtype,
    )
    return Spoken(case, folder, rows, names, record)


def write_prefix(folder: Path, name: str, raw: Json, frames: int, seed: int) -> torch.Tensor:
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    codes = torch.randint(raw["card"], (raw["n_q"], frames), generator=torch.Generator().manual_seed(seed))
    save_file({"codes": codes}, folder / f"{name}.safetensors")
    return torch.cat([torch.full((1, frames), -1), codes])


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def spoken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, one_torch_thread: None) -> Spoken:
    return speak(request.param, tmp_path_factory.mktemp("checkpoint"))


def load(
    spoken: Spoken,
    row_by_row: bool = False,
    dtype: torch.dtype = torch.float32,
    int8: bool = False,
    phases: bool = False,
) -> DsmEngine:
    """phases: with the kernels for CUDA, on their host twin."""
    lm = load_language_model(spoken.folder, spoken.case.codebooks, dtype)
    model = MimiCheckpoint(
        spoken.folder, lm.config, PUBLISHED, lm.backbone, lm.depth, lm.conditioners, cast(MimiWeights, None), "tiny"
    )
    cpu, mute = torch.device("cpu"), Mute()
    return torch_engine(model, 3, cpu, dtype=dtype, codec=mute, row_by_row=row_by_row, int8=int8, native_kernels=phases)


def begin(engine: DsmEngine, spoken: Spoken, slots: Sequence[int]) -> None:
    case = spoken.case
    for slot, row, names in zip(slots, spoken.rows, spoken.names, strict=True):
        cfg = row.cfg if case.strength == 1.0 else case.strength
        if cfg is None and engine._config.guided:
            cfg = 1.0
        defaults = engine.info.defaults
        assert isinstance(defaults, VoicedOptions)
        options = dataclasses.replace(
            defaults,
            temperature=0.0,
            temperature_text=0.0,
            padding_bonus=case.padding_bonus,
            max_padding=case.max_padding,
            voices=names,
            cfg=cfg,
        )
        engine.open(slot, options)
        engine.push(slot, row.entries)
        engine.finish(slot)


def near(logits: torch.Tensor) -> torch.Tensor:
    best = logits.topk(2, dim=-1).values
    return best[..., 0] - best[..., 1] <= NEAR_TIE


def follow(
    engine: DsmEngine, spoken: Spoken, slots: Sequence[int], start: int = 0, late: tuple[int, int] = (0, 0)
) -> tuple[float, int]:
    """Steps the rows beside the record, each from step ``start`` on, ``late`` steps after the first; the largest
    difference of a logit, and the near ties."""
    worst, ties = 0.0, 0
    for tick in range(start, spoken.record.steps + max(late)):
        active = [
            (row, slot, tick - late[row])
            for row, slot in enumerate(slots)
            if start <= tick - late[row] < spoken.record.steps
        ]
        found = [expect(spoken, row, step) for row, _slot, step in active]
        ticket = engine.launch([slot for _row, slot, _step in active], forced(found))
        frames = engine.collect(ticket)
        assert all(frame.committed for frame in frames)
        assert isinstance(engine.kernels, TorchKernels)
        logits = engine.kernels.logits
        for at, (row, _slot, step) in enumerate(active):
            compare_tokens(spoken, row, step, ticket.output.tokens[at])
            worst = max(worst, float((ticket.output.text_logits[at] - found[at].text).abs().max()))
            audio = found[at].audio
            if audio is not None and logits is not None:
                worst = max(worst, float((logits[at] - audio).abs().max()))
            ties += found[at].ties
    return worst, ties


@dataclass(frozen=True, slots=True)
class Expected:
    """Of one row at one step."""

    text: torch.Tensor
    audio: torch.Tensor | None
    force_text: int
    force_audio: torch.Tensor
    ties: int


def expect(spoken: Spoken, row: int, step: int) -> Expected:
    record, case = spoken.record, spoken.case
    text = record.text_logits[step][row].clone()
    text[PADDING_ID] += case.padding_bonus
    tied = bool(near(text))
    force_audio, audio, ties = torch.full((len(record.delays),), -1), None, int(tied)
    if step >= record.delay:
        audio = record.audio_logits(step, row, case.strength)
        force_audio = torch.where(near(audio), audio.argmax(dim=-1), -1)
        ties += int((near(audio) & (step >= torch.tensor(record.delays) + record.delay)).sum())
    return Expected(text, audio, record.sampled[row][step] if tied else -1, force_audio, ties)


def forced(found: Sequence[Expected]) -> Forced:
    return Forced(torch.tensor([row.force_text for row in found]), torch.stack([row.force_audio for row in found]))


def compare_tokens(spoken: Spoken, row: int, step: int, tokens: torch.Tensor) -> None:
    record = spoken.record
    assert int(tokens[0]) == record.fed[row][step], f"row {row}, text, step {step}"
    for book, delay in enumerate(record.delays):
        if 0 <= step - delay < record.frames.shape[2]:
            want = int(record.frames[row, book, step - delay])
            assert int(tokens[1 + book]) == want, f"row {row}, codebook {book}, step {step}"


def test_spread_of_the_logits(spoken: Spoken) -> None:
    """Otherwise arg-max would prove little."""
    record = spoken.record
    assert float(torch.stack(record.text_logits).std()) >= 1.0
    assert float(torch.cat([torch.stack(heads) for heads in record.heads]).std()) >= 1.0
    assert record.steps > record.delay + max(record.delays) + 20
    sounds = {tuple(frame.tolist()) for frame in record.frames[0, :, record.delay :].T}
    assert len(sounds) >= 8, "the reference says the same all the time"


def test_tokens_and_logits(spoken: Spoken) -> None:
    engine = load(spoken)
    begin(engine, spoken, [2, 0])
    worst, ties = follow(engine, spoken, [2, 0])
    assert worst <= TOLERANCE
    assert ties <= MAX_NEAR_TIES
    assert None not in spoken.record.end_steps, "the case is cut short"


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_kernels_for_cuda_on_their_host_twin(spoken: Spoken) -> None:
    engine = load(spoken, phases=True)
    begin(engine, spoken, [2, 0])
    worst, ties = follow(engine, spoken, [2, 0])
    assert worst <= TOLERANCE
    assert ties <= MAX_NEAR_TIES


def test_rows_that_join_later_and_alone(spoken: Spoken) -> None:
    """The second row comes in the middle of the first; each row is computed by itself, as on a CPU in production."""
    engine = load(spoken, row_by_row=True)
    begin(engine, spoken, [0, 1])
    worst, _ties = follow(engine, spoken, [0, 1], late=(0, 7))
    assert worst <= TOLERANCE
    if spoken.case.prefix:
        engine.close(0)
        engine.close(1)
        begin(engine, spoken, [2, 0])
        assert engine._buffers.position(torch.tensor([2, 0])).tolist() == [spoken.case.prefix] * 2
        worst, _ties = follow(engine, spoken, [2, 0], start=spoken.case.prefix)
        assert worst <= TOLERANCE
