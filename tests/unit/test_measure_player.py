from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.measure.player import Player, Underrun

RATE = 24_000
FRAME = 1_920
FRAME_S = 0.080


def fed(*arrivals: float) -> Player:
    """Frame after frame, each at its time."""
    player = Player(RATE)
    for index, at in enumerate(arrivals):
        player.hear(at, index * FRAME, FRAME)
    return player


def test_the_first_audio_is_the_grace_early_and_the_rest_by_its_time() -> None:
    player = fed(10.0, 10.05, 10.2)
    assert list(player.lateness_s) == pytest.approx([-0.060, -0.090, -0.020], abs=1e-6)
    assert player.clean
    assert player.audio_s == pytest.approx(3 * FRAME_S)


def test_a_sample_that_comes_on_its_time_is_no_underrun_and_later_is_one() -> None:
    exact = 10.0 + 0.060 + FRAME_S
    assert fed(10.0, exact - 1e-9).clean
    player = fed(10.0, exact + 0.010)
    assert player.underrun_count == 1
    assert player.underruns[0].late_s == pytest.approx(0.010)
    assert player.late_samples == pytest.approx(240, abs=1)
    assert not player.clean


def test_no_more_samples_are_late_than_there_are() -> None:
    assert fed(10.0, 20.0).late_samples == FRAME


def test_deadlines_do_not_move_after_an_underrun() -> None:
    """Otherwise one late frame would excuse all that follow it."""
    player = fed(10.0, 10.5, 10.58, 10.66)
    assert player.underrun_count == 3


def test_empty_payloads_are_not_first_audio() -> None:
    player = Player(RATE)
    player.hear(1.0, 0, 0)
    player.hear(9.0, 0, FRAME)
    player.hear(9.1, FRAME, FRAME)
    assert player.clean
    assert len(player.lateness_s) == 2


def test_a_hole_is_lost_audio_and_no_underrun() -> None:
    player = Player(RATE)
    player.hear(10.0, 0, FRAME)
    player.hear(10.1, 3 * FRAME, FRAME)
    assert player.lost_samples == 2 * FRAME
    assert player.underrun_count == 0
    assert not player.clean


def test_a_beginning_that_is_missing_is_a_hole() -> None:
    player = Player(RATE)
    player.hear(10.0, FRAME, FRAME)
    assert player.lost_samples == FRAME


def test_a_tail_that_never_comes_is_a_hole() -> None:
    player = fed(10.0)
    player.end(FRAME + 700)
    assert player.lost_samples == 700
    player.end(FRAME + 700)
    assert player.lost_samples == 700


def test_audio_that_comes_again_or_too_late_is_misplaced() -> None:
    player = fed(10.0, 10.0)
    player.hear(10.0, 0, FRAME)
    assert player.misplaced == 1
    assert not player.clean


def test_after_a_wait_for_text_playback_begins_anew() -> None:
    player = fed(10.0)
    player.pause()
    player.hear(12.0, FRAME, FRAME)
    player.hear(12.13, 2 * FRAME, FRAME)
    assert player.clean
    player.hear(12.23, 3 * FRAME, FRAME)
    assert player.underrun_count == 1


def test_a_short_wait_for_text_does_not_bring_playback_forward() -> None:
    player = fed(10.0, 10.0, 10.0)
    player.pause()
    player.hear(10.05, 3 * FRAME, FRAME)
    assert player.lateness_s[-1] == pytest.approx(10.05 - (10.06 + 3 * FRAME_S), abs=1e-6)


@given(st.lists(st.floats(0.0, 0.3), min_size=1, max_size=60))
def test_underruns_are_what_the_definition_says(delays: list[float]) -> None:
    arrivals = [5.0 + index * FRAME_S + delay for index, delay in enumerate(delays)]
    player = fed(*arrivals)
    due = [arrivals[0] + 0.060 + index * FRAME / RATE for index in range(len(arrivals))]
    assert player.underruns == [Underrun(d, a) for d, a in zip(due, arrivals, strict=True) if a > d]


def test_only_the_first_thousand_underruns_are_kept() -> None:
    player = Player(RATE)
    for index in range(1_200):
        player.hear(10.0 + index, index, 1)
    assert player.underrun_count == 1_199
    assert len(player.underruns) == 1_000
