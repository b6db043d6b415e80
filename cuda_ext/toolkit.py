"""Builds the phases: with nvcc for CUDA devices, and with the C++ compiler as their host twin. At first use, cached.

As ``build``: a file lock lets several processes start at once, and a library appears by rename, whole. Neither build
needs a device.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from cuda_ext.build import BuildError, built, compiler, folder

DEVICE_SOURCE, TWIN_SOURCE = "cuda/kernels.cu", "cuda/twin.cpp"
ARCHITECTURES = ("-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_80,code=sm_80")
DEVICE_FLAGS = ("-std=c++17", "-Xcompiler", "-fPIC", "-shared")
QUICK, THOROUGH = "--Ofast-compile=max", "-O3"
TWIN_FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC")


def nvcc() -> str | None:
    """Path of CUDA's compiler: ``$NVCC``, else from the path, else of ``$CUDA_HOME`` or /usr/local/cuda."""
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / "nvcc"
    wanted = os.environ.get("NVCC")
    return shutil.which(wanted) if wanted else shutil.which("nvcc") or shutil.which(str(home))


def device_library(cache: Path | None = None, quick: bool = False) -> Path:
    """Path of the library for CUDA devices, built if need be (about half a minute, once a machine). quick: in a fifth
    of the time, to see whether it compiles.

    Raises:
        BuildError: no nvcc, or it refused.
    """
    path = nvcc()
    if path is None:
        raise BuildError("no nvcc found: install the CUDA toolkit, or set NVCC or CUDA_HOME")
    return _built(
        "antiphon-cuda", [path, QUICK if quick else THOROUGH, *DEVICE_FLAGS, *ARCHITECTURES], DEVICE_SOURCE, cache
    )


def twin_library(cache: Path | None = None) -> Path:
    """Path of the host twin, built if need be (a few seconds). Raises BuildError."""
    path = compiler()
    if path is None:
        raise BuildError("no C++ compiler found: install g++ (Debian: apt-get install g++), or set CXX")
    return _built("antiphon-twin", [path, *TWIN_FLAGS], TWIN_SOURCE, cache)


def _built(name: str, command: Sequence[str], source: str, cache: Path | None) -> Path:
    return built(name, _key(command, source), [*command, str(folder() / source)], cache)


def sources() -> Iterator[Path]:
    for part in ("phases", "cuda"):
        yield from sorted((folder() / part).iterdir())


def _key(command: Sequence[str], source: str) -> str:
    digest = hashlib.sha256(repr((tuple(command), source, _version(command[0]))).encode())
    for path in sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:20]


@functools.cache
def _version(tool: str) -> str:
    return subprocess.run(
        [tool, "--version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    ).stdout
