"""Voices and options of a slot: who speaks, shared and kept, refused by name, and never mixed up in a batch."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import cast

import pytest
import torch
from safetensors.torch import save_file

from engine import conditioners, shelf
from engine.checkpoint import MimiCheckpoint, load_language_model
from engine.codec.mimi.config import PUBLISHED
from engine.codec.mimi.weights import MimiWeights
from engine.contract import Entry
from engine.dsm import DsmEngine
from engine.errors import CheckpointError, EngineError, UnsupportedOption, UnusableVoice, VoiceNotFound
from engine.kernels import TorchKernels
from engine.loading import load_engine, torch_engine
from engine.voices import VoicedOptions, open_library

pytest.importorskip("moshi")

from tests.parity import tiny_checkpoints as tiny
from tests.parity.test_checkpoints import Mute

NAMES = ("anna", "bert", "carl/low", "dora")


def build(folder: Path, raw: tiny.Json) -> DsmEngine:
    tiny.write_checkpoint(folder, raw, seed=5)
    lm = load_language_model(folder)
    nothing = cast(MimiWeights, None)
    model = MimiCheckpoint(folder, lm.config, PUBLISHED, lm.backbone, lm.depth, lm.conditioners, nothing, digest="tiny")
    return torch_engine(model, 4, torch.device("cpu"), codec=Mute())


@pytest.fixture(scope="module")
def hearing(tmp_path_factory: pytest.TempPathFactory) -> DsmEngine:
    """A distilled model that hears voices."""
    folder = tmp_path_factory.mktemp("hearing")
    for seed, name in enumerate(NAMES):
        tiny.write_voice(folder / "voices", name, seed)
    tiny.write_voice(folder / "voices", "short", 9, positions=3)
    return build(folder, tiny.published())


@pytest.fixture
def going_on(tmp_path: Path) -> DsmEngine:
    """A model that goes on from audio, guided by a second row."""
    folder = tmp_path
    (folder / "voices").mkdir()
    for seed in range(2):
        codes = torch.randint(tiny.CARD, (4, 8), generator=torch.Generator().manual_seed(seed))
        save_file({"codes": codes}, folder / "voices" / f"p{seed}.safetensors")
    save_file({"codes": torch.full((4, 400), 1)}, folder / "voices" / "long.safetensors")
    save_file({"codes": torch.full((4, 8), tiny.CARD)}, folder / "voices" / "loud.safetensors")
    (folder / "voices" / "broken.safetensors").write_bytes(b"no")
    return build(folder, tiny.plain())


def options(engine: DsmEngine, *voices: str, cfg: float | None = None, **changes: float) -> VoicedOptions:
    defaults = engine.info.defaults
    assert isinstance(defaults, VoicedOptions)
    return dataclasses.replace(defaults, voices=voices, cfg=cfg, **changes)  # type: ignore[arg-type]


def conditions(engine: DsmEngine) -> conditioners.Conditions:
    assert isinstance(engine.kernels, TorchKernels)
    assert engine.kernels.conditions is not None
    return engine.kernels.conditions


def tokens(engine: DsmEngine, plans: dict[int, VoicedOptions], steps: int = 30) -> dict[int, list[list[int]]]:
    """What the slots say side by side, opened one step after the other."""
    out: dict[int, list[list[int]]] = {slot: [] for slot in plans}
    for slot, plan in plans.items():
        engine.open(slot, plan)
        engine.push(slot, [Entry((5 + i, 6)) for i in range(20)])
    order = list(plans)
    for tick in range(steps + len(order)):
        slots = [slot for at, slot in enumerate(order) if at <= tick < at + steps]
        if not slots:
            break
        ticket = engine.launch(slots)
        engine.collect(ticket)
        for slot, row in zip(slots, ticket.output.tokens.tolist(), strict=True):
            out[slot].append(row)
    for slot in plans:
        engine.close(slot)
    return out


def test_names_of_the_voices(hearing: DsmEngine) -> None:
    """The signature is no part of a name, and folders are."""
    assert hearing.info.voices == (*NAMES, "short")
    assert {"voice", "cfg"} <= hearing.info.options


@pytest.mark.parametrize("model", ["hearing", "going_on"])
def test_every_option_is_its_own_slots(model: str, request: pytest.FixtureRequest) -> None:
    engine = request.getfixturevalue(model)
    if model == "hearing":
        plans = {
            0: options(engine, "anna", cfg=1.0, seed=1),
            1: options(engine, "bert", "carl/low", cfg=2.0, seed=2, temperature=1.1, top_k=3),
            2: options(engine, "anna", cfg=1.5, seed=3, padding_bonus=2.0),
            3: options(engine, "short", seed=4, max_padding=2, temperature_text=0.0),
        }
    else:
        plans = {
            0: options(engine, "p0", cfg=1.0, seed=1),
            1: options(engine, "p1", cfg=3.0, seed=2, temperature=1.1, top_k=3),
            2: options(engine, "p0", cfg=2.0, seed=3, padding_bonus=2.0),
            3: options(engine, "p1", cfg=1.5, seed=4, max_padding=2, temperature_text=0.0),
        }
    for slot, plan in plans.items():
        tokens(engine, {slot: plan})  # a session that finds a snapshot starts behind its prefix
    together = tokens(engine, plans)
    for slot, plan in plans.items():
        other = (slot + 1) % 4
        assert tokens(engine, {other: plan})[other] == together[slot]
    assert len({str(said) for said in together.values()}) == 4


@pytest.mark.parametrize("change", [{"cfg": 1.0}, {"voices": ("bert",)}, {"voices": ("anna", "bert")}])
def test_voice_and_guidance_change_what_is_said(hearing: DsmEngine, change: dict[str, object]) -> None:
    plan = options(hearing, "anna", cfg=2.0, temperature=0.0)
    other = dataclasses.replace(plan, **change)  # type: ignore[arg-type]
    assert tokens(hearing, {0: plan}) == tokens(hearing, {0: plan})
    assert tokens(hearing, {0: plan}) != tokens(hearing, {0: other})


def test_a_voice_is_computed_once(hearing: DsmEngine) -> None:
    before = conditions(hearing).voices_computed
    pair = ("dora", "anna")
    for slot in range(3):
        hearing.open(slot, options(hearing, *pair, seed=slot))
    assert conditions(hearing).voices_computed == before + 1
    for slot in range(3):
        hearing.close(slot)
    hearing.open(0, options(hearing, *pair))
    hearing.close(0)
    assert conditions(hearing).voices_computed == before + 1


def test_the_least_recently_used_voice_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditioners, "RESIDENT", 2)
    for seed, name in enumerate(NAMES):
        tiny.write_voice(tmp_path / "voices", name, seed)
    engine = build(tmp_path, tiny.published())
    want = {name: tokens(engine, {0: options(engine, name, seed=1)})[0] for name in NAMES}
    assert conditions(engine).voices_computed == 4
    table = conditions(engine)._table
    assert table is not None
    assert table._table.shape[0] == 2, "the table holds what may be resident"
    engine.open(1, options(engine, "anna"))
    assert conditions(engine).voices_computed == 5
    assert tokens(engine, {0: options(engine, "dora", seed=1), 2: options(engine, "bert", seed=1)})[0] == want["dora"]
    assert conditions(engine).voices_computed == 6, "dora was there, anna is in use and stays, bert is computed"
    got = tokens(engine, {0: options(engine, "carl/low", seed=1), 2: options(engine, "bert", seed=1)})
    assert got == {0: want["carl/low"], 2: want["bert"]}


def test_a_prefix_is_played_once(going_on: DsmEngine) -> None:
    """The second session starts where the first had its prefix behind it, and its audio begins at sample 0."""
    starts = []
    for _ in range(2):
        going_on.open(0, options(going_on, "p0", cfg=1.25))
        going_on.push(0, [Entry((7,))] * 8)
        going_on.finish(0)
        heard = []
        for count in range(200):
            frame = going_on.collect(going_on.launch([0]))[0]
            if frame.pcm:
                heard.append((count, frame.model_start))
            if frame.ended:
                break
        assert heard[0][1] == 0
        assert [start for _count, start in heard] == [1920 * i for i in range(len(heard))]
        starts.append(heard[0][0])
        going_on.close(0)
    assert starts == [8 + 5 + 2, 5 + 2]


@pytest.mark.parametrize("name", ["ana", "../anna", "/etc/hostname", "", "anna.feed@7.safetensors", "a\r\nb"])
def test_an_unknown_voice(name: str, hearing: DsmEngine) -> None:
    with pytest.raises(VoiceNotFound) as caught:
        hearing.open(0, options(hearing, name))
    assert caught.value.known == hearing.info.voices
    with pytest.raises(VoiceNotFound):
        hearing.lacking(options(hearing, name))
    with pytest.raises(VoiceNotFound):
        hearing.fetch(name)
    if name == "ana":
        assert caught.value.close[0] == "anna"


def test_what_has_to_be_fetched_before_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "KEPT_VOICES", 2)
    for seed, name in enumerate(("anna", "bert")):
        tiny.write_voice(tmp_path / "voices", name, seed)
    tiny.write_voice(tmp_path / "voices", "short", 9, positions=3)
    engine = build(tmp_path, tiny.published())
    assert engine.lacking(options(engine)) == ("anna",), "the first voice is the default"
    assert engine.lacking(options(engine, "bert", "anna", "bert")) == ("bert", "anna")
    engine.fetch("anna")
    assert engine.lacking(options(engine, "bert", "anna")) == ("bert",)
    engine.fetch("bert")
    assert engine.lacking(options(engine, "bert", "anna")) == ()
    (tmp_path / "voices" / "bert.feed@7.safetensors").unlink()
    engine.open(0, options(engine, "bert", "anna"))  # reads no file
    engine.fetch("short")
    assert engine.lacking(options(engine, "bert", "anna")) == ("bert",), "the one not used for longest gave way"
    with pytest.raises(UnusableVoice, match="positions"):
        engine.lacking(options(engine, "anna", "short"))
    with pytest.raises(UnsupportedOption, match="cfg"):
        engine.lacking(options(engine, "bert", cfg=1.2))


def test_the_built_in_voice_is_alone() -> None:
    engine = load_engine(capacity=1, kernels="torch")
    assert engine.info.speakers == 1
    assert engine.lacking(options(engine, "default")) == engine.lacking(options(engine)) == ()
    with pytest.raises(UnsupportedOption, match="voice"):
        engine.lacking(options(engine, "default", "default"))
    with pytest.raises(UnsupportedOption, match="cfg"):
        engine.open(0, options(engine, cfg=2.0))


@pytest.mark.parametrize("name", ["long", "loud", "broken"])
def test_a_file_that_is_no_prefix(name: str, going_on: DsmEngine) -> None:
    with pytest.raises(UnusableVoice, match=name):
        going_on.open(0, options(going_on, name))


def test_what_the_model_cannot_honour(hearing: DsmEngine, going_on: DsmEngine) -> None:
    with pytest.raises(UnsupportedOption, match="cfg"):
        hearing.open(0, options(hearing, "anna", cfg=1.2))
    with pytest.raises(UnsupportedOption, match="5 speakers"):
        hearing.open(0, options(hearing, *["anna"] * 6))
    with pytest.raises(UnsupportedOption, match="1 speakers"):
        going_on.open(0, options(going_on, "p0", "p1"))
    with pytest.raises(UnsupportedOption, match="cfg"):
        going_on.open(0, options(going_on, "p0", cfg=-1.0))
    with pytest.raises(UnusableVoice, match="positions"):
        hearing.open(0, options(hearing, "anna", "short"))


@pytest.mark.parametrize(
    "tensors",
    [
        {"other": torch.zeros(1, 12, 6)},
        {"speaker_wavs": torch.zeros(12, 6)},
        {"speaker_wavs": torch.zeros(1, 12, 0)},
        {"speaker_wavs": torch.full((1, 12, 6), float("nan"))},
        {"speaker_wavs": torch.zeros(1, 12, 6, dtype=torch.int32)},
        {"speaker_wavs": torch.zeros(1, 11, 6)},
    ],
)
def test_a_file_that_is_no_voice(tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    (tmp_path / "voices").mkdir()
    save_file(tensors, tmp_path / "voices" / "odd.feed@7.safetensors")
    engine = build(tmp_path, tiny.published())
    with pytest.raises(UnusableVoice, match="odd"):
        engine.open(0, options(engine, "odd"))


def test_a_folder_without_voices(tmp_path: Path) -> None:
    engine = build(tmp_path, tiny.published())
    with pytest.raises(VoiceNotFound):
        engine.open(0, options(engine))
    assert engine.info.voices == ()
    with pytest.raises(CheckpointError, match="not a folder"):
        open_library(tmp_path / "nowhere", engine._config)


def test_a_model_that_needs_no_voice(tmp_path: Path) -> None:
    """It goes on from audio if it is given any, and has one voice of its own else."""
    engine = build(tmp_path, tiny.plain())
    assert engine.info.voices == ("default",)
    assert tokens(engine, {0: options(engine, "default")}) == tokens(engine, {0: options(engine)})
    with pytest.raises(VoiceNotFound):
        engine.open(0, options(engine, "other"))


def test_a_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch, hearing: DsmEngine) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EngineError, match="hf://kyutai/tts-voices"):
        open_library("hf://kyutai/tts-voices", hearing._config)
