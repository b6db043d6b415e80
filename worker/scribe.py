"""What is noted of one session for the journal, between its events and the next tick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.contract import SlotFrame
from worker.connection import Hook
from worker.ledger import Ledger
from worker.wire import journal as wire

STEADY_S = 5.0
"""New audio after which it no longer counts that a session was taken over."""


class Scribe(Protocol):
    """Called by the session, each time behind what it tells the engine and its listeners of it.

    Exception: what a listener may rely on (a number of the text, a cancel) is noted before it is said; see ``settle``.
    """

    def order(self, kind: wire.OrderKind, text: str = "") -> None: ...

    def frame(self, frame: SlotFrame, cut: wire.Cut | None) -> None:
        """``cut``: if it begins a word of the text."""
        ...

    def retold(self, cut: wire.Cut) -> None:
        """One that another worker has sent; the ledger has it already."""
        ...

    def answered(self) -> None:
        """A flush."""
        ...

    def restart(self, restart: wire.Restart) -> None:
        """A cancel was taken, and nothing of its generation is sent any more."""
        ...

    def counted(self) -> None:
        """Only numbers have changed."""
        ...

    def settle(self) -> None:
        """All that is noted goes to the server ahead of what is sent next."""
        ...

    def close(self) -> None:
        """The session has ended."""
        ...


class NoScribe:
    """Of a session that is not resumable."""

    def order(self, kind: wire.OrderKind, text: str = "") -> None: ...

    def frame(self, frame: SlotFrame, cut: wire.Cut | None) -> None: ...

    def retold(self, cut: wire.Cut) -> None: ...

    def answered(self) -> None: ...

    def restart(self, restart: wire.Restart) -> None: ...

    def counted(self) -> None: ...

    def settle(self) -> None: ...

    def close(self) -> None: ...


class JournalScribe:
    """Of a resumable one. ``count`` says where the session stands, None while its events are withheld: what nobody was
    sent is not noted as sent."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        epoch: int,
        falls: int,
        fell_at_pts: int,
        place: int,
        reach: int,
        count: Callable[[], wire.Counters | None],
        suspend: Callable[[bool], None],
        touch: Hook,
        settle: Hook,
        closed: Callable[[JournalScribe], None],
    ) -> None:
        """``place``: of the session's last entry in the stream, 0 for none. ``reach``: steps that are kept.
        ``suspend``: withhold the session's events,
        or no longer."""
        self.ledger = ledger
        self.epoch, self.place = epoch, place
        self.falls, self.fell_at_pts = falls, fell_at_pts
        self.suspend = suspend
        self.due = True
        """A checkpoint is wanted."""
        self.changed_since_checkpoint = True
        self.checkpoint_at = 0.0
        self.checkpoint_under_way = False
        self.ended = False
        self._reach = reach
        self._count, self._touch, self._settle, self._closed = count, touch, settle, closed
        self._dirty = False
        self._orders: list[wire.Order] = []
        self._records: list[bytes] = []
        self._cuts: list[wire.Cut] = []
        self._answered = 0
        self._restart: wire.Restart | None = None
        self._origin: tuple[int, int] | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.ledger.opened.tenant, self.ledger.opened.session

    def order(self, kind: wire.OrderKind, text: str = "") -> None:
        self._orders.append((kind, text))
        self.counted()

    def frame(self, frame: SlotFrame, cut: wire.Cut | None) -> None:
        if frame.record:
            self._records.append(frame.record)
            self._cuts += [cut] if cut else []
            self.counted()

    def retold(self, cut: wire.Cut) -> None:
        self.ledger.cuts.append(cut)

    def answered(self) -> None:
        self._answered += 1
        self.counted()

    def restart(self, restart: wire.Restart) -> None:
        counters = self._count()
        self._clear()
        self._restart = restart
        self._origin = None if counters is None else (counters.seq, counters.pts)
        self.counted()

    def counted(self) -> None:
        self._dirty = True
        self._touch()

    def settle(self) -> None:
        if self._dirty:
            self._settle()

    def close(self) -> None:
        self._closed(self)

    def take(self) -> wire.TickPart | None:
        """What is new, and in the ledger from now on; None if there is nothing, or nothing that may be told yet."""
        counters = self._count() if self._dirty else None
        if counters is None:
            return None
        delta = wire.Delta(
            counters, tuple(self._orders), tuple(self._records), self._answered, self._restart, self._origin
        )
        self.ledger.apply(delta)
        self.ledger.cuts += self._cuts
        self.due = self.ledger.forget(self._reach) or self.due
        self._dirty, self.changed_since_checkpoint = False, True
        self._clear()
        return wire.TickPart(*self.key, self.epoch, delta)

    def _clear(self) -> None:
        self._orders, self._records, self._cuts, self._answered = [], [], [], 0
        self._restart = self._origin = None
