"""A session that comes from elsewhere goes on as it would have, and nobody else's beat is missed for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from scheduler.messages import (
    Cancelled,
    Command,
    Ended,
    Event,
    Failed,
    Finish,
    Flush,
    Flushed,
    Frame,
    Open,
    Push,
    Refused,
    Restore,
    Restored,
    Retold,
    Stalled,
)
from scheduler.restoring import Told
from tests.scheduler_room import WORD, Room, options

RECORDED = dataclasses.replace(options(seed=3), recorded=True)
OPEN = Open("s", RECORDED)
Text = Push | Flush | Finish


def push(count: int) -> Push:
    return Push("s", 0, (WORD,) * count)


SCRIPT: tuple[Text, ...] = (Flush("s", 0), push(3), push(0), Flush("s", 0), Flush("s", 0), push(4), Finish("s", 0))


def lived(script: Sequence[Command] = SCRIPT) -> list[Event]:
    room = Room(overlap=720)
    room.submit(OPEN, *script)
    room.run(5.0)
    return [event for event in room.of("s") if isinstance(event, Frame | Flushed | Stalled | Ended)]


def told(room: Room) -> list[Event]:
    """What listeners and the producer notice after the restoring."""
    events = room.of("s")
    at = next(index for index, event in enumerate(events) if isinstance(event, Restored))
    kinds = Frame | Flushed | Stalled | Ended | Failed
    return [event for event in events[at:] if isinstance(event, kinds)]


def alike(events: Sequence[Event]) -> list[object]:
    return [event.frame if isinstance(event, Frame) else event for event in events]


@pytest.mark.parametrize("cut", range(2, 50, 3))
def test_what_follows_is_what_would_have_followed(cut: int) -> None:
    events = lived()
    before, after = events[:cut], events[cut:]
    answered = sum(isinstance(event, Flushed) for event in before)
    records = tuple(event.frame.record for event in before if isinstance(event, Frame))
    room = Room(overlap=720)
    room.submit(Restore(OPEN, SCRIPT, answered, records))
    room.run(5.0)
    assert alike(told(room)) == alike(after)
    retold = [frame for event in room.of("s") if isinstance(event, Retold) for frame in event.frames]
    assert [len(frame.pcm) for frame in retold] == [len(e.frame.pcm) for e in before if isinstance(e, Frame)]


def test_samples_come_again_where_they_are_wanted() -> None:
    frames = [event.frame for event in lived() if isinstance(event, Frame)]
    room = Room(overlap=720)
    room.submit(Restore(OPEN, SCRIPT, 2, tuple(frame.record for frame in frames[:20]), sound_from=0))
    room.run(1.0)
    assert [f for e in room.of("s") if isinstance(e, Retold) for f in e.frames] == frames[:20]


def test_a_session_that_was_stalled_says_so_again_and_takes_more_text() -> None:
    script = (push(3),)
    events = lived(script)
    records = tuple(event.frame.record for event in events if isinstance(event, Frame))
    room = Room(overlap=720)
    room.submit(Restore(OPEN, script, 0, records))
    room.run(1.0)
    assert alike(told(room)) == [Stalled("s", 0, 0)]
    room.submit(push(1), Finish("s", 0))
    room.run_out()
    assert told(room)[-1] == Ended("s", 0)


def test_text_that_comes_meanwhile_waits() -> None:
    events = lived((push(3), push(4), Finish("s", 0)))
    records = tuple(event.frame.record for event in events if isinstance(event, Frame))[:9]
    room = Room(overlap=720)
    room.submit(Restore(OPEN, (push(3),), 0, records), push(4), Finish("s", 0))
    room.run(5.0)
    assert alike(told(room)) == alike(events[9:])


def test_a_cancel_ends_it() -> None:
    records = tuple(event.frame.record for event in lived() if isinstance(event, Frame))
    room = Room(overlap=720)
    room.submit(Restore(OPEN, SCRIPT, 3, records))
    room.loop.tick()
    room.cancel("s")
    room.run_out()
    assert room.of("s")[-1] == Cancelled("s", 0, kept=False)
    assert room.engine.open_slots == []


def test_what_does_not_fit_fails_that_session_alone() -> None:
    room = Room(overlap=720)
    room.open("other", 5, finish=True)
    room.submit(Restore(OPEN, (push(3),), 0, (b"nonsense",)))
    room.run_out()
    assert isinstance(room.of("s")[-1], Failed)
    assert isinstance(room.of("other")[-1], Ended)
    assert room.engine.open_slots == []


def test_without_a_row_it_is_refused() -> None:
    room = Room(capacity=1)
    room.open("other", 5)
    room.submit(Restore(OPEN, (push(3),), 0, ()))
    room.run(0.1)
    assert room.of("s") == [Refused("s")]


def test_others_keep_their_beat() -> None:
    """Six sessions of 12 s at a millisecond a row and step come to four that play with a lead of two frames."""
    long = (push(40), Finish("s", 0))
    records = tuple(event.frame.record for event in lived(long) if isinstance(event, Frame))[:60]
    room = Room(capacity=12, frame_s=lambda rows: 0.001 * rows, text_s=lambda rows: 0.001 * rows)
    for index in range(4):
        room.open(f"playing{index}", 60, lead_ms=160.0)
    room.run(2.0)
    for index in range(6):
        name = f"new{index}"
        script = tuple(dataclasses.replace(command, session=name) for command in long)
        room.submit(Restore(Open(name, RECORDED), script, 0, records))
    room.run(2.0)
    late = [frame.lateness_s for index in range(4) for frame in room.frames(f"playing{index}")]
    assert max(late) <= 0.0
    assert all("Restored" in room.kinds(f"new{index}") for index in range(6))


def test_the_heaviest_load_does_not_stop_it() -> None:
    records = tuple(event.frame.record for event in lived() if isinstance(event, Frame))
    room = Room(capacity=8, frame_s=lambda rows: 0.025 * rows)
    for index in range(6):
        room.open(f"playing{index}", 200, lead_ms=80.0)
    room.run(2.0)
    room.submit(Restore(OPEN, SCRIPT, 3, records))
    room.run_until(lambda: any(isinstance(event, Restored) for event in room.of("s")), limit_s=20.0)


@pytest.mark.parametrize(
    ("answered", "orders", "rest", "fresh", "pending"),
    [
        (0, (), SCRIPT, False, None),
        (1, SCRIPT[1:4], SCRIPT[4:], False, SCRIPT[3]),
        (2, SCRIPT[1:4], SCRIPT[4:], False, None),
        (3, (*SCRIPT[1:4], *SCRIPT[5:]), (), False, SCRIPT[6]),
    ],
)
def test_how_far_the_engine_had_been_told(
    answered: int, orders: tuple[Text, ...], rest: tuple[Text, ...], fresh: bool, pending: Text | None
) -> None:
    assert Told.of(SCRIPT, answered) == Told(orders, rest, fresh, pending)  # type: ignore[arg-type]
