"""The twin of ``antiphon bench soak`` that every build runs: three minutes of audio instead of twenty."""

from __future__ import annotations

import pytest

from worker.measure.rig import Rig

MINUTES = 3.0


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("nothing_blocks_the_loop")
async def test_three_minutes_of_one_session_leave_the_worker_s_memory_flat(rig: Rig) -> None:
    soak = rig.soak(MINUTES)
    await rig.guarded(soak.run())
    growth = soak.samples.judge()
    assert growth.flat, growth
    assert soak.player.audio_s >= 60 * MINUTES
    assert soak.player.lost_samples == soak.player.misplaced == 0
