"""A host that runs a step ahead hears the same as one that waits: frame for frame, whatever comes and whenever."""

from __future__ import annotations

import dataclasses

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from engine.checkpoint import load_checkpoint
from engine.contract import Entry, SlotOptions
from engine.dsm import DsmEngine
from engine.loading import BUILTIN
from scheduler.messages import Cancel, Cancelled, Command, Finish, Flush, Open, Pace, Push
from tests.ahead_room import Heard, engine_ahead, engine_at_once

CAPACITY = 3
SESSIONS = ("a", "b", "c")
Step = tuple[str, str, int, int]
"""(session, command, number of words or seed, ticks afterwards)"""

SCRIPTS = st.lists(
    st.tuples(
        st.sampled_from(SESSIONS),
        st.sampled_from(("push", "push", "push", "flush", "finish", "cancel", "break")),
        st.integers(1, 4),
        st.integers(0, 30),
    ),
    min_size=4,
    max_size=14,
)


@pytest.fixture(scope="module")
def engines() -> tuple[DsmEngine, DsmEngine]:
    model = load_checkpoint(BUILTIN)
    return engine_at_once(model, CAPACITY), engine_ahead(model, CAPACITY)


def options(engine: DsmEngine, seed: int, generation: int) -> SlotOptions:
    """Much padding, so that some is left when a flush is done."""
    return dataclasses.replace(engine.info.defaults, seed=seed, generation=generation, max_padding=12)


def play(engine: DsmEngine, script: list[Step]) -> Heard:
    heard = Heard(engine)
    generation = dict.fromkeys(SESSIONS, 0)
    for at, session in enumerate(SESSIONS):
        heard.submit(Open(session, options(engine, at, 0), Pace.FAST))
    for session, kind, number, ticks in script:
        current = generation[session]
        command: Command
        if kind == "push":
            command = Push(session, current, tuple(Entry((20 + number, 30 + i)) for i in range(number)))
        elif kind == "break":
            command = Push(session, current, (Entry((), padding=number),))
        elif kind == "flush":
            command = Flush(session, current)
        elif kind == "finish":
            command = Finish(session, current)
        else:
            generation[session] += 1
            command = Cancel(session, options(engine, number, current + 1))
        heard.submit(command)
        heard.run(ticks)
    for session in SESSIONS:
        heard.submit(Finish(session, generation[session]))
    heard.run_out()
    return heard


FLUSHED = [("a", "push", 2, 0), ("a", "flush", 1, 40), ("a", "push", 1, 7), ("a", "push", 1, 0), ("b", "push", 1, 9)]
CANCELLED = [
    ("a", "push", 1, 5),
    ("b", "push", 2, 11),
    ("a", "cancel", 5, 0),
    ("a", "push", 2, 3),
    ("a", "flush", 1, 0),
]


@pytest.mark.parametrize("script", [FLUSHED, CANCELLED])
def test_the_same_frames(engines: tuple[DsmEngine, DsmEngine], script: list[Step]) -> None:
    compare(engines, script)


@pytest.mark.long
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SCRIPTS)
def test_the_same_frames_of_any_script(engines: tuple[DsmEngine, DsmEngine], script: list[Step]) -> None:
    compare(engines, script)


def compare(engines: tuple[DsmEngine, DsmEngine], script: list[Step]) -> None:
    want, got = (play(engine, script) for engine in engines)
    assert (want.engine.run_ahead, got.engine.run_ahead) == (0, 1)
    for session in SESSIONS:
        # A flush is answered, or its generation cancelled before, by the time that steps take: only the rest is fixed.
        kept = [[e for e in heard.ends[session] if not cancelled(heard, session, e)] for heard in (want, got)]
        assert kept[0] == kept[1]
    for key in want.frames.keys() | got.frames.keys():
        mine, theirs = want.frames[key], got.frames[key]
        if not cut(want, *key):
            assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=False):
            assert dataclasses.replace(one, slot=0) == dataclasses.replace(other, slot=0)


def cut(heard: Heard, session: str, generation: int) -> bool:
    return any(isinstance(e, Cancelled) and e.generation == generation for e in heard.ends[session])


def cancelled(heard: Heard, session: str, event: object) -> bool:
    generation = getattr(event, "generation", None)
    return not isinstance(event, Cancelled) and generation is not None and cut(heard, session, generation)
