"""The take-over benchmark still runs; its figures are for quiet machines."""

from __future__ import annotations

import pytest

from tests.bench.takeover import measure


@pytest.mark.long
async def test_a_killed_worker_s_session_is_heard_again() -> None:
    result = await measure("kill", 1, slots=2)
    assert len(result.takeovers) == 1
    assert result.takeovers[0].spoken_s > 0
    assert "heard again" in result.line()
