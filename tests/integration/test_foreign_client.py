"""A client in another language, with nothing but its stock NATS library (must-show 2)."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from tests.integration.live import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPT = Path(__file__).parent / "node" / "speak.mjs"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(
    NODE is None or not (SCRIPT.parent / "node_modules").is_dir(),
    reason="needs node, and its packages: npm install in tests/integration/node",
)


@needs_node
async def test_a_plain_text_open_from_node_is_answered_with_speech(home: House) -> None:
    text = "The line is open, please go ahead."
    assert NODE is not None
    child = await asyncio.create_subprocess_exec(
        NODE, str(SCRIPT), home.url, f"tts.v1.default.open.{home.pool}", text, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    assert child.returncode == 0
    seen = json.loads(out)
    assert seen["events"] == ["ready", "audio", "end"]
    assert seen["contentType"] == "audio/x-pcm-s16le"
    assert seen["seqs"] == list(range(seen["payloads"]))
    assert seen["pts"][0] == 0
    assert seen["pts"] == sorted(set(seen["pts"]))
    assert seen["end"]["reason"] == "finished"
    usage = seen["end"]["usage"]
    assert usage["audio_ms"] == seen["bytes"] / 2 / 24 > 1_000
    assert (usage["characters"], usage["words"]) == (len(text), 7)


@needs_node
async def test_node_is_told_what_is_wrong(home: House) -> None:
    assert NODE is not None
    child = await asyncio.create_subprocess_exec(
        NODE,
        str(SCRIPT),
        home.url,
        f"tts.v1.default.open.{home.pool}",
        '{"text": "Hello.", "voice": "nobody"}',
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    seen = json.loads(out)
    assert seen["events"] == ["error"]
    assert seen["end"]["code"] == "voice_not_found"
