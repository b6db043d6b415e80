"""A folder in Kyutai's layout, with Mimi and two voices, served through NATS: random weights, real plumbing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("moshi")

from engine.loading import BUILTIN
from tests.integration.live import live_settings
from tests.parity import test_whole_checkpoint as whole
from tests.parity import tiny_checkpoints as tiny
from worker.client import Client
from worker.errors import WireError
from worker.sections import ModelSettings
from worker.service import running
from worker.wire.requests import Open

TEXT = "One two three four five."
PIECES = 2048


def folder_of(path: Path) -> Path:
    raw = whole.published(text_card=PIECES)
    whole.write(path, raw)
    shutil.copy(BUILTIN / "tokenizer.model", path / "tokenizer.model")
    for seed, name in enumerate(("anna", "bert")):
        tiny.write_voice(path / "voices", name, seed)
    assert json.loads((path / "config.json").read_text())["tokenizer_name"] == "tokenizer.model"
    return path


async def spoken(client: Client, voice: str, cfg: float) -> bytes:
    request = Open(text=TEXT, final=True, voice=voice, cfg=cfg, seed=5, temperature=0.0, pace="fast")
    async with await client.open(request, timeout_s=5.0) as speech:
        return b"".join([audio.payload async for audio in speech.audio()])


async def test_voices_and_guidance_of_a_kyutai_folder_reach_the_listener(tmp_path: Path) -> None:
    model = ModelSettings(path=str(folder_of(tmp_path)), device="cpu", slots=2)
    async with running(live_settings(model=model)) as service, await Client.connect(service.bus_options) as client:
        info = await client.info()
        assert info.voices == ["anna", "bert"]
        assert "cfg" in info.options
        anna, again = await spoken(client, "anna", 2.0), await spoken(client, "anna", 2.0)
        assert len(anna) > 0
        assert anna == again
        assert anna != await spoken(client, "bert", 2.0)
        with pytest.raises(WireError) as refused:
            await spoken(client, "anne", 2.0)
        assert refused.value.code == "voice_not_found"
