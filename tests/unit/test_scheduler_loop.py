"""The life of sessions in the step loop, in fake time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from engine.contract import Entry, SlotFrame
from engine.fake import FakeEngine, pattern
from scheduler.loop import LoopRules, StepLoop
from scheduler.messages import (
    Cancel,
    Cancelled,
    Ended,
    FirstStep,
    Frame,
    Open,
    Pace,
    Push,
    Refused,
    Started,
    StepReport,
)
from tests.scheduler_room import FRAME_S, Room, options

LAG = 6
"""Steps between a word and its sound in the fake engine."""


def test_a_whole_text_is_spoken_from_the_first_sample_to_the_last() -> None:
    room = Room()
    room.open("a", words=5, finish=True, seed=11)
    room.run_out()
    assert room.kinds("a") == ["Started", "FirstStep", "Ended"]
    frames = room.frames("a")
    assert [frame.frame.step for frame in frames] == list(range(1, len(frames) + 1))
    heard = [frame.frame for frame in frames if frame.frame.pcm]
    assert [frame.model_start for frame in heard] == [1920 * number for number in range(len(frames) - LAG)]
    assert room.audio("a") == b"".join(pattern(options(seed=11), step, 1920) for step in range(7, len(frames) + 1))
    assert sum(frame.frame.word for frame in frames) == 5
    assert isinstance(room.of("a")[-1], Ended)


def test_an_empty_text_ends_without_a_step() -> None:
    room = Room()
    room.open("a", finish=True)
    room.run_out()
    assert room.kinds("a") == ["Started", "Ended"]
    assert room.engine.stepped == []
    assert room.engine.open_slots == []


def test_a_session_without_text_waits_without_a_step_and_without_asking_for_text() -> None:
    room = Room()
    room.open("a")
    room.push("a", words=0)
    room.run(5.0)
    assert room.kinds("a") == ["Started"]
    assert room.engine.stepped == []


def test_audio_does_not_depend_on_neighbours() -> None:
    alone = Room()
    alone.open("a", words=9, finish=True, seed=3)
    alone.run_out()
    crowded = Room()
    for name, seed in (("b", 4), ("a", 3), ("c", 5)):
        crowded.open(name, words=9, finish=True, seed=seed)
    crowded.run(0.3)
    crowded.cancel("b")
    crowded.run_out()
    assert crowded.audio("a") == alone.audio("a")
    assert crowded.audio("c") != alone.audio("a")


@pytest.mark.parametrize("run_ahead", [0, 1, 2])
def test_run_ahead_changes_nothing_that_is_heard(run_ahead: int) -> None:
    room = Room(run_ahead=run_ahead)
    room.open("a", words=9, seed=3)
    room.flush("a")
    room.push("a", words=4)
    room.finish("a")
    room.run_out()
    plain = Room()
    plain.open("a", words=9, seed=3)
    plain.flush("a")
    plain.push("a", words=4)
    plain.finish("a")
    plain.run_out()
    assert room.audio("a") == plain.audio("a")
    assert room.kinds("a") == plain.kinds("a") == ["Started", "FirstStep", "Flushed", "Ended"]


class Counting(FakeEngine):
    """Notes how many steps are in flight."""

    depth = deepest = 0

    def launch(self, slots: Sequence[int]) -> object:
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)
        return super().launch(slots)

    def collect(self, ticket: object) -> Sequence[SlotFrame]:
        self.depth -= 1
        return super().collect(ticket)


@pytest.mark.parametrize("run_ahead", [0, 1, 2])
def test_the_next_steps_are_launched_before_the_last_is_collected_where_the_engine_allows_it(run_ahead: int) -> None:
    room = Room()
    room.engine = engine = Counting(4, run_ahead=run_ahead)
    room.loop = StepLoop(engine, room.clock, room._deliver)
    room.open("a", words=3, finish=True)
    room.run_out()
    assert (engine.deepest, engine.depth) == (run_ahead + 1, 0)


def test_first_audio_comes_as_fast_as_the_machine_allows() -> None:
    room = Room(frame_s=lambda rows: 0.010, text_s=lambda rows: 0.002)
    room.open("a", words=5, finish=True)
    room.run(0.2)
    assert room.audio_times("a")[0] == pytest.approx(5 * 0.002 + 2 * 0.010)


def test_the_lead_grows_to_its_cap_and_then_keeps_the_beat() -> None:
    room = Room(frame_s=lambda rows: 0.003, text_s=lambda rows: 0.001)
    room.open("a", words=60, finish=True)
    room.run(8.0)
    times = room.audio_times("a")
    playback = times[0]
    leads = [playback + (number + 1) * FRAME_S - at for number, at in enumerate(times)]
    assert max(leads) <= 0.480 + 1e-9
    settled = leads[20:]
    assert min(settled) > 0.480 - FRAME_S - 0.005
    assert max(b - a for a, b in itertools.pairwise(times[20:])) == pytest.approx(FRAME_S)


def test_the_lead_is_the_sessions_own() -> None:
    room = Room()
    room.open("a", words=60, finish=True, lead_ms=240.0)
    room.run(3.0)
    times = room.audio_times("a")
    leads = [times[0] + (number + 1) * FRAME_S - at for number, at in enumerate(times)]
    assert 0.2 < max(leads) <= 0.240 + 1e-9


def test_sessions_at_their_cap_share_steps_though_they_began_at_different_times() -> None:
    room = Room(8, warm=True)
    for number in range(8):
        room.clock.at(room.clock.now() + 0.013 * number, lambda n=number: room.open(f"{n}", words=200))  # type: ignore[misc]
    room.run(3.0)
    before = len(room.reports())
    room.run(4.0)
    batches = [report.batch for report in room.reports()[before:]]
    assert set(batches) == {8}
    assert len(batches) == pytest.approx(4.0 / FRAME_S, abs=1)


def test_a_fast_session_runs_as_far_ahead_as_it_can() -> None:
    room = Room(frame_s=lambda rows: 0.004)
    room.open("a", words=200, finish=True, pace=Pace.FAST)
    room.run_out()
    frames = len(room.frames("a"))
    assert room.clock.now() - room.start == pytest.approx((frames - 5) * 0.004 + 5 * 0.001)


def test_a_fast_session_leaves_live_ones_their_time() -> None:
    room = Room(8, frame_s=lambda rows: 0.002 + 0.006 * rows, warm=True)
    for number in range(4):
        room.open(f"fast {number}", words=300, finish=True, pace=Pace.FAST)
    room.run(1.0)
    for number in range(4):
        room.open(f"live {number}", words=40, finish=True)
    room.run_until(lambda: "Ended" in room.kinds("live 3"))
    lateness = [
        event.lateness_s for event in room.events if isinstance(event, Frame) and event.session.startswith("live")
    ]
    assert max(lateness) <= 0.0
    assert min(len(room.frames(f"fast {number}")) for number in range(4)) > 60


def test_lateness_is_measured_against_the_deadline() -> None:
    room = Room(frame_s=lambda rows: 0.100)
    room.open("a", words=10, finish=True)
    room.run_out()
    heard = [frame for frame in room.frames("a") if frame.frame.pcm]
    assert heard[0].lateness_s == 0.0
    assert heard[1].lateness_s == pytest.approx(0.020)
    assert heard[2].lateness_s == pytest.approx(0.040)
    assert {frame.lateness_s for frame in room.frames("a") if not frame.frame.pcm} == {0.0}


def test_an_open_without_a_free_row_is_refused_and_the_next_one_after_an_end_is_not() -> None:
    room = Room(2)
    for name in "abc":
        room.open(name, words=3, finish=True)
    room.run(0.001)
    assert room.of("c") == [Refused("c")]
    room.run_out()
    room.open("d", words=3, finish=True)
    room.run_out()
    assert room.kinds("d")[-1] == "Ended"
    assert room.kinds("c") == ["Refused"]


def test_times_are_counted_from_the_submission_of_the_open() -> None:
    room = Room(frame_s=lambda rows: 0.050, text_s=lambda rows: 0.050)
    room.open("a", words=50)
    room.clock.at(room.clock.now() + 0.010, lambda: room.open("b", words=5))
    room.run(1.0)
    started = next(event for event in room.of("b") if isinstance(event, Started))
    first = next(event for event in room.of("b") if isinstance(event, FirstStep))
    assert started.queued_s == pytest.approx(0.040), "a step was in progress"
    assert first.queued_s == pytest.approx(0.090)


def test_the_events_of_an_iteration_come_in_one_delivery_and_in_order() -> None:
    room = Room()
    room.open("a", words=3, finish=True)
    room.open("b", words=3, finish=True)
    room.run_out()
    for events in room.deliveries:
        assert sum(isinstance(event, StepReport) for event in events) <= 1
    assert room.deliveries[0] == [Started("a", 0.0), Started("b", 0.0)], "an answer does not wait for a step"
    with_frames = [events for events in room.deliveries if any(isinstance(event, Frame) for event in events)]
    assert all(isinstance(events[-1], StepReport) for events in with_frames)


def test_step_reports_say_what_the_step_was() -> None:
    room = Room(4, frame_s=lambda rows: 0.001 * rows, text_s=lambda rows: 0.0005 * rows)
    for name in "abc":
        room.open(name, words=6, finish=True)
    room.run_out()
    reports = room.reports()
    assert (reports[0].batch, reports[0].active, reports[0].limit) == (3, 3, 4)
    assert reports[0].duration_s == pytest.approx(0.0015)
    assert reports[5].duration_s == pytest.approx(0.003)
    assert sum(report.words for report in reports) == 18
    assert sum(report.batch for report in reports) == sum(len(room.frames(name)) for name in "abc")


def test_fast_sessions_take_nothing_from_the_live_limit_but_their_row() -> None:
    room = Room(16, frame_s=lambda rows: 0.0065 * rows, warm=True)
    assert room.loop.limit == 8
    for number in range(5):
        room.open(f"{number}", words=50, pace=Pace.FAST)
    room.run(0.01)
    assert room.loop.limit == 13
    for number in range(5, 9):
        room.open(f"{number}", words=50, pace=Pace.FAST)
    room.run(0.01)
    assert room.loop.limit == 16


def test_drain_refuses_newcomers_and_lets_the_others_finish() -> None:
    room = Room()
    room.open("a", words=5, finish=True)
    room.run(0.05)
    room.loop.drain()
    room.open("b", words=5, finish=True)
    room.run_out()
    assert room.of("b") == [Refused("b")]
    assert room.kinds("a")[-1] == "Ended"


@pytest.mark.parametrize("run_ahead", [0, 1])
def test_stop_ends_what_is_left_and_returns(run_ahead: int) -> None:
    room = Room(run_ahead=run_ahead)
    room.open("a", words=500)
    room.open("b")
    room.clock.at(room.clock.now() + 2.0, room.loop.stop)
    room.loop.run()
    assert [type(event) for event in room.of("a")][-1] is Cancelled
    assert room.of("b")[-1] == Cancelled("b", 0, kept=False)
    assert room.loop.active == 0
    assert room.engine.open_slots == []
    assert room.clock.now() - room.start < 2.1


def test_the_heartbeat_shows_a_step_that_does_not_return_and_beats_while_idle() -> None:
    room = Room()
    seen: list[float] = []
    room.run(3.2)
    assert room.clock.now() - room.loop.heartbeat <= LoopRules().idle_tick_s
    room.open("a", words=3, finish=True)
    room.frame_s = lambda rows: 5.0
    room.clock.at(room.clock.now() + 4.0, lambda: seen.append(room.clock.now() - room.loop.heartbeat))
    room.run(10.0)
    assert seen[0] > 2.0


def test_commands_for_strangers_and_for_old_generations_do_nothing() -> None:
    room = Room()
    room.push("nobody")
    room.flush("nobody")
    room.finish("nobody")
    room.cancel("nobody")
    room.hold("nobody")
    room.resume("nobody")
    room.open("a")
    room.submit(Cancel("a", options(generation=1)))
    room.push("a", words=5, generation=0)
    room.finish("a", generation=0)
    room.push("a", words=5, generation=2)
    room.run(2.0)
    assert room.kinds("a") == ["Started", "Cancelled"]
    assert room.engine.stepped == []


def test_an_open_with_an_id_that_is_here_changes_nothing() -> None:
    room = Room(2)
    room.open("a", words=5, seed=1)
    room.submit(Open("a", options(seed=2)), Push("a", 0, (Entry((9,)),)))
    room.finish("a")
    room.run_out()
    assert room.kinds("a") == ["Started", "FirstStep", "Ended"]
    assert sum(frame.frame.word for frame in room.frames("a")) == 6


def test_a_break_is_text_too() -> None:
    room = Room()
    room.open("a")
    room.submit(Push("a", 0, (Entry((), padding=6),)))
    room.finish("a")
    room.run_out()
    assert room.kinds("a") == ["Started", "FirstStep", "Ended"]
    assert len(room.audio("a")) > 6 * 2 * 1920
