from __future__ import annotations

import os
import random

import pytest

from worker.measure.memory import MIB, TOLERATED_BYTES, Growth, Samples
from worker.measure.processes import Meter, cpu_seconds, resident_bytes, stolen_seconds


def judged(*resident: float) -> Growth:
    samples = Samples()
    for index, size in enumerate(resident):
        samples.add(index / 10, round(size))
    return samples.judge()


def test_a_process_that_keeps_its_size_is_flat() -> None:
    growth = judged(*[300 * MIB] * 50)
    assert growth.flat
    assert (growth.grown_bytes, growth.slope_bytes_a_minute) == (0, 0.0)
    assert growth.first_bytes == growth.low_bytes == growth.high_bytes == 300 * MIB


def test_what_is_filled_while_warming_up_does_not_count() -> None:
    growth = judged(100 * MIB, 200 * MIB, *[300 * MIB] * 48)
    assert growth.flat
    assert growth.first_bytes == 100 * MIB
    assert growth.low_bytes == 300 * MIB


def test_noise_and_single_peaks_are_flat() -> None:
    noise = random.Random(3)
    sizes = [300 * MIB + noise.uniform(-1, 1) * MIB for _ in range(100)]
    sizes[95] = 400 * MIB
    assert judged(*sizes).flat


def test_a_step_that_keeps_one_frame_grows_within_three_minutes() -> None:
    steps_a_sample = 25  # two seconds of audio
    growth = judged(*[300 * MIB + 3_840 * steps_a_sample * index for index in range(90)])
    assert not growth.flat
    assert growth.slope_bytes_a_minute == pytest.approx(3_840 * steps_a_sample * 10, rel=0.01)


def test_the_verdict_is_by_what_is_tolerated() -> None:
    half = [300 * MIB] * 30
    assert judged(*half, *[300 * MIB + TOLERATED_BYTES] * 30).flat
    assert not judged(*half, *[300 * MIB + TOLERATED_BYTES + 1] * 30).flat


def test_memory_that_shrinks_is_flat() -> None:
    assert judged(*[(400 - index) * MIB for index in range(50)]).flat


def test_the_series_is_thinned() -> None:
    growth = judged(*[MIB] * 1_000)
    assert len(growth.series) <= 120
    assert growth.series[0] == (0.0, MIB)


def test_too_few_samples_give_no_verdict() -> None:
    with pytest.raises(ValueError, match="7 samples"):
        judged(*[MIB] * 7)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux's /proc")
def test_our_own_process_is_read() -> None:
    own = os.getpid()
    size, used = resident_bytes(own), cpu_seconds(own)
    assert size is not None
    assert size > MIB
    assert used is not None
    assert used > 0.0
    assert stolen_seconds() is not None


def test_a_process_that_is_gone_is_not_known() -> None:
    gone = 2**31 - 1
    assert (resident_bytes(gone), cpu_seconds(gone)) == (None, None)
    meter = Meter({"own": os.getpid(), "gone": gone})
    costs = meter.lap()
    assert "gone" not in costs.cores
    assert costs.seconds > 0.0
