from __future__ import annotations

import pytest

from scheduler.messages import Pace
from scheduler.session import Session, State
from tests.scheduler_room import options

FRAME = 1920


def session(credit: int | None = None) -> Session:
    return Session("s", 0, Pace.LIVE, 0.48, 24_000, FRAME, 0.0, credit, options(), 0.0)


def test_playback_starts_with_the_first_audio_and_each_frame_moves_the_deadline() -> None:
    s = session()
    assert s.play(FRAME, 5.0) == 0.0
    assert s.deadline == pytest.approx(5.08)
    assert s.play(FRAME, 5.02) == pytest.approx(-0.06)
    assert s.deadline == pytest.approx(5.16)
    assert s.play(1200, 5.17) == pytest.approx(0.01)
    assert s.deadline == pytest.approx(5.21), "a little lateness does not move the line"


def test_a_pause_shorter_than_the_lead_is_not_heard() -> None:
    s = session()
    for _ in range(5):
        s.play(FRAME, 5.0)
    s.resume(5.2)
    assert s.play(FRAME, 5.3) == pytest.approx(-0.1)
    assert s.deadline == pytest.approx(5.48)


def test_after_a_pause_that_ran_dry_playback_starts_anew() -> None:
    s = session()
    s.play(FRAME, 5.0)
    s.resume(7.0)
    assert s.play(FRAME, 7.1) == 0.0
    assert s.deadline == pytest.approx(7.18)
    assert s.play(FRAME, 7.2) == pytest.approx(0.02), "only the first audio after the pause is excused"


def test_audio_more_than_a_frame_late_is_reported_and_playback_goes_on_from_it() -> None:
    s = session()
    s.play(FRAME, 5.0)
    assert s.play(FRAME, 9.0) == pytest.approx(3.92)
    assert s.deadline == pytest.approx(9.08)


def test_a_new_generation_owes_nothing_to_the_old_one() -> None:
    s = session()
    for _ in range(5):
        s.play(FRAME, 5.0)
    s.flushing = s.finishing = True
    s.in_delay, s.audio_in_flight = False, 2
    s.restart(options(generation=1), 5.1)
    assert (s.generation, s.state, s.flushing, s.finishing) == (1, State.OPENING, False, False)
    assert (s.in_delay, s.audio_in_flight) == (True, 0)
    assert s.play(FRAME, 5.2) == 0.0
    assert s.deadline == pytest.approx(5.28)


def test_credit_covers_frames_in_flight_too() -> None:
    s = session(credit=2 * FRAME)
    s.in_delay = False
    assert s.may_send
    s.audio_in_flight = 1
    assert s.may_send
    s.audio_in_flight = 2
    assert not s.may_send
    s.audio_in_flight = 0
    s.play(FRAME, 1.0)
    s.play(FRAME, 1.0)
    assert not s.may_send
    assert s.credit == 0


def test_credit_covers_what_the_codec_keeps_back_for_the_last_frame() -> None:
    s = session(credit=4 * FRAME)
    s.in_delay = False
    s.play(FRAME - 720, 1.0)
    s.play(FRAME, 1.0)
    s.finishing = True
    assert s.may_send
    s.play(FRAME, 1.0)
    assert s.credit == FRAME + 720
    assert s.may_send, "the last frame and what was kept back fit exactly"
    s.credit -= 1
    assert not s.may_send


def test_a_step_inside_the_delay_needs_no_credit() -> None:
    s = session(credit=0)
    assert s.may_send
    s.in_delay = False
    assert not s.may_send
