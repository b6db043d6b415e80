from __future__ import annotations

import math

import pytest

from scheduler.clock import Beat
from scheduler.costs import CostRules, StepCosts, size_classes
from scheduler.messages import Pace
from scheduler.policy import Plan, Policy
from scheduler.session import Session, State
from tests.scheduler_room import options

FRAME_S = 0.08
NOW = 10.0
"""On the 125th beat."""


def costs(base: float = 0.0, slope: float = 0.0, text: float = 0.0) -> StepCosts:
    made = StepCosts(64, CostRules())
    for rows in size_classes(64):
        made.frame.seed(rows, base + slope * rows)
        made.text.seed(rows, text)
    made.refresh(0.0)
    return made


GROWING = costs(0.003, 0.0015, 0.001)
FLAT = costs(0.012, 0.00002, 0.003)

POLICY = Policy(Beat(0.0, FRAME_S), reserve_s=2 * FRAME_S)


class Stage:
    """Sessions in the order of their rows."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []

    def add(self, name: str, pace: Pace = Pace.LIVE, lead_ms: float = 480.0) -> Session:
        session = Session(name, len(self.sessions), pace, lead_ms / 1000, 24_000, 1920, 0.0, None, options(), NOW)
        session.state = State.RUNNING
        session.in_delay = False
        self.sessions.append(session)
        return session

    def waiting(self, name: str, since: float = NOW, in_delay: bool = False) -> Session:
        """For its first audio."""
        session = self.add(name)
        session.since, session.in_delay = since, in_delay
        return session

    def playing(self, name: str, lead_s: float, launched_at: float = NOW - FRAME_S, cap_ms: float = 480.0) -> Session:
        session = self.add(name, lead_ms=cap_ms)
        session.resumed, session.deadline, session.launched_at = False, NOW + lead_s, launched_at
        return session

    def fast(self, name: str, launched_at: float = 0.0) -> Session:
        session = self.add(name, Pace.FAST)
        session.launched_at = launched_at
        return session

    def plan(self, now: float = NOW, costs: StepCosts = GROWING, text_run: int = 0) -> Plan:
        return POLICY.plan(self.sessions, now, costs, text_run)

    def names(self, now: float = NOW, costs: StepCosts = GROWING, text_run: int = 0) -> list[str]:
        return [session.id for session in self.plan(now, costs, text_run).rows]


def test_first_audio_goes_before_a_short_lead_and_both_before_a_comfortable_one() -> None:
    stage = Stage()
    stage.playing("comfortable", 0.300)
    stage.playing("short", 0.130)
    stage.playing("shorter", 0.120)
    stage.waiting("first")
    assert stage.names() == ["first", "shorter", "short"]


def test_a_row_that_would_be_late_goes_before_a_younger_first_audio() -> None:
    stage = Stage()
    stage.waiting("first", since=NOW)
    stage.playing("late", 0.005)
    assert stage.names() == ["late", "first"]


def test_without_need_the_earliest_deadline_goes_first() -> None:
    stage = Stage()
    for number, lead_s in enumerate((0.39, 0.21, 0.30)):
        stage.playing(f"{number}", lead_s)
    assert stage.names() == ["1", "2", "0"]


def test_urgent_rows_do_not_drag_comfortable_ones_along_where_cost_grows_with_the_batch() -> None:
    stage = Stage()
    stage.waiting("first")
    for number in range(10):
        stage.playing(f"{number}", 0.3)
    assert stage.names(costs=GROWING) == ["first"]


def test_where_the_next_row_is_nearly_free_everything_below_its_cap_rides_along() -> None:
    stage = Stage()
    stage.waiting("first")
    stage.playing("capped", 0.410)
    stage.playing("below", 0.390)
    stage.fast("fast")
    assert stage.names(costs=FLAT) == ["first", "below", "fast"]


def test_text_only_steps_come_in_short_runs_while_others_need_frames() -> None:
    stage = Stage()
    stage.waiting("in delay", in_delay=True)
    stage.playing("short", 0.100)
    assert (stage.names(text_run=1), stage.plan(text_run=1).text_only) == (["in delay"], True)
    assert (stage.names(text_run=2), stage.plan(text_run=2).text_only) == (["short"], False)


def test_text_only_steps_come_in_longer_runs_while_others_are_comfortable() -> None:
    stage = Stage()
    stage.waiting("in delay", in_delay=True)
    stage.playing("comfortable", 0.300)
    assert stage.names(text_run=7) == ["in delay"]
    assert stage.names(text_run=8) == ["comfortable"]


def test_text_only_steps_go_on_while_nobody_else_wants_anything() -> None:
    stage = Stage()
    stage.waiting("in delay", in_delay=True)
    stage.playing("capped", 0.450)
    assert stage.names(text_run=1000) == ["in delay"]


def test_capped_rows_fall_due_on_the_beat_together() -> None:
    stage = Stage()
    for number in range(4):
        stage.playing(f"{number}", 0.405 + 0.019 * number)
    plan = stage.plan()
    assert plan.rows == []
    assert plan.wake_at == pytest.approx(NOW + FRAME_S), "not at NOW + 5 ms, when the first could begin"
    assert len(stage.plan(plan.wake_at).rows) == 4


def test_a_frame_never_exceeds_the_cap() -> None:
    stage = Stage()
    stage.playing("at the cap", 0.401)
    stage.playing("one frame below", 0.399)
    assert stage.names() == ["one frame below"]


def test_rows_that_build_their_lead_step_once_in_half_a_beat() -> None:
    stage = Stage()
    stage.playing("building", 0.250, launched_at=NOW + 0.001)
    plan = stage.plan(NOW + 0.010)
    assert plan.rows == []
    assert plan.wake_at == pytest.approx(NOW + 0.040)
    assert stage.names(plan.wake_at) == ["building"]


def test_rows_with_a_short_lead_step_once_in_a_quarter_of_a_beat() -> None:
    stage = Stage()
    stage.playing("short", 0.130, launched_at=NOW + 0.001)
    plan = stage.plan(NOW + 0.010)
    assert plan.rows == []
    assert plan.wake_at == pytest.approx(NOW + 0.020)
    assert stage.names(plan.wake_at) == ["short"]


def test_a_row_that_the_next_quarter_would_find_too_late_does_not_wait_for_it() -> None:
    stage = Stage()
    stage.playing("hurried", 0.030, launched_at=NOW + 0.001)
    assert stage.names(NOW + 0.002) == ["hurried"]


def test_a_small_cap_is_not_made_late_by_the_beat() -> None:
    stage = Stage()
    stage.playing("tight", 0.085, cap_ms=160.0)
    plan = stage.plan()
    assert plan.rows == []
    assert plan.wake_at == pytest.approx(NOW + 0.020), "5 ms from now it could, and on the quarter beat it does"
    assert stage.names(plan.wake_at) == ["tight"]


def test_a_cap_of_nothing_still_lets_one_frame_out_when_it_is_due() -> None:
    stage = Stage()
    stage.playing("just in time", 0.010, cap_ms=0.0)
    plan = stage.plan()
    assert plan.rows == []
    assert plan.wake_at == pytest.approx(NOW + 0.010)
    assert stage.names(plan.wake_at) == ["just in time"]


def test_frames_in_flight_count_as_lead() -> None:
    stage = Stage()
    stage.playing("s", 0.390).audio_in_flight = 1
    assert stage.names() == []


def test_before_playback_began_frames_in_flight_count_too() -> None:
    stage = Stage()
    first = stage.waiting("first")
    first.lead_s, first.audio_in_flight = 0.160, 1
    assert stage.names() == ["first"]
    first.outlook, first.audio_in_flight = None, 2
    assert stage.plan() == Plan([], False, math.inf)


def test_after_a_pause_a_session_counts_as_waiting_only_where_it_ran_dry() -> None:
    stage = Stage()
    stage.playing("in hand", 0.300).resume(NOW)
    stage.playing("dry", -0.500).resume(NOW)
    assert stage.names() == ["dry"]


@pytest.mark.parametrize("state", [State.IDLE, State.STALLED, State.OPENING, State.GONE])
def test_sessions_that_cannot_step_are_left_out(state: State) -> None:
    stage = Stage()
    stage.waiting("s").state = state
    assert stage.plan() == Plan([], False, math.inf)


def test_held_sessions_and_those_without_credit_are_left_out() -> None:
    stage = Stage()
    stage.waiting("held").held = True
    stage.waiting("poor").credit = 1919
    stage.waiting("rich").credit = 1920
    assert stage.names() == ["rich"]


def test_fast_sessions_fill_what_is_left_in_turn() -> None:
    stage = Stage()
    stage.playing("capped", 0.450)
    stage.fast("b", launched_at=9.2)
    stage.fast("a", launched_at=9.1)
    assert stage.names() == ["a", "b"]


def test_fast_sessions_wait_while_a_live_one_would_become_late() -> None:
    stage = Stage()
    stage.playing("tight", 0.075, launched_at=NOW, cap_ms=80.0)
    stage.fast("fast")
    assert stage.names() == ["fast"], "4.5 ms for it and 4.5 ms for the live one: time enough"
    assert stage.names(NOW + 0.067) == []
    assert stage.plan(NOW + 0.067).wake_at == pytest.approx(NOW + 0.075)


def test_fast_sessions_do_not_ride_where_a_live_one_would_become_late() -> None:
    stage = Stage()
    stage.playing("calm", 0.150, cap_ms=240.0)
    stage.playing("tight", 0.021, launched_at=NOW, cap_ms=80.0)
    stage.fast("fast")
    assert stage.names(costs=costs(0.008)) == ["calm", "fast"]
    assert stage.names(costs=costs(0.012)) == ["calm"]


def test_a_step_of_fast_sessions_is_short() -> None:
    stage = Stage()
    for number in range(40):
        stage.fast(f"{number}")
    assert GROWING.frame.cost(len(stage.names())) <= POLICY.fast_quantum_s
    assert len(stage.names(costs=costs(0.100))) == 1, "one row always may, however slow the machine is"


def test_fast_rows_inside_and_outside_their_delay_are_not_mixed() -> None:
    stage = Stage()
    stage.fast("new").in_delay = True
    stage.fast("old", launched_at=1.0)
    assert (stage.names(), stage.plan().text_only) == (["new"], True)
    stage.sessions[0].launched_at, stage.sessions[0].outlook = 2.0, None
    assert (stage.names(), stage.plan().text_only) == (["old"], False)


def test_a_large_batch_is_cut_and_the_earliest_deadlines_go_first() -> None:
    stage = Stage()
    for number in range(32):
        stage.playing(f"{number}", 0.399 - 0.001 * number)
    names = stage.names()
    assert len(names) == GROWING.frame.part(32) < 32
    assert names == [f"{31 - place}" for place in range(len(names))]


def test_a_large_text_only_batch_is_cut_and_the_longest_waiting_go_first() -> None:
    stage = Stage()
    for number in range(32):
        stage.waiting(f"{number}", since=NOW - number, in_delay=True)
    slow = StepCosts(64)
    for rows in size_classes(64):
        slow.text.seed(rows, 0.003 + 0.0015 * rows)
    slow.refresh(0.0)
    names = stage.names(costs=slow)
    assert len(names) == slow.text.part(32) < 32
    assert names == [f"{31 - place}" for place in range(len(names))]


def test_the_plan_does_not_depend_on_the_order_of_the_sessions() -> None:
    stage = Stage()
    for number in range(8):
        stage.waiting(f"w{number}", since=NOW - number % 3)
        stage.playing(f"p{number}", 0.1 + 0.02 * (number % 4))
    forward = stage.names()
    stage.sessions.reverse()
    assert stage.names() == forward
