"""What deploy/ ships is accepted by the real server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from worker.embedded import find_binary

FOLDER = Path(__file__).parents[2] / "deploy"


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.conf")), ids=lambda path: path.name)
def test_the_server_accepts_the_configuration(path: Path) -> None:
    done = subprocess.run([str(find_binary()), "-t", "-c", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_live_audio_server_does_not_stall_fast_producers() -> None:
    text = (FOLDER / "nats" / "nats-server.conf").read_text()
    assert "no_fast_producer_stall: true" in text
