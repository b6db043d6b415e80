"""A folder in Kyutai's layout, with Mimi and two voices, served through NATS: random weights, real plumbing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

pytest.importorskip("moshi")

from engine.contract import Entry, FrameEngine
from engine.dsm import DsmEngine
from engine.loading import BUILTIN, load_engine
from tests.integration.live import house, live_settings
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


class Recorder:
    """The real engine. Keeps what waits in its feeds, marked as the model was trained to hear it."""

    def __init__(self, engine: DsmEngine) -> None:
        self._engine = engine
        self.heard: list[Entry] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def push(self, slot: int, entries: Sequence[Entry]) -> None:
        waiting = self._engine._feeds[slot].waiting
        before = len(waiting)
        self._engine.push(slot, entries)
        fresh = list(waiting)[before:]
        self.heard += [Entry(entry.tokens, entry.padding) for entry in fresh if isinstance(entry, Entry)]


async def test_a_dialogue_reaches_the_engine_as_the_reference_writes_it(tmp_path: Path) -> None:
    from moshi.models.tts import TokenIds, script_to_entries
    from sentencepiece import SentencePieceProcessor

    folder = folder_of(tmp_path)
    recorder = Recorder(load_engine(folder, capacity=1))
    lines = ["Good morning to you all.", "And to you.", "We begin now.", "", "All of us go on.", "", "Yes, we do."]
    script = [
        (0, "Good morn"),
        (None, "ing to you all"),
        (0, "."),
        (1, "And to you."),
        (2, "We begin "),
        (None, "now."),
    ]
    script += [(4, "All of us"), (None, " go on."), (0, "Yes, we do.")]
    tokenizer = SentencePieceProcessor(str(folder / "tokenizer.model"))
    wanted = script_to_entries(tokenizer, TokenIds(PIECES + 1), 12.5, lines, True, 1)
    settings = live_settings(model=ModelSettings(path=str(folder), device="cpu", slots=1))
    voices = ["anna", "bert", "anna", "bert", "anna"]
    async with (
        running(settings, load=lambda: cast(FrameEngine, recorder)) as service,
        await Client.connect(service.bus_options) as client,
    ):
        assert (await client.info()).model.speakers == 5
        recorder.heard.clear()
        request = Open(voice=voices, padding_between=1, temperature=0.0, pace="fast")
        async with await client.open(request, timeout_s=10.0) as speech:
            assert speech.ready.voice == voices
            for speaker, text in script:
                await speech.send(text, speaker)
            with pytest.raises(WireError, match="unsupported_option: speaker"):
                await speech.send("Who?", 5)
            await speech.finish()
            async for _audio in speech.audio():
                pass
        assert recorder.heard == [Entry(tuple(entry.tokens), entry.padding) for entry in wanted]


async def test_a_voice_alone_has_no_second_speaker(tmp_path: Path) -> None:
    """Said past the client, which would not send it: the session is told, and goes on."""
    model = ModelSettings(path=str(folder_of(tmp_path)), device="cpu", slots=1)
    async with house(live_settings(model=model)) as home:
        session = await home.session({"voice": ["bert"], "pace": "fast"})
        assert session.ready["voice"] == ["bert"]
        await session.text(0, "One two ", speaker=1)
        error = (await session.next()).fields
        assert (error["code"], error["detail"]) == ("unsupported_option", {"option": "speaker"})
        await session.text(0, "One two three.", speaker=0)
        await session.say("finish", seq=1)
        assert (await session.to_end())["reason"] == "finished"
        assert "end" in session.kinds()
