"""Kyutai's checkpoints run the way graphs run them: voices, prefixes and guidance, as from plain steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.contract import Entry
from engine.dsm import DsmEngine
from engine.loading import load_engine
from engine.trial import spoken

pytest.importorskip("moshi")

from tests.parity import test_whole_checkpoint as whole
from tests.parity import tiny_checkpoints as tiny

pytestmark = pytest.mark.usefixtures("one_torch_thread")

TEXT = [Entry((5 + i, 6)) for i in range(2)]


def both(folder: Path) -> tuple[DsmEngine, DsmEngine]:
    plain, captured = (load_engine(folder, capacity=2, steps=steps) for steps in ("plain", "graphs"))
    assert (plain.run_ahead, captured.run_ahead) == (0, 1)
    return plain, captured


def test_voices_that_are_heard(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Longer voices than room was kept for, too: the table moves, and the graphs are made anew."""
    whole.write(tmp_path, whole.published())
    for seed, (name, positions) in enumerate([("a", 6), ("b", 6), ("long", 140)]):
        tiny.write_voice(tmp_path / "voices", name, seed, positions)
    plain, captured = both(tmp_path)
    for names in (("a", "b"), ("long", "a")):
        plans = [[(TEXT, whole.plan(engine, name)) for name in names] for engine in (plain, captured)]
        want, got = (whole.speak(engine, plan) for engine, plan in zip((plain, captured), plans, strict=True))
        assert all(len(sound) > 0 for sound in want)
        assert all(torch.equal(one, other) for one, other in zip(want, got, strict=True))
    assert "have moved" in caplog.text


def test_prefixes_and_guidance(tmp_path: Path) -> None:
    """The second time the slots begin at the end of the prefix, which was copied while a step was in flight."""
    whole.write(tmp_path, tiny.plain(mimi_config_name="mimi.json"))
    codes = torch.randint(tiny.CARD, (4, 3), generator=torch.Generator().manual_seed(1))
    save_file({"codes": codes}, tmp_path / "voices" / "p.safetensors")
    engines = both(tmp_path)
    want, got = ([spoken(engine, TEXT, 2) for _ in range(2)] for engine in engines)
    assert want == got
    assert want[0] == want[1]
    for engine in engines:
        assert engine._casting is not None
        assert engine._casting.snapshot(("p", True)) is not None
    assert all(want[0])
    plans = [[(TEXT, whole.plan(engine, cfg=cfg)) for cfg in (1.0, 3.0)] for engine in engines]
    heard = [whole.speak(engine, plan) for engine, plan in zip(engines, plans, strict=True)]
    assert all(torch.equal(one, other) for one, other in zip(*heard, strict=True))
    assert not torch.equal(heard[0][0], heard[0][1])
