"""``antiphon bench live``, tiny: one caller for each kind of scene. What it measures says nothing about the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from worker.cli.main import main

SPREADS = (
    "first_audio_ms",
    "joined_first_audio_ms",
    "cancel_to_last_frame_ms",
    "cancel_to_cancelled_ms",
    "cancel_to_next_audio_ms",
    "stall_text_to_audio_ms",
    "hang_up_to_freed_ms",
    "lateness_ms",
    "lateness_beside_a_slow_listener_ms",
)


def test_every_scene_is_played_and_no_frame_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures, texts = tmp_path / "figures.json", tmp_path / "texts"
    texts.write_text("Thank you for calling us today.\n", encoding="utf-8")
    command = ["bench", "live", "--sessions", "4", "--seconds", "1", "--idle-seconds", "0.1", "--model.slots", "6"]
    code = main([*command, "--text-file", str(texts), "--json", str(figures)])
    live: dict[str, Any] = json.loads(figures.read_text(encoding="utf-8"))["live"]
    assert live["lost_sessions"] == 0, live["codes"]
    assert live["lost_frames"] == live["doubled_frames"] == live["stale_frames"] == live["lost_samples"] == 0
    assert code == 0
    missing = [name for name in SPREADS if not live[name]]
    assert missing == []
    joined = live["calls"].pop("joined")
    assert live["calls"] == {"typed": 0, "stalled": 1, "interrupted": 1, "slow_listener": 1, "hung_up": 1}
    assert joined == live["joined_first_audio_ms"]["count"] + live["refused"]
    assert live["cancel_to_cancelled_ms"]["count"] == 5
    assert live["stall_text_to_audio_ms"]["count"] == 1
    assert live["cancel_to_next_audio_ms"]["p50"] > live["cancel_to_cancelled_ms"]["p50"]
    assert live["machine_stalls"]["wake_ups"] > 0
    out, _ = capsys.readouterr()
    assert "cancel to last frame, ms" in out
    assert "frames lost: 0, doubled: 0, after their cancelled: 0; samples lost: 0" in out


def test_live_starts_its_own_worker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "live", "--server", "configured"]) == 1
    assert "--server: live hangs up on the worker and burdens the server" in capsys.readouterr().err
