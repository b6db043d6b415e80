"""Sessions of random behaviour keep to ARCHITECTURE.md's table, and their callers get what they were promised."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.live_callers import walk
from tests.live_table import LINES, Line
from tests.stage import Stage, perform

FAULTS, LISTENERS = "integration/test_live_faults.py", "integration/test_live_listeners.py"
SHUTDOWN, PARKING = "integration/test_live_shutdown.py", "unit/test_live_parking.py"
LOSSES = "unit/test_live_losses.py"
ELSEWHERE = {
    "text beyond the tenant's rate": (
        "integration/test_tenant_limits.py::test_text_beyond_the_rate_is_not_taken_and_nothing_is_lost"
    ),
    "its inbox is full": f"{FAULTS}::test_opens_and_text_that_a_stuck_engine_cannot_take_are_refused",
    "finish that ends a word": f"{PARKING}::test_finish_ends_a_held_word_and_brings_the_session_back",
    "the same, crossing with finish": f"{PARKING}::test_what_crosses_with_the_parking",
    "the same, crossing with text": f"{PARKING}::test_what_crosses_with_the_parking",
    "the same, crossing with text that was cancelled": f"{PARKING}::test_what_crosses_with_the_parking",
    "its cancel has taken it out of the line": f"{PARKING}::test_a_cancel_takes_a_session_out_of_the_line",
    "a row is free, which it no longer wants": f"{PARKING}::test_a_row_that_is_no_longer_wanted_is_parked_again",
    "the end of an older generation: its row is free": f"{PARKING}::test_a_cancel_that_crosses_with_the_end",
    "503: nobody listens": f"{LISTENERS}::test_a_session_without_a_listener_pauses_and_goes_on_when_he_is_back",
    "somebody listens again within 3 s": (
        f"{LISTENERS}::test_a_session_without_a_listener_pauses_and_goes_on_when_he_is_back"
    ),
    "one of several leaves, or is cut off by the server for its slowness": (
        "integration/test_fanout_slow.py::test_a_supervisor_who_stops_reading_is_cut_off_and_harms_nobody"
    ),
    "the server is lost": f"{LOSSES}::test_a_lost_server_holds_the_session_and_gives_up_after_30_s",
    "it is back within 30 s": f"{LOSSES}::test_a_server_that_comes_back_loses_nothing",
    "it stays away for 30 s": f"{LOSSES}::test_a_lost_server_holds_the_session_and_gives_up_after_30_s",
    "SIGTERM, until the grace is over": f"{SHUTDOWN}::test_sigterm_lets_live_sessions_finish_and_takes_no_new_ones",
    "a second signal, or the grace is over": f"{SHUTDOWN}::test_a_second_signal_ends_them_now",
}
"""Where lines are tested that the walk does not meet, or not in every 300 sessions."""


def act(seed: int, sessions: int) -> Counter[Line]:
    """One stage with so many sessions, several of them at once."""
    rng = random.Random(seed)
    visited: Counter[Line] = Counter()

    async def play(stage: Stage) -> None:
        visited.update((await walk(stage, sessions, at_once=7)).visited)

    perform(
        play,
        seed=seed,
        slots=rng.choice([1, 2, 3]),
        run_ahead=rng.choice([0, 1, 2]),
        latency=lambda: rng.choice([0, 0, 2, 5, 20]),
    )
    return visited


def test_300_random_sessions_keep_to_the_table() -> None:
    visited: Counter[Line] = Counter()
    for seed in range(10):
        visited += act(seed, 30)
    missed = {line.cause for line in LINES if not visited[line]}
    assert missed <= set(ELSEWHERE), "of these lines there is no test"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_10_000_random_sessions_keep_to_the_table() -> None:
    for seed in range(1_000, 1_100):
        act(seed, 100)


@pytest.mark.parametrize("place", sorted(set(ELSEWHERE.values())))
def test_what_the_walk_does_not_meet_is_tested_by_itself(place: str) -> None:
    path, _, name = place.partition("::")
    assert f"def {name}(" in (Path(__file__).parents[1] / path).read_text()


def test_the_table_is_read_whole() -> None:
    assert len({line.cause for line in LINES}) > 40
    assert set(ELSEWHERE) <= {line.cause for line in LINES}
