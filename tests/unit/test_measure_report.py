from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from tests.unit.measure_pool import RATE
from worker.measure.ladder import climb
from worker.measure.machine import this_machine
from worker.measure.player import Player
from worker.measure.processes import Costs
from worker.measure.record import Outcome, SessionRecord, summarise
from worker.measure.report import Run, document, remarks, run_dict, show
from worker.measure.stalls import Phase, Stall

FRAME = 1_920
COSTS = Costs(60.0, {"worker": 0.8, "client": 0.1}, 0.02)


def record(*late_s: float, first_audio_s: float = 0.25, first_wave: bool = True) -> SessionRecord:
    """A finished session whose second, third .. message came so long after its time."""
    player = Player(RATE)
    player.hear(100.0, 0, FRAME)
    for index, late in enumerate(late_s, 1):
        player.hear(100.06 + index * FRAME / RATE + late, index * FRAME, FRAME)
    return SessionRecord(
        first_wave, 100.0 - first_audio_s, Outcome.FINISHED, "", player, first_audio_s, first_audio_s + 0.02
    )


def refused(code: str = "no_capacity") -> SessionRecord:
    return SessionRecord(False, 100.0, Outcome.REFUSED, code)


def phase(*stalls: Stall) -> Phase:
    worst = max((stall.woke - stall.due for stall in stalls), default=0.002)
    return Phase(1_000, 3.0, 0.0001, 0.001, worst, len(stalls), True, (0.002, worst, 0.0), stalls)


def run(*records: SessionRecord, stalls: Phase | None = None, sessions: int = 16) -> Run:
    return Run(summarise(list(records), sessions, 60.0, RATE), stalls or phase(), COSTS)


def text(run: Run) -> str:
    out = io.StringIO()
    show(Console(file=out, width=100), run, phase())
    return out.getvalue()


def test_the_figures_are_milliseconds_and_say_of_how_many() -> None:
    figures = run_dict(run(*[record(-0.1, -0.2)] * 250, record(-0.1, -0.2, first_audio_s=0.4)))
    assert figures["first_audio_ms"] == {
        "count": 251,
        "p50": 250.0,
        "p95": 250.0,
        "p99": 250.0,
        "max": 400.0,
        "thin": [],
    }
    assert figures["outcomes"] == {"finished": 251, "cut": 0, "refused": 0, "failed": 0}
    assert (figures["underruns"], figures["lost_audio_ms"]) == (0, 0.0)
    lateness = figures["lateness_ms"]
    assert isinstance(lateness, dict)
    assert (lateness["count"], lateness["p50"], lateness["p95"]) == (502, pytest.approx(-200), pytest.approx(-100))
    assert figures["cores_used"] == {"worker": 0.8, "client": 0.1}


def test_the_document_is_json_with_machine_and_plan() -> None:
    written = json.loads(json.dumps(document({"sessions": 1}, this_machine(), phase(), [run(record(0.05))])))
    assert written["plan"] == {"sessions": 1}
    assert written["machine"]["cores"] >= 1
    assert written["before_the_load"]["max_ms"] == 2.0
    assert written["runs"][0]["worst_underruns"] == [{"late_ms": pytest.approx(50.0, abs=0.01), "host_stalled_ms": 0.0}]


def test_the_table_marks_percentiles_of_few_values() -> None:
    shown = text(run(record(-0.1), refused()))
    assert "16 sessions at once, 60 s" in shown
    assert "~250" in shown
    assert "~ few values" in shown
    assert "1 finished, 1 refused" in shown
    assert "no_capacity: 1" in shown
    many = text(run(*[record(*[-0.1] * 10)] * 250))
    assert "~" not in many


def test_a_measurement_without_a_session_is_shown_too() -> None:
    shown = text(run(refused(), refused()))
    assert "2 refused" in shown
    assert "underruns: none in 0 messages" in shown
    assert "first audio" not in shown


def test_underruns_are_told_with_the_host_s_stalls_beside_them() -> None:
    late = record(0.030)  # due at 100.14
    ours = "\n".join(remarks(run(late)))
    assert "underruns: 1 of 2 messages in 1 sessions, 30 ms of audio, worst 30 ms late" in ours
    assert "the host stalled" not in ours
    host = phase(Stall(100.0, 100.035, queued_s=0.0))
    assert "the host stalled beside 1 of the 1 worst" in "\n".join(remarks(run(late, stalls=host)))
    busy = phase(Stall(100.0, 100.035, queued_s=0.030))
    assert run(late, stalls=busy).excused() == 0
    elsewhere = phase(Stall(50.0, 50.035, queued_s=0.0))
    assert run(late, stalls=elsewhere).excused() == 0


async def test_the_climb_ends_at_the_first_fault_and_says_which() -> None:
    measured: list[int] = []

    async def measure(sessions: int) -> Run:
        measured.append(sessions)
        bad = [refused(), refused("timeout")] if sessions > 20 else []
        return run(record(-0.1), *bad, sessions=sessions)

    climbed = await climb(measure, 16, 3)
    assert measured == [16, 19, 22]
    assert climbed.clean == 19
    assert climbed.limit.startswith("22 sessions: 2 opens were refused (1 no_capacity, 1 timeout)")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (record(0.03), "16 sessions: underruns: 1 of 2 messages"),
        (SessionRecord(True, 100.0, Outcome.FAILED, "model_failure"), "16 sessions: 1 sessions failed (model_failure)"),
        (SessionRecord(True, 100.0, Outcome.FINISHED, lost_messages=2), "16 sessions: 2 audio messages were lost"),
    ],
)
async def test_a_climb_that_fails_at_once_has_no_clean_load(record: SessionRecord, said: str) -> None:
    async def measure(sessions: int) -> Run:
        return run(record, sessions=sessions)

    climbed = await climb(measure, 16, 1)
    assert climbed.clean is None
    assert climbed.limit.startswith(said)


async def test_a_climb_without_a_fault_ends_at_its_top_and_a_single_load_is_no_climb() -> None:
    async def measure(sessions: int) -> Run:
        return run(record(-0.1), sessions=sessions)

    climbed = await climb(measure, 1, 2, most=6)
    assert (climbed.clean, climbed.limit) == (5, "5 sessions: no fault up to here")
    assert len((await climb(measure, 1, 2, once=True)).runs) == 1
