"""Builds the CPU kernels with the machine's C++ compiler at first use and caches the library.

The cache key covers the sources, the compiler's version and the CPU's flags, so a cached library never runs on a CPU
that it was not built for. A file lock lets several processes start at once; the library appears by rename, whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCES = ("backbone.cpp", "depth.cpp", "spectral.cpp", "frame.cpp")
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-Wall",
    "-Wextra",
    "-Wno-psabi",
    "-Wno-maybe-uninitialized",
    "-Wno-uninitialized",
    "-pthread",
    "-shared",
    "-fPIC",
)


class BuildError(Exception):
    """The kernels could not be compiled; ``str()`` says why and what to do."""


def folder() -> Path:
    return Path(__file__).parent


def compiler() -> str | None:
    """Path of the C++ compiler: ``$CXX``, else g++, else clang++; None if there is none."""
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else ("g++", "clang++"):
        path = shutil.which(name)
        if path:
            return path
    return None


def library(cache: Path | None = None) -> Path:
    """Path of the shared library, built if need be (about ten seconds, once a machine).

    Raises:
        BuildError: no compiler, or the compiler refused.
    """
    cxx = compiler()
    if cxx is None:
        raise BuildError("no C++ compiler found: install g++ (Debian: apt-get install g++), or set CXX")
    command = [cxx, *FLAGS, *(str(folder() / name) for name in SOURCES)]
    return built("antiphon", _key(cxx), command, cache)


def built(name: str, key: str, command: Sequence[str], cache: Path | None) -> Path:
    """Path of what ``command`` makes of its sources, made if it is not there yet. key: of all that it depends on.

    Raises:
        BuildError: the compiler refused.
    """
    cache = cache or _cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / f"{name}-{key}.so"
    if target.exists():
        return target
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _compile(command, target)
    return target


def _compile(command: Sequence[str], target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        out = Path(scratch) / target.name
        done = subprocess.run(
            [*command, "-o", str(out)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            raise BuildError(f"{command[0]} failed with status {done.returncode}: {done.stderr.strip()[-2000:]}")
        out.rename(target)


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "antiphon" / "kernels"


def _key(cxx: str) -> str:
    digest = hashlib.sha256()
    for name in sorted(
        str(path.relative_to(folder())) for path in folder().rglob("*") if path.suffix in {".cpp", ".h"}
    ):
        digest.update(name.encode() + b"\0" + (folder() / name).read_bytes())
    version = subprocess.run([cxx, "--version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    digest.update(version.stdout.encode() + repr(FLAGS).encode() + _cpu_flags().encode())
    return digest.hexdigest()[:20]


def _cpu_flags() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() + platform.machine()
    wanted = ("model name", "flags", "Features")
    return "\n".join(next((line for line in lines if line.startswith(name)), "") for name in wanted)
