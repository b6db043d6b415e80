"""The full-size script in small, so that it cannot rot."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.plan import plan_memory

pytest.importorskip("moshi")

from tests.bench import full_size


def test_in_small(tmp_path: Path) -> None:
    full_size.write_tiny(tmp_path)
    plan, found = full_size.compare(tmp_path, slots=2)
    assert found.samples == 12
    assert found.bytes > plan.held(2, 1)


def test_the_full_configuration_is_read(tmp_path: Path) -> None:
    """Its weights are for the script; what it would take is known from the configuration alone."""
    import json

    from engine.manifest import load_model_config

    (tmp_path / "config.json").write_text(json.dumps(full_size.full_size()))
    config = load_model_config(tmp_path)
    assert (config.depth_sets, config.generated, config.backbone.hidden, config.depth.hidden) == (11, 32, 5632, 2048)
    assert (config.text.delay_steps, config.warm_up_steps) == (16, 18)
    assert config.guidance_values == (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
    with pytest.raises(Exception, match=r"dsm_tts\.safetensors"):
        plan_memory(tmp_path)
