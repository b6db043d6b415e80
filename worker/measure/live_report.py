"""A live measurement as JSON and as a table. Times are milliseconds in both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from worker.measure.live import LiveRun
from worker.measure.live_record import LiveSummary
from worker.measure.machine import Machine
from worker.measure.report import MS, cells, machine_dict, stall_cells, stalls_dict
from worker.measure.spread import QUANTILES, Spread
from worker.measure.stalls import Phase

if TYPE_CHECKING:
    from rich.console import Console

DEFINITIONS = {
    "all": "client's clock; arrivals are seen by a subscription on a connection of its own, which hides nothing",
    "first_audio_ms": "from just before open is published (the first word follows its answer) to the first audio",
    "joined_first_audio_ms": "the same of sessions that all open in the same instant, with their text",
    "cancel_to_last_frame_ms": "from just before cancel is published to the last audio of its generation; 0: none came",
    "cancel_to_cancelled_ms": "from the same to the event cancelled",
    "cancel_to_next_audio_ms": "from the same to the first audio of the utterance that is given at once, word by word",
    "stall_text_to_audio_ms": "from the text that ends a stall to audio",
    "hang_up_to_freed_ms": "from closing the caller's connection until the worker has ended the session, to 50 ms",
    "lateness_ms": "arrival of an audio message against its utterance's first arrival + 60 ms + pts / rate",
    "lost_sessions": "opened, and ended otherwise than their caller asked for",
    "thin": "percentiles with fewer than two values beyond them",
}


def live_document(plan: Mapping[str, object], machine: Machine, idle: Phase, run: LiveRun) -> dict[str, object]:
    return {
        "plan": dict(plan),
        "machine": machine_dict(machine),
        "definitions": DEFINITIONS,
        "before_the_load": stalls_dict(idle),
        "live": live_dict(run),
    }


def live_dict(run: LiveRun) -> dict[str, object]:
    s = run.summary
    return {
        "sessions": s.sessions,
        "seconds": round(s.seconds, 3),
        "calls": s.calls,
        "refused": s.refused,
        "lost_sessions": s.lost_sessions,
        "codes": s.codes,
        **{name: spread and spread.scaled(MS).as_dict() for name, (_, spread) in _spreads(s).items()},
        "audio_s": round(s.audio_s, 3),
        "messages": s.messages,
        "underruns": s.underruns,
        "lost_frames": s.lost_frames,
        "doubled_frames": s.doubled_frames,
        "stale_frames": s.stale_frames,
        "lost_samples": s.lost_samples,
        "machine_stalls": stalls_dict(run.stalls),
    }


def show_live(console: Console, run: LiveRun, idle: Phase) -> None:
    from rich.table import Table

    s = run.summary
    table = Table(title=f"{s.sessions} callers at once, {s.seconds:.0f} s", title_justify="left")
    table.add_column("")
    for name in (*QUANTILES, "max", "of"):
        table.add_column(name, justify="right")
    for title, spread in _spreads(s).values():
        if spread is None:
            table.add_row(title, *[""] * (len(QUANTILES) + 1), "0")
        else:
            table.add_row(title, *cells(spread.scaled(MS), 0), str(spread.count))
    for title, phase in (("machine: wake-up late, ms", run.stalls), ("  the same before the load", idle)):
        table.add_row(title, *stall_cells(phase))
    console.print(table)
    for line in live_remarks(run):
        console.print(line)


def live_remarks(run: LiveRun) -> Iterator[str]:
    s = run.summary
    yield "calls: " + ", ".join(f"{count} {name}" for name, count in s.calls.items())
    yield f"sessions lost: {s.lost_sessions}; refused: {s.refused}"
    if s.codes:
        yield "  " + ", ".join(f"{name}: {count}" for name, count in s.codes.items())
    yield (
        f"frames lost: {s.lost_frames}, doubled: {s.doubled_frames}, after their cancelled: {s.stale_frames}; "
        f"samples lost: {s.lost_samples}; of {s.messages} messages, {s.audio_s:.0f} s of audio"
    )
    yield f"underruns: {s.underruns} of {s.messages} messages"
    if any(spread is not None and spread.thin for _, spread in _spreads(s).values()):
        yield "~ few values: fewer than two lie beyond this percentile"


def _spreads(s: LiveSummary) -> dict[str, tuple[str, Spread | None]]:
    """In seconds, by the name of their milliseconds in JSON, with their title in the table."""
    return {
        "first_audio_ms": ("first audio, ms", s.first_audio),
        "joined_first_audio_ms": ("  of those opened at once", s.joined),
        "cancel_to_last_frame_ms": ("cancel to last frame, ms", s.last_frame),
        "cancel_to_cancelled_ms": ("cancel to cancelled, ms", s.cancelled),
        "cancel_to_next_audio_ms": ("cancel to next utterance, ms", s.next_audio),
        "stall_text_to_audio_ms": ("text after a stall to audio, ms", s.resumed),
        "hang_up_to_freed_ms": ("hang-up to freed, ms", s.freed),
        "lateness_ms": ("lateness of audio, ms", s.lateness),
        "lateness_beside_a_slow_listener_ms": ("  beside a slow listener", s.lateness_beside_slow),
    }
