"""All that a resumable session is, so far, as plain values: kept by its worker, and put together again by the next."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from worker.errors import JournalDamaged
from worker.wire import journal as wire
from worker.wire.requests import join_surrogates


@dataclass(slots=True)
class Ledger:
    """Of the current generation; older ones are done with."""

    opened: wire.Opened
    counters: wire.Counters
    number: int = 0
    """Of the generation, as its listeners know it: a take-over raises it."""
    since: int = 0
    """Numbers from here to ``number`` all mean this generation."""
    noise: int = 0
    """What its noise is keyed by, whoever speaks it."""
    origin_seq: int = 0
    origin_pts: int = 0
    """Where the first record begins."""
    first: int = 0
    """Steps of the generation before the first record; above 0 what is rebuilt from it is not exact."""
    before: str = ""
    """Text of the generation before that of ``orders``."""
    orders: list[wire.Order] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    answered: int = 0
    """Flushes among the orders."""
    speaker: int = 0
    """Whose the last of that text was."""
    texts_before: int = 0
    """Numbered texts that are in ``before`` as a whole."""
    cuts: list[wire.Cut] = field(default_factory=list)
    """Known where the frames are, not in the stream."""
    cancelled: tuple[str, str] | None = None
    """What was spoken of the generation before, and what was not."""

    def apply(self, delta: wire.Delta) -> None:
        if delta.restart is not None:
            self._restart(delta.restart, delta.origin or (delta.counters.seq, delta.counters.pts))
        self.counters = delta.counters
        self.orders += delta.orders
        self.records += delta.records
        self.answered += delta.answered

    def _restart(self, restart: wire.Restart, origin: tuple[int, int]) -> None:
        self.number = self.noise = restart.number
        self.since = restart.since
        self.cancelled = (restart.spoken, restart.unspoken)
        self.origin_seq, self.origin_pts = origin
        self.first = self.answered = self.texts_before = self.speaker = 0
        self.before = ""
        self.orders, self.records, self.cuts = [], [], []

    def forget(self, reach: int) -> bool:
        """Keep to ``reach`` steps, by leaving out the older half, up to a word. What is built from the rest is not
        exact any more. Returns whether there was something to leave out."""
        if len(self.records) <= reach:
            return False
        latest = self.first + len(self.records) - reach // 2
        cut = next((cut for cut in reversed(self.cuts) if cut.step <= latest), None)
        if cut is None or cut.step == self.first:
            return False
        self._leave_out(cut.offset - len(self.before))
        self.records = self.records[cut.step - self.first :]
        self.first, self.origin_seq, self.origin_pts = cut.step, cut.seq, cut.pts
        self.cuts = [each for each in self.cuts if each.step >= cut.step]
        return True

    def _leave_out(self, characters: int) -> None:
        """So many of the text in the orders."""
        while characters > 0 or (self.orders and self.orders[0][0] == "flush"):
            kind, text = self.orders.pop(0)
            if kind == "flush":
                self.answered -= 1
                continue
            if kind == "speaker":
                self.speaker = int(text)
                continue
            joined = join_surrogates(self.before + text)
            taken = len(joined) - len(self.before)
            if taken > characters:
                self.before = joined[: len(self.before) + characters]
                self.orders.insert(0, (kind, joined[len(self.before) :]))
                return
            self.before = joined
            self.texts_before += kind == "text"
            characters -= taken

    def take_over(self) -> None:
        self.number += 1

    # --- plain values ---------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {
            **plain,
            "opened": dataclasses.asdict(self.opened),
            "counters": dataclasses.asdict(self.counters),
            "orders": [list(order) for order in self.orders],
            "records": list(wire.pack_records(self.records)),
            "cancelled": None if self.cancelled is None else list(self.cancelled),
        }

    @classmethod
    def load(cls, state: dict[str, Any]) -> Ledger:
        """Raises JournalDamaged."""
        try:
            counters = {**state["counters"], "usage": tuple(state["counters"]["usage"])}
            cancelled = state["cancelled"]
            return cls(
                opened=wire.Opened(**state["opened"]),
                counters=wire.Counters(**counters),
                orders=[(kind, text) for kind, text in state["orders"]],
                records=list(wire.unpack_records(*state["records"])),
                cancelled=None if cancelled is None else (cancelled[0], cancelled[1]),
                **{name: state[name] for name in _PLAIN},
            )
        except (KeyError, TypeError, ValueError):
            raise JournalDamaged("a checkpoint of another form") from None


_PLAIN = (
    *("number", "since", "noise", "origin_seq", "origin_pts", "first"),
    *("before", "speaker", "texts_before", "answered"),
)
