"""``antiphon bench``, tiny: so that it cannot rot. What it measures here says nothing about the machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from worker.cli.main import main
from worker.measure.load import Plan
from worker.measure.report import Run, run_dict
from worker.measure.rig import Rig, rigged
from worker.settings import load

IN_SESSION = pytest.mark.asyncio(loop_scope="session")


def spoke(run: Run) -> None:
    """At least one session was heard to its end, and every figure is there."""
    s = run.summary
    assert s.outcomes["finished"] >= 1, run_dict(run)
    assert s.failed == 0, s.codes
    assert s.first_audio is not None
    assert s.audible is not None
    assert s.lateness is not None
    assert s.first_audio.p50 > 0.0
    assert s.audible.p50 >= s.first_audio.p50
    assert s.lost_messages == s.lost_samples_s == s.misplaced == 0
    assert s.audio_s > 0.5
    assert run.stalls.wakes > 0


@IN_SESSION
@pytest.mark.usefixtures("nothing_blocks_the_loop")
async def test_whole_texts(rig: Rig) -> None:
    short = replace(rig, texts=["Thank you for calling."])
    run = await rig.guarded(short.measure(Plan(sessions=2, seconds=4.0)))
    spoke(run)
    assert run.summary.sent_share is None
    assert set(run.costs.cores) == {"worker", "nats-server", "client", "control"}


@IN_SESSION
async def test_typed_texts_on_a_configured_server(rig: Rig) -> None:
    assert rig.own is not None
    settings = load(["--nats.url", *rig.own.bus.servers], env={})
    async with rigged(settings, ["Thank you for calling."], own=False) as other:
        await other.warm_up()
        run = await other.guarded(other.measure(Plan(sessions=1, seconds=4.0, mode="paced", char_ms=20.0)))
    spoke(run)
    assert run.summary.sent_share is not None
    assert 0.0 < run.summary.sent_share.p50 <= 1.0
    assert set(run.costs.cores) == {"client", "control"}


def test_the_command_climbs_to_its_limit_and_writes_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, texts, log = tmp_path / "figures.json", tmp_path / "texts", tmp_path / "log"
    texts.write_text("Hello.\n\nThank you.\n", encoding="utf-8")
    command = ["bench", "--find-limit", "--sessions", "1", "--step", "1", "--seconds", "2", "--idle-seconds", "0.1"]
    files = ["--text-file", str(texts), "--json", str(figures), "--log", str(log)]
    assert main([*command, *files, "--model.slots", "1", "--scheduler.headroom", "0.9"]) == 0
    written: dict[str, Any] = json.loads(figures.read_text(encoding="utf-8"))
    assert written["plan"]["settings"] == {"model": {"slots": 1}, "scheduler": {"headroom": 0.9}}
    assert [run["sessions"] for run in written["runs"]] in ([1], [1, 2])
    assert written["runs"][0]["first_audio_ms"]["count"] >= 1
    if len(written["runs"]) == 2:  # the machine bore one session; a second has no slot
        assert written["runs"][1]["outcomes"]["refused"] >= 1
        assert written["limit"] == {"clean": 1, "limit": written["limit"]["limit"]}
    out, err = capsys.readouterr()
    assert "first audio, ms" in out
    assert written["limit"]["limit"] in out
    assert "bench: 1 sessions for 2 s" in err
    assert "serves antiphon-builtin-1" in log.read_text(encoding="utf-8")


def test_a_worker_that_does_not_start_is_told_with_its_last_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--model.path", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err.splitlines()[-1]


def test_what_cannot_be_measured_is_refused_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n", encoding="utf-8")
    for arguments, said in (
        (["soak", "--server", "configured"], "--server: soak looks into the worker's process"),
        (["--text-file", str(empty)], f"--text-file: {empty}: holds no text"),
        (["--text-file", str(tmp_path / "nowhere")], "nowhere: No such file"),
    ):
        assert main(["bench", *arguments]) == 1
        out, err = capsys.readouterr()
        assert said in err
        assert out == ""
