"""What processes cost, from Linux's /proc: processor time and resident memory. Elsewhere nothing is known."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


def cpu_seconds(pid: int) -> float | None:
    """User and system time of all of a process's threads so far."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # The command's name, in parentheses, may hold spaces and parentheses of its own.
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return None


def resident_bytes(pid: int) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


def stolen_seconds() -> float | None:
    """Time, summed over the cores, that the host spent on others while this machine wanted to run (``steal``)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((PROC / "stat").read_text().splitlines()[0].split()[8]) / os.sysconf("SC_CLK_TCK")
    return None


@dataclass(frozen=True, slots=True)
class Costs:
    """Between two laps. Shares are of one core: 1.5 is one and a half cores."""

    seconds: float
    cores: Mapping[str, float]
    stolen_cores: float | None


class Meter:
    """Reads the processes' clocks; a lap is what was used since the last one."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._last = self._read()

    def lap(self) -> Costs:
        (began, cpu, stolen), self._last = self._last, self._read()
        now, cpu_now, stolen_now = self._last
        seconds = now - began
        cores = {name: (cpu_now[name] - cpu[name]) / seconds for name in cpu_now.keys() & cpu.keys()}
        gone = None if stolen is None or stolen_now is None else (stolen_now - stolen) / seconds
        return Costs(seconds, {name: cores[name] for name in self._pids if name in cores}, gone)

    def _read(self) -> tuple[float, dict[str, float], float | None]:
        used = {name: cpu_seconds(pid) for name, pid in self._pids.items()}
        return time.monotonic(), {name: s for name, s in used.items() if s is not None}, stolen_seconds()
