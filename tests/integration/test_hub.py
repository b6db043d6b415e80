"""A model from the hub, against a small imitation of it: kills, shared caches, and being out of reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import CheckpointError
from engine.hub import model_folder
from tests.integration.scripted_hub import Hub, scripted_hub

WEIGHTS = bytes(range(256)) * 4096  # 1 MiB
CONFIG = {"moshi_name": "lm.safetensors", "mimi_name": "mimi.safetensors", "tokenizer_name": "spm.model"}
FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "lm.safetensors": WEIGHTS,
    "mimi.safetensors": b"mimi",
    "spm.model": b"spm",
    "people/anna.feed@7.safetensors": b"anna",
    "people/anna.wav": b"wav",
    "people/bert.feed@7.safetensors": b"bert",
}
VOICE_CLIENT = """
import json, sys
from pathlib import Path
from engine.fields import Fields
from engine.manifest import read_model_config
from engine.voices import open_library
config = read_model_config(Fields(Path("config.json"), json.loads(sys.argv[2])))
library = open_library(sys.argv[1], config)
print(json.dumps([library.names, library.find("bert").read_text()]))
"""
OFFLINE = {"HF_HUB_OFFLINE": "1"}
CLIENT = "import sys; from engine.hub import model_folder; print(model_folder(sys.argv[1]))"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with scripted_hub(FILES) as server:
        yield server


def client(hub: Hub, cache: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    arguments = arguments or (CLIENT, "hf://some/model")
    own = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(cache),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    environment = os.environ | own | {"PYTHONPATH": str(Path(__file__).parents[2])} | more
    return subprocess.Popen(
        [sys.executable, "-c", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def folder_of(process: subprocess.Popen[str]) -> Path:
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return Path(out.strip())


def weights_in(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("lm.safetensors") if path.exists()]


def test_all_files_that_the_configuration_names(hub: Hub, tmp_path: Path) -> None:
    folder = folder_of(client(hub, tmp_path))
    names = ["config.json", *CONFIG.values()]
    assert {name: (folder / name).read_bytes() for name in names} == {name: FILES[name] for name in names}


def test_a_killed_download_leaves_nothing_half(hub: Hub, tmp_path: Path) -> None:
    hub.halt = "lm.safetensors"
    process = client(hub, tmp_path)
    assert hub.halfway.wait(60)
    process.kill()
    process.communicate()
    assert not weights_in(tmp_path)
    hub.halt = ""
    hub.go_on.set()
    folder = folder_of(client(hub, tmp_path))
    assert (folder / "lm.safetensors").read_bytes() == WEIGHTS


def test_two_workers_share_one_cache(hub: Hub, tmp_path: Path) -> None:
    hub.halt = "lm.safetensors"
    first = client(hub, tmp_path)
    assert hub.halfway.wait(60)
    second = client(hub, tmp_path)
    hub.go_on.set()
    folders = {folder_of(first), folder_of(second)}
    assert len(folders) == 1
    assert hub.gets["lm.safetensors"] == 1
    assert (folders.pop() / "lm.safetensors").read_bytes() == WEIGHTS


def test_offline_says_which_files_are_wanted(hub: Hub, tmp_path: Path) -> None:
    hub.halt = "lm.safetensors"
    process = client(hub, tmp_path)
    assert hub.halfway.wait(60)
    process.kill()
    process.communicate()
    offline = client(hub, tmp_path, HF_HUB_OFFLINE="1")
    _out, errors = offline.communicate(timeout=60)
    assert offline.returncode == 1
    last = errors.strip().splitlines()[-1]
    assert last.startswith("engine.errors.CheckpointError: hf://some/model: cannot be fetched")
    assert "wanted: lm.safetensors, mimi.safetensors, spm.model" in last
    nothing = client(hub, tmp_path / "empty", HF_HUB_OFFLINE="1")
    _out, errors = nothing.communicate(timeout=60)
    assert "wanted: config.json (" in errors


def test_a_whole_cache_needs_no_hub(hub: Hub, tmp_path: Path) -> None:
    folder = folder_of(client(hub, tmp_path))
    assert folder_of(client(hub, tmp_path, HF_HUB_OFFLINE="1")) == folder


@pytest.mark.parametrize(
    "place", ["hf://", "hf://model", "hf://a/b/c", "/no/such/folder", "hf://a@b/c", "hf://../..@x"]
)
def test_places_that_are_none(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError):
        model_folder(place)


def test_voices_of_a_repository(hub: Hub, tmp_path: Path) -> None:
    """Those for this model by their names, and only the one that is asked for is fetched."""
    pytest.importorskip("moshi")
    from tests.parity import tiny_checkpoints as tiny

    process = client(hub, tmp_path, VOICE_CLIENT, "hf://some/model/people", json.dumps(tiny.published()))
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert json.loads(out) == [["anna", "bert"], "bert"]
    assert set(hub.gets) == {"people/bert.feed@7.safetensors"}
    offline = client(hub, tmp_path, VOICE_CLIENT, "hf://some/model/people", json.dumps(tiny.published()), **OFFLINE)
    out, errors = offline.communicate(timeout=60)
    assert json.loads(out) == [["bert"], "bert"], "what is here of it"
    assert "cannot be listed; the 1 voices of it that are here are offered" in errors
    nothing = client(hub, tmp_path / "e", VOICE_CLIENT, "hf://some/model", json.dumps(tiny.published()), **OFFLINE)
    _out, errors = nothing.communicate(timeout=60)
    assert "engine.errors.CheckpointError: hf://some/model: cannot be listed" in errors
