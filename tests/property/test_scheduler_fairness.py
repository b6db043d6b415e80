"""Nobody starves, however many there are and however slow the machine is."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import event, given, settings

from scheduler.messages import Frame, StepReport
from tests.scheduler_room import Room


@settings(max_examples=40, deadline=None)
@given(
    base_ms=st.floats(0.5, 60.0),
    row_ms=st.floats(0.0, 40.0),
    arrivals_ms=st.lists(st.integers(0, 1500), min_size=1, max_size=12),
    run_ahead=st.sampled_from([0, 1]),
)
def test_a_session_in_need_is_stepped_within_a_bounded_number_of_steps(
    base_ms: float, row_ms: float, arrivals_ms: list[int], run_ahead: int
) -> None:
    """The machine may be many times too slow. A session is in need while it waits for its first audio and from the
    deadline of each frame on; until its step comes there are no more of others than a few for each of them."""
    room = Room(
        12,
        run_ahead=run_ahead,
        frame_s=lambda rows: (base_ms + row_ms * rows) / 1000,
        text_s=lambda rows: (base_ms + row_ms * rows) / 4000,
        warm=True,
    )
    for number, at_ms in enumerate(arrivals_ms):
        room.clock.at(room.start + at_ms / 1000, lambda n=number: room.open(f"{n}", words=20, finish=True))  # type: ignore[misc]
    room.run(1.6)
    room.run_until(lambda: room.loop.active == 0, limit_s=600.0)
    room.loop.tick()
    names = [f"{number}" for number in range(len(arrivals_ms))]
    assert [room.kinds(name)[-1] for name in names] == ["Ended"] * len(names)
    longest = max(longest_wait(room, name) for name in names)
    event(f"{longest // len(names)} steps a session")
    assert longest <= 4 * len(names) + 2


def longest_wait(room: Room, name: str) -> int:
    """Most steps of others before a step of this session, while it was in need."""
    others_at: list[float] = []
    longest, heard = 0, False
    started = next(at for at, found in room.timed if not isinstance(found, StepReport) and found.session == name)
    for at, found in room.timed:
        if isinstance(found, StepReport) and at > started:
            others_at.append(at)
        elif isinstance(found, Frame) and found.session == name:
            since = at - found.lateness_s if heard else 0.0
            longest = max(longest, sum(other > since for other in others_at))
            heard = heard or bool(found.frame.pcm)
            others_at = []
    return longest
