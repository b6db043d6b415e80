"""The GPU script in small on the CPU, so that it is right when it meets a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import gpu

pytest.importorskip("moshi")


@pytest.fixture
def asked(tmp_path: Path) -> gpu.Asked:
    return gpu.Asked("cpu", small=True, folder=tmp_path / "full")


def test_a_full_configuration_in_small_is_written_and_swept(asked: gpu.Asked) -> None:
    gpu.write_full(asked)
    figures = gpu.full_sweep(asked)
    assert [step["rows"] for step in figures["steps"]] == [1, 2]
    assert all(step["full_s"] > step["text_s"] > 0.0 for step in figures["steps"])
    table = gpu.lines("full_sweep", json.loads(json.dumps(figures)))
    assert len(table) == 4
    assert "2 graphs" not in table[0]
    assert "4 graphs" in table[0]


def test_a_stage_that_fails_costs_the_others_nothing(asked: gpu.Asked) -> None:
    seen: list[str] = []
    stages = ["full_sweep", "build", "environment"]
    limits = {"full_sweep": 60.0, "build": 60.0, "environment": 1.0}
    found = gpu.run(asked, stages, lambda stage, _figures: seen.append(stage), limit_s=limits.__getitem__)
    assert seen == stages
    assert "config.json" in found["full_sweep"]["failed"], "there is no checkpoint"
    assert found["build"]["seconds"] >= 0.0
    assert found["environment"] == {"skipped": "no time is left"}
    assert gpu.lines("full_sweep", found["full_sweep"])[0].startswith("!! full_sweep: ")


def test_a_stage_that_hangs_is_ended(asked: gpu.Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "LEAST_S", 0.0)
    found = gpu.run(asked, ["environment"], lambda _stage, _figures: None, total_s=0.2)
    assert found["environment"] == {"failed": "not done within 0 s"}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_all_of_it(asked: gpu.Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "gpu.json"
    command = ["gpu", "--device", "cpu", "--small", "--folder", str(asked.folder), "--json", str(out)]
    monkeypatch.setattr("sys.argv", command)
    gpu.main()
    found = json.loads(out.read_text())
    assert list(found) == list(gpu.STAGES)
    assert not [stage for stage, figures in found.items() if "failed" in figures or "skipped" in figures]
    assert found["against_cpu"]["text_logits"] == 0.0
    assert found["first_audio"]["1"]["first_audio_ms"]["count"] >= 1
