"""All kernels under the address and undefined-behaviour sanitizers: those of the CPU as built for this machine and as
built without AVX, and the phases on the host. Executables are kept in pytest's cache, by the sources' hash.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from cuda_ext.build import compiler, folder

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
FLAGS = ("-std=c++20", "-O0", "-g1", "-Wall", "-Wextra", "-Wno-psabi", "-Wno-maybe-uninitialized")
MEMORY = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CPU = ("-ffp-contract=fast", "-fno-math-errno", "-pthread")
PORTABLE = ("-march=x86-64",) if platform.machine() in ("x86_64", "AMD64") else ()
"""No AVX-512, no tiles, no AVX2, no F16C."""
BUILDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "native": ("cpu_kernels.cpp", (*MEMORY, *CPU, "-march=native")),
    "portable": ("cpu_kernels.cpp", (*MEMORY, *CPU, *PORTABLE)),
    "phases": ("phases.cpp", MEMORY),
    "threads": ("cpu_kernels.cpp", ("-fsanitize=thread", *CPU, "-march=native")),
}
EVERY_RUN = ("native", "portable", "phases")
ROUNDS = 4

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")


def command(name: str) -> list[str]:
    source, flags = BUILDS[name]
    return [compiler() or "", *FLAGS, *flags, str(HERE / source)]


def executables(config: pytest.Config, names: Sequence[str]) -> list[Path]:
    """Built side by side if need be."""
    digest = hashlib.sha256()
    parts = [HERE, folder(), folder() / "phases", folder() / "cuda"]
    for path in sorted(path for part in parts for path in part.iterdir() if path.suffix in {".h", ".cpp"}):
        digest.update(path.name.encode() + path.read_bytes())
    assert config.cache is not None
    home, targets, builds = config.cache.mkdir("native"), [], []
    for name in names:
        own = hashlib.sha256(repr((command(name), digest.hexdigest())).encode())
        target = home / f"{name}-{own.hexdigest()[:20]}"
        targets.append(target)
        if not target.exists():
            fresh = target.with_suffix(f".{os.getpid()}")
            builder = subprocess.Popen([*command(name), "-o", str(fresh)], stderr=subprocess.PIPE, text=True)
            builds.append((name, target, fresh, builder))
    for name, target, fresh, builder in builds:
        _, said = builder.communicate()
        assert builder.returncode == 0, said[-4000:]
        assert "warning" not in said, said[-4000:]
        for old in home.glob(f"{name}-????????????????????"):
            old.unlink()
        fresh.rename(target)
    return targets


def run(path: Path, rounds: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(path), str(rounds)], capture_output=True, text=True, check=False)


Outcomes = dict[str, subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Outcomes:
    paths = executables(request.config, EVERY_RUN)
    return {name: run(path, ROUNDS) for name, path in zip(EVERY_RUN, paths, strict=True)}


@pytest.mark.parametrize("name", EVERY_RUN)
def test_kernels_are_clean(outcomes: Outcomes, name: str) -> None:
    done = outcomes[name]
    assert done.returncode == 0, done.stderr[-4000:]
    said = done.stdout.splitlines()[-1]
    assert said.startswith("clean: ")
    assert name != "portable" or not PORTABLE or "portable" in said


def results(said: str) -> list[tuple[str, float]]:
    lines = [line.rsplit(" ", 1) for line in said.splitlines()[:-1]]
    return [(what, float(value)) for what, value in lines]


def test_portable_results_are_the_native_ones(outcomes: Outcomes) -> None:
    """For the same shapes and weights, but for rounding."""
    native, plain = results(outcomes["native"].stdout), results(outcomes["portable"].stdout)
    assert len(plain) > 50
    for (what, value), (same, other) in zip(native, plain, strict=True):
        assert what == same
        assert value == pytest.approx(other, rel=1e-3), what


def test_a_read_past_the_end_is_seen(request: pytest.FixtureRequest) -> None:
    [path] = executables(request.config, ["phases"])
    done = run(path, 0)
    assert done.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", BUILDS)
def test_kernels_are_clean_many_times(request: pytest.FixtureRequest, name: str) -> None:
    """The threads that share a frame's rows under the thread sanitizer, too."""
    [path] = executables(request.config, [name])
    done = run(path, 25 * ROUNDS)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1].startswith("clean: ")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(not PORTABLE, reason="the usual build is the portable one here")
def test_portable_kernels_agree_with_torch(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The unit tests of the kernels, on a build without AVX."""
    assert request.config.cache is not None
    plain = tmp_path / "plain-compiler"
    plain.write_text(f'#!/bin/sh\nexec {compiler()} "$@" {" ".join(PORTABLE)}\n')
    plain.chmod(0o755)
    cache = str(request.config.cache.mkdir("native") / "portable-kernels")
    tests = ["tests/unit/test_native_kernels.py", "tests/unit/test_sampling.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-o", "timeout=600", *tests],
        cwd=ROOT,
        env={**os.environ, "CXX": str(plain), "XDG_CACHE_HOME": cache},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
