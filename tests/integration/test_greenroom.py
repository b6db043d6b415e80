"""Voices that a hub is slow to bring: who wants one waits, and nobody else; over NATS, HTTP and a random model."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("moshi")

from engine.loading import BUILTIN
from tests.integration.live import Fields, House, Session, eventually, house, live_settings
from tests.integration.scripted_hub import Hub, scripted_hub
from tests.parity import test_whole_checkpoint as whole
from tests.parity import tiny_checkpoints as tiny
from worker.sections import ModelSettings, Settings

NAMES = ("anna", "bert", "carl", "dora")
TEXT = "One two three."


def file(name: str) -> str:
    return f"people/{name}.feed@7.safetensors"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    whole.write(folder, whole.published(text_card=2048))
    shutil.copy(BUILTIN / "tokenizer.model", folder / "tokenizer.model")
    return folder


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = {file(name): tiny.write_voice(tmp_path, name, seed).read_bytes() for seed, name in enumerate(NAMES)}
    files[file("broken")] = b"no voice"
    with scripted_hub(files) as server:
        for name, value in {
            "ENDPOINT": server.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": server.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(tmp_path / "cache"),
            "HF_HUB_DISABLE_XET": True,
        }.items():
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield server


def settings(model: Path, slots: int = 3, wait_s: float = 30.0) -> Settings:
    voices = "hf://some/model/people"
    return live_settings(
        model=ModelSettings(path=str(model), device="cpu", slots=slots, voices=voices, voice_wait_s=wait_s)
    )


def request(voice: object, **fields: object) -> Fields:
    return {"text": TEXT, "final": True, "pace": "fast", "voice": voice, "temperature": 0, **fields}


async def asked(home: House, fields: Fields) -> Session:
    """An open whose answer is still to come."""
    session = Session(await home.client(), pool=home.pool)
    await session.ask(fields)
    return session


async def halfway(hub: Hub) -> None:
    assert await asyncio.to_thread(hub.halfway.wait, 30)


async def refused(session: Session) -> tuple[str, bool, list[str]]:
    """Its only event: an error."""
    error = (await session.next()).fields
    assert session.kinds() == ["error"]
    return error["code"], error["retryable"], error["detail"].get("voices", [])


async def test_who_wants_a_slow_voice_waits_and_nobody_else(model: Path, hub: Hub) -> None:
    async with house(settings(model)) as home:
        assert set(hub.gets) == {file("anna")}, "the model's first voice is there from the start, and no other"
        hub.halt = file("bert")
        first = await asked(home, request("bert", session="waits-for-a-voice"))
        await halfway(hub)
        second = await asked(home, request("bert"))
        await eventually(lambda: home.service.desk.sessions == 2)
        for _ in range(3):
            await home.spoken(TEXT, voice="anna", temperature=0)
        assert first.events == second.events == []
        twin = await asked(home, request("anna", session="waits-for-a-voice"))
        assert (await refused(twin))[0] == "bad_request"
        hub.go_on.set()
        for session in (first, second):
            assert (await session.to_end())["reason"] == "finished"
            assert session.kinds() == ["ready", "audio", "end"]
        assert hub.gets[file("bert")] == 1
        assert (await home.spoken(TEXT, voice="bert", temperature=0)).pcm == first.pcm == second.pcm
        await home.empty()


async def test_bad_opens_cost_a_good_one_nothing_while_a_voice_is_on_its_way(model: Path, hub: Hub) -> None:
    async with house(settings(model, slots=2)) as home:
        hub.halt = file("bert")
        waiting = await asked(home, request("bert"))
        await halfway(hub)
        bad = [await asked(home, request(voice)) for voice in ("bort", ["anna", "bort"], "../bert") * 20]
        good = await home.spoken(TEXT, voice="anna")
        assert good.pcm
        for session in bad:
            code, retryable, voices = await refused(session)
            assert (code, retryable) == ("voice_not_found", False)
            assert "bert" in voices
        assert waiting.events == []
        hub.go_on.set()
        assert (await waiting.to_end())["reason"] == "finished"


async def test_a_fetch_that_hangs_is_waited_for_so_long_and_no_longer(model: Path, hub: Hub) -> None:
    async with house(settings(model, slots=1, wait_s=0.2)) as home:
        hub.halt = file("bert")
        sessions = [await asked(home, request("bert"))]
        await halfway(hub)
        assert await refused(sessions[0]) == ("voice_not_found", True, [])
        await home.empty()
        assert (await home.spoken(TEXT, voice="anna")).pcm
        assert await refused(await asked(home, request("bert"))) == ("voice_not_found", True, [])
        hub.go_on.set()
        await eventually(lambda: not home.service.desk._greenroom._courier._errands)
        assert (await home.spoken(TEXT, voice="bert")).pcm
        assert hub.gets[file("bert")] == 1


async def test_what_cannot_be_had_is_one_error_and_no_ready(model: Path, hub: Hub) -> None:
    hub.files[file("gone")] = b""
    async with house(settings(model)) as home:
        del hub.files[file("gone")]
        for fields, code, retryable in (
            (request("broken"), "voice_not_found", False),
            (request("gone"), "voice_not_found", True),
            (request(["anna", "broken"]), "voice_not_found", False),
            (request("anna", cfg=1.7), "unsupported_option", False),
            (request(["anna"] * 6), "bad_request", False),
        ):
            assert await refused(await asked(home, fields)) == (code, retryable, [])
        await home.empty()
        assert (await home.spoken(TEXT, voice="carl")).pcm


async def test_a_worker_that_leaves_turns_out_who_waits(model: Path, hub: Hub) -> None:
    hub.halt = file("bert")
    async with house(settings(model)) as home:
        session = await asked(home, request("bert"))
        await halfway(hub)
        await home.service.desk.shut()
        assert (await refused(session))[:2] == ("no_capacity", True)
        assert home.service.desk.sessions == 0


async def test_a_worker_that_drains_lets_them_in(model: Path, hub: Hub) -> None:
    hub.halt = file("bert")
    async with house(settings(model)) as home:
        session = await asked(home, request("bert"))
        await halfway(hub)
        draining = asyncio.create_task(home.service.drain())
        await eventually(lambda: home.service.desk.draining)
        hub.go_on.set()
        assert (await session.to_end())["reason"] == "finished"
        await draining
