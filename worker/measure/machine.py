"""What a measurement was made on: processor, memory, load, versions. Facts that the system does not tell are None."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from worker.embedded import find_binary
from worker.errors import ServerMissing

PACKAGES = ("antiphon", "torch", "numpy", "nats-py", "msgpack", "pydantic", "soxr")
VECTOR_FLAGS = ("amx_tile", "amx_bf16", "avx512f", "avx512bw", "avx2", "fma", "f16c", "asimd", "fphp")
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Machine:
    cpu: str
    cores: int
    """That this process may use."""
    quota_cores: float | None
    """A container's limit on processor time; None: none is set."""
    vector_flags: tuple[str, ...]
    memory_bytes: int | None
    available_bytes: int | None
    load: tuple[float, float, float] | None
    """Over 1, 5 and 15 minutes, before the measurement."""
    system: str
    python: str
    versions: dict[str, str]
    nats_server: str | None


def this_machine() -> Machine:
    """Blocks for some milliseconds."""
    memory = _memory()
    return Machine(
        cpu=cpu_name(),
        cores=usable_cores(),
        quota_cores=quota_cores(),
        vector_flags=vector_flags(),
        memory_bytes=memory.get("MemTotal"),
        available_bytes=memory.get("MemAvailable"),
        load=os.getloadavg() if hasattr(os, "getloadavg") else None,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        versions={name: version for name in PACKAGES if (version := package_version(name)) is not None},
        nats_server=nats_server_version(),
    )


def cpu_name() -> str:
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def vector_flags() -> tuple[str, ...]:
    """Those that the kernels can make use of, of x86 and of ARM."""
    info = _cpuinfo()
    known = set((info.get("flags") or info.get("Features") or "").split())
    return tuple(flag for flag in VECTOR_FLAGS if flag in known)


def quota_cores(cgroups: Path = CGROUPS) -> float | None:
    with contextlib.suppress(OSError, ValueError):
        quota, period = (cgroups / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError):
        quota_us = int((cgroups / "cpu" / "cpu.cfs_quota_us").read_text())
        return quota_us / int((cgroups / "cpu" / "cpu.cfs_period_us").read_text()) if quota_us > 0 else None
    return None


def available_bytes() -> int | None:
    return _memory().get("MemAvailable")


def package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def nats_server_version() -> str | None:
    with contextlib.suppress(ServerMissing, OSError, subprocess.SubprocessError):
        told = subprocess.run([find_binary(), "--version"], capture_output=True, text=True, timeout=10, check=True)
        return told.stdout.strip().removeprefix("nats-server: v")
    return None


def _cpuinfo() -> dict[str, str]:
    """The first processor's lines."""
    info: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if not line:
                break
            info[name.strip()] = value.strip()
    return info


def _memory() -> dict[str, int]:
    """Bytes by name."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, value = line.partition(":")
            found[name] = int(value.split()[0]) * 1024
    return found
