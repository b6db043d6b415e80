"""A measurement as JSON and as tables. Times are milliseconds in both."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.measure.load import RATE
from worker.measure.machine import Machine
from worker.measure.memory import MIB, Growth
from worker.measure.player import Underrun
from worker.measure.processes import Costs
from worker.measure.record import Summary
from worker.measure.soak import Soak
from worker.measure.spread import QUANTILES, Spread
from worker.measure.stalls import Phase

if TYPE_CHECKING:
    from rich.console import Console

MS = 1000.0
BLAMED_BEFORE_S = 0.5
"""A stall so long before a sample was due may have made it late: a live session runs about that far ahead."""
DEFINITIONS = {
    "first_audio_ms": "client's clock, from just before open is published to the first non-empty audio message",
    "audible_ms": "the same plus the silence before the first 10 ms window with an RMS over 0.01 (Coval's TTFA)",
    "lateness_ms": "arrival of an audio message against first arrival + 60 ms + pts / rate; negative = early",
    "underrun": "a message later than that",
    "wake_up_ms": "how much later than asked an idle process woke; host: what no process of this machine caused",
    "thin": "percentiles with fewer than two values beyond them",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One load with what the machine did meanwhile."""

    summary: Summary
    stalls: Phase
    costs: Costs

    def excused(self) -> int:
        """Of the worst underruns, those with the host stalled beside them for at least as long as they were late."""
        return sum(self.host_stalled_s(underrun) >= underrun.late_s for underrun in self.summary.worst)

    def host_stalled_s(self, underrun: Underrun) -> float:
        return self.stalls.host_between(underrun.due - BLAMED_BEFORE_S, underrun.came)


# --- JSON -----------------------------------------------------------------------------------------------------------


def document(plan: Mapping[str, object], machine: Machine, idle: Phase, runs: Sequence[Run]) -> dict[str, object]:
    return {
        "plan": dict(plan),
        "machine": machine_dict(machine),
        "definitions": DEFINITIONS,
        "before_the_load": stalls_dict(idle),
        "runs": [run_dict(run) for run in runs],
    }


def machine_dict(machine: Machine) -> dict[str, object]:
    return dataclasses.asdict(machine)


def soak_dict(soak: Soak, growth: Growth) -> dict[str, object]:
    minutes = soak.player.audio_s / 60
    return {
        "minutes": round(minutes, 3),
        "seconds": round(soak.seconds, 3),
        "times_real_time": round(60 * minutes / soak.seconds, 2),
        "lost_audio_ms": round(MS * soak.player.lost_samples / RATE, 3),
        "misplaced_messages": soak.player.misplaced,
        "waits_for_text": soak.waits,
        "flat": growth.flat,
        "first_mib": round(growth.first_bytes / MIB, 2),
        "low_mib": round(growth.low_bytes / MIB, 2),
        "high_mib": round(growth.high_bytes / MIB, 2),
        "grown_mib": round(growth.grown_bytes / MIB, 3),
        "slope_kib_a_minute_of_audio": round(growth.slope_bytes_a_minute / 1024, 2),
        "series_minutes_mib": [(round(at, 3), round(size / MIB, 2)) for at, size in growth.series],
    }


def run_dict(run: Run) -> dict[str, object]:
    s = run.summary
    spreads = {
        "first_audio_ms": s.first_audio,
        "first_audio_of_the_first_wave_ms": s.first_wave,
        "audible_ms": s.audible,
        "no_audio_after_ms": s.mute,
        "lateness_ms": s.lateness,
    }
    return {
        "sessions": s.sessions,
        "seconds": round(s.seconds, 3),
        "opened": s.opened,
        "outcomes": s.outcomes,
        "codes": s.codes,
        **{name: _in_ms(spread) for name, spread in spreads.items()},
        "rtf": s.rtf and s.rtf.as_dict(),
        "text_sent_at_first_audio": s.sent_share and s.sent_share.as_dict(),
        "audio_s": round(s.audio_s, 3),
        "messages": s.messages,
        "underruns": s.underruns,
        "sessions_with_underruns": s.underrun_sessions,
        "late_audio_ms": round(MS * s.late_samples_s, 3),
        "lost_audio_ms": round(MS * s.lost_samples_s, 3),
        "lost_messages": s.lost_messages,
        "misplaced_messages": s.misplaced,
        "waits_for_text": s.waits,
        "worst_underruns": [_underrun_dict(run, underrun) for underrun in s.worst],
        "machine_stalls": stalls_dict(run.stalls),
        "cores_used": {name: round(share, 3) for name, share in run.costs.cores.items()},
        "cores_stolen": None if run.costs.stolen_cores is None else round(run.costs.stolen_cores, 4),
    }


def stalls_dict(phase: Phase) -> dict[str, object]:
    return {
        "wake_ups": phase.wakes,
        "seconds": round(phase.seconds, 3),
        "p50_ms": round(MS * phase.p50_s, 3),
        "p99_ms": round(MS * phase.p99_s, 3),
        "max_ms": round(MS * phase.max_s, 3),
        "host_max_ms": round(MS * phase.host_max_s, 3) if phase.queued_known else None,
        "over_5_ms": phase.over_5ms,
        "worst_by_second_ms": [round(MS * worst, 2) for worst in phase.worst_by_second_s],
    }


def _underrun_dict(run: Run, underrun: Underrun) -> dict[str, float]:
    beside = run.host_stalled_s(underrun)
    return {"late_ms": round(MS * underrun.late_s, 3), "host_stalled_ms": round(MS * beside, 3)}


def _in_ms(spread: Spread | None) -> dict[str, object] | None:
    return None if spread is None else spread.scaled(MS).as_dict()


# --- tables ---------------------------------------------------------------------------------------------------------


def show(console: Console, run: Run, idle: Phase) -> None:
    from rich.table import Table

    s = run.summary
    table = Table(title=f"{s.sessions} sessions at once, {s.seconds:.0f} s", title_justify="left")
    table.add_column("")
    for name in (*QUANTILES, "max", "of"):
        table.add_column(name, justify="right")
    for title, spread, digits in _rows(s):
        if spread is not None:
            table.add_row(title, *cells(spread, digits), str(spread.count))
    for title, phase in (("machine: wake-up late, ms", run.stalls), ("  the same before the load", idle)):
        table.add_row(title, *stall_cells(phase))
    console.print(table)
    for line in remarks(run):
        console.print(line)


def _rows(s: Summary) -> Iterator[tuple[str, Spread | None, int]]:
    def ms(spread: Spread | None) -> Spread | None:
        return spread and spread.scaled(MS)

    yield "first audio, ms", ms(s.first_audio), 0
    yield "  of those opened at once", ms(s.first_wave), 0
    yield "audible (Coval), ms", ms(s.audible), 0
    yield "lateness of audio, ms", ms(s.lateness), 0
    yield "real-time factor", s.rtf, 2
    yield "text sent at first audio, %", s.sent_share and s.sent_share.scaled(100.0), 0


def cells(spread: Spread, digits: int) -> list[str]:
    """A tilde marks what the number of values cannot carry."""
    return [f"{'~' if name in spread.thin else ''}{getattr(spread, name):.{digits}f}" for name in (*QUANTILES, "max")]


def stall_cells(phase: Phase) -> list[str]:
    known = [f"{MS * value:.1f}" for value in (phase.p50_s, phase.p99_s, phase.max_s)]
    return [known[0], "", known[1], known[2], str(phase.wakes)]


def remarks(run: Run) -> Iterator[str]:
    s = run.summary
    told = ", ".join(f"{count} {name}" for name, count in s.outcomes.items() if count)
    yield f"sessions: {told or 'none'}; {s.audio_s:.0f} s of audio ({s.audio_s / s.seconds:.1f} a second)"
    if s.codes:
        yield "  " + ", ".join(f"{name}: {count}" for name, count in s.codes.items())
    yield underruns_line(run)
    if s.mute is not None:
        yield f"no audio yet when the time was over: {s.mute.count} sessions, the oldest after {MS * s.mute.max:.0f} ms"
    if s.lost_messages or s.lost_samples_s or s.misplaced:
        yield (
            f"lost: {s.lost_messages} messages, {MS * s.lost_samples_s:.0f} ms of audio; "
            f"messages that overlap an earlier one: {s.misplaced}"
        )
    if s.waits:
        yield f"the model waited for text {s.waits} times"
    used = ", ".join(f"{name} {share:.2f}" for name, share in run.costs.cores.items())
    stolen = run.costs.stolen_cores
    yield f"cores used: {used or 'not known'}" + (f"; taken by the host: {stolen:.2f}" if stolen is not None else "")
    if run.stalls.queued_known:
        host_ms = MS * run.stalls.host_max_s
        yield f"longest stall that no process here caused: {host_ms:.1f} ms; stalls over 5 ms: {run.stalls.over_5ms}"
    if any(spread is not None and spread.thin for spread in (s.first_audio, s.first_wave, s.audible, s.lateness)):
        yield "~ few values: fewer than two lie beyond this percentile"


def soak_lines(soak: Soak, growth: Growth) -> Iterator[str]:
    minutes = soak.player.audio_s / 60
    yield f"{minutes:.1f} minutes of audio in {soak.seconds:.0f} s: {60 * minutes / soak.seconds:.1f} times real time"
    yield (
        f"the worker's memory: {growth.first_bytes / MIB:.1f} MiB at first, after the warm-up between "
        f"{growth.low_bytes / MIB:.1f} and {growth.high_bytes / MIB:.1f} MiB; {growth.grown_bytes / MIB:+.2f} MiB from "
        f"the first quarter to the last, {growth.slope_bytes_a_minute / 1024:+.1f} KiB a minute of audio: "
        f"{'flat' if growth.flat else 'growing'}"
    )
    if soak.player.lost_samples or soak.player.misplaced:
        yield f"lost samples: {soak.player.lost_samples}; overlapping messages: {soak.player.misplaced}"
    if soak.waits:
        yield f"the model waited for text {soak.waits} times"


def underruns_line(run: Run) -> str:
    s = run.summary
    if not s.underruns:
        return f"underruns: none in {s.messages} messages"
    excused = run.excused()
    beside = f"; the host stalled beside {excused} of the {len(s.worst)} worst for as long" if excused else ""
    return (
        f"underruns: {s.underruns} of {s.messages} messages in {s.underrun_sessions} sessions, "
        f"{MS * s.late_samples_s:.0f} ms of audio, worst {MS * s.worst[0].late_s:.0f} ms late{beside}"
    )
