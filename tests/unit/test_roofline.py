"""The least time of a frame, against the table of the 1.6 B configuration that was worked out by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from engine.codec.mimi.config import PUBLISHED
from engine.config import ModelConfig, load_spectral_config
from engine.loading import BUILTIN
from engine.manifest import load_model_config
from engine.roofline import KNOWN, floor, hardware, rows_measured, rows_within, work

H200 = KNOWN[0]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    pytest.importorskip("moshi")
    from tests.bench.full_size import full_size

    folder = tmp_path_factory.mktemp("large")
    (folder / "config.json").write_text(json.dumps(full_size()))
    return load_model_config(folder)


def test_bytes_and_operations(large: ModelConfig) -> None:
    frame = work(large, PUBLISHED)
    assert frame.temporal_bytes == pytest.approx(1.96e9, rel=0.02)
    assert frame.depth_bytes == pytest.approx(2.96e9, rel=0.02)
    assert frame.depth_unique_bytes == pytest.approx(1.11e9, rel=0.02)
    assert frame.temporal_flops + frame.depth_flops == pytest.approx(4.9e9, rel=0.02)
    assert frame.codec_flops == pytest.approx(0.43e9, rel=0.05)
    assert frame.self_bytes == pytest.approx(65.5e6, rel=0.01)
    assert frame.cross_bytes == pytest.approx(81.9e6, rel=0.01)
    assert frame.codec_kv_bytes == pytest.approx(8.2e6, rel=0.01)


@pytest.mark.parametrize(
    ("rows", "temporal", "depth", "attention", "codec"),
    [
        (1, 0.46, 0.69, 0.04, 0.05),
        (16, 0.46, 0.69, 0.58, 0.14),
        (64, 0.46, 0.69, 2.3, 0.55),
        (256, 0.64, 0.96, 9.3, 2.2),
    ],
)
def test_the_table(
    large: ModelConfig, rows: int, temporal: float, depth: float, attention: float, codec: float
) -> None:
    found = floor(work(large, PUBLISHED), H200, rows)
    parts = [1000 * part for part in (found.temporal, found.depth, found.attention, found.codec)]
    assert parts == pytest.approx([temporal, depth, attention, codec], rel=0.03, abs=0.016)
    assert found.total == pytest.approx(sum(parts) / 1000)


def test_live_sessions(large: ModelConfig) -> None:
    frame = work(large, PUBLISHED)
    assert rows_within(frame, H200, 0.080) == pytest.approx(1500, rel=0.05)
    assert rows_within(frame, H200, 0.080, times_floor=4) < rows_within(frame, H200, 0.080) / 3
    assert rows_within(frame, H200, 0.0001) == 0


def test_guidance_doubles_rows_and_eight_bits_halve_weights(large: ModelConfig) -> None:
    guided = dataclasses.replace(large, conditioners=())
    assert guided.guided
    assert work(guided, PUBLISHED).temporal_flops == 2 * work(large, PUBLISHED).temporal_flops
    assert work(large, PUBLISHED, 1.0).depth_bytes == work(large, PUBLISHED).depth_bytes / 2
    assert work(large, PUBLISHED, 1.0).self_bytes == work(large, PUBLISHED).self_bytes


def test_the_built_in_voice_is_small(large: ModelConfig) -> None:
    config = load_model_config(BUILTIN)
    small = work(config, load_spectral_config(BUILTIN), 4.0)
    assert 1e6 < small.temporal_bytes + small.depth_bytes + small.codec_bytes < 2e8
    assert small.cross_bytes == small.codec_kv_bytes == 0.0
    assert floor(small, H200, 1).total < floor(work(large, PUBLISHED), H200, 1).total / 10


def test_measured_sizes_are_joined_by_lines() -> None:
    steps = {1: 0.010, 16: 0.020, 64: 0.056}
    assert rows_measured(steps, 0.009) == 0
    assert rows_measured(steps, 0.020) == 16
    assert rows_measured(steps, 0.0381) == 40
    assert rows_measured(steps, 0.0801) == 96
    assert rows_measured({4: 0.010}, 0.080) == 4


def test_devices_by_name(tmp_path: Path) -> None:
    assert hardware("NVIDIA H200") is H200
    assert hardware("NVIDIA H100 PCIe") != hardware("NVIDIA H100 80GB HBM3")
    assert hardware("some other device") is None
