from __future__ import annotations

import os
from pathlib import Path

import pytest

from worker.measure.machine import quota_cores, this_machine, usable_cores


def test_the_machine_has_a_name_and_cores() -> None:
    machine = this_machine()
    assert machine.cpu
    assert 1 <= machine.cores <= (os.cpu_count() or 1)
    assert machine.cores == usable_cores()
    assert machine.versions["torch"]
    assert machine.nats_server is not None
    assert machine.nats_server[0].isdigit()


@pytest.mark.parametrize(
    ("file", "content", "cores"),
    [
        ("cpu.max", "max 100000\n", None),
        ("cpu.max", "150000 100000\n", 1.5),
        ("cpu.max", "nonsense", None),
        ("cpu/cpu.cfs_quota_us", "-1\n", None),
        ("cpu/cpu.cfs_quota_us", "50000\n", 0.5),
    ],
)
def test_a_container_s_quota_is_read(file: str, content: str, cores: float | None, tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / file).write_text(content)
    assert quota_cores(tmp_path) == cores


def test_no_container_has_no_quota(tmp_path: Path) -> None:
    assert quota_cores(tmp_path) is None
