"""The builds of the phases: nvcc compiles every CUDA source here too, without a device; the twin is cached."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch

from cuda_ext import device, toolkit
from cuda_ext.build import BuildError


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.mark.skipif(toolkit.nvcc() is None, reason="needs nvcc")
def test_nvcc_takes_every_source(request: pytest.FixtureRequest) -> None:
    """For sm_90a and sm_80, optimised no more than need be; what comes out loads here and has our structures."""
    sources = [path for path in toolkit.sources() if path.suffix == ".cu"]
    assert [f"cuda/{path.name}" for path in sources] == [toolkit.DEVICE_SOURCE], "a source that nobody builds"
    assert request.config.cache is not None
    lib = device.bound(toolkit.device_library(request.config.cache.mkdir("nvcc"), quick=True))
    sizes = (ctypes.c_int32 * len(device.STRUCTURES))()
    lib.antiphon_phase_sizes(ctypes.addressof(sizes))
    assert list(sizes) == [ctypes.sizeof(structure) for structure in device.STRUCTURES]


@pytest.mark.skipif(toolkit.nvcc() is None or torch.cuda.is_available(), reason="needs nvcc, and no device")
def test_a_launch_without_a_device_is_refused_with_a_code(request: pytest.FixtureRequest) -> None:
    assert request.config.cache is not None
    lib = device.bound(toolkit.device_library(request.config.cache.mkdir("nvcc"), quick=True))
    one = device.Sample(rows=1, card=4)
    depth, call = device.Depth(), device.DepthCall()
    assert lib.antiphon_phase_sample(ctypes.addressof(one), None) > 0
    assert lib.antiphon_phase_depth(ctypes.addressof(depth), ctypes.addressof(call), None, None) > 0


def test_a_compiler_that_fails_is_reported(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "compiler"
    broken.write_text("#!/bin/sh\necho no such instruction >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("NVCC", str(broken))
    monkeypatch.setenv("CXX", str(broken))
    for build in (toolkit.device_library, toolkit.twin_library):
        with pytest.raises(BuildError, match=r"failed with status 3: no such instruction"):
            build(cache)
    assert not list(cache.glob("*.so"))


def test_a_missing_compiler_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC", "no-such-nvcc")
    with pytest.raises(BuildError, match="NVCC"):
        toolkit.device_library(cache)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BuildError, match="CXX"):
        toolkit.twin_library(cache)


def test_a_library_is_built_once_a_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls, names = tmp_path / "calls", set()
    for version in ("one", "two"):
        fake = tmp_path / version
        body = f'if [ "$1" = --version ]; then echo {version}; exit; fi\necho call >> {calls}\neval "touch \\${{$#}}"\n'
        fake.write_text(f"#!/bin/sh\n{body}")
        fake.chmod(0o755)
        monkeypatch.setenv("CXX", str(fake))
        names |= {toolkit.twin_library(cache).name, toolkit.twin_library(cache).name}
    assert len(names) == 2
    assert calls.read_text() == "call\n" * 2
    assert sorted(path.suffix for path in cache.iterdir()) == [".lock", ".so", ".so"]
