"""Whether a session holds a row of the engine, as far as the event loop knows."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable

from scheduler import messages as sched
from worker.generation import Generation
from worker.plumbing import Stage

PARK_AFTER_S = 2.0
"""Silence between two generations after which a session gives its row up."""
ROW_WITHIN_S = 5.0
"""How long one that has come back waits for a row."""

Hook = Callable[[], None]


class Place(enum.Enum):
    ROW = "held"
    PARKED = "parked"
    LINE = "line"


class Seat:
    """Of one session. ``idle``: it has been silent for ``PARK_AFTER_S`` (asked again and again until it is parked or
    has something to say); ``late``: no row came for ``ROW_WITHIN_S``."""

    def __init__(self, stage: Stage, *, idle: Hook, late: Hook) -> None:
        self._stage, self._idle, self._late = stage, idle, late
        self._timer: asyncio.TimerHandle | None = None
        self._over = False
        self.place = Place.ROW

    def follow(self, event: sched.Event, generation: Generation | None) -> None:
        """``generation``: the current one; None when the session is over. What the engine was told in it meanwhile has
        brought a session that loses its row into the line."""
        wanted = generation is not None and generation.begun
        match event:
            case sched.Started():
                self._take()
            case sched.Parked():
                self._leave(wanted=wanted)
            case sched.Ended():
                self._leave(wanted=wanted and generation is not None and generation.noise != event.generation)

    def rest(self) -> None:
        """From now on there is nothing to say."""
        if self.place is Place.LINE:
            self.place = Place.PARKED
            self._stop_waiting()
        self._stop_timer()
        if self.place is Place.ROW and not self._over:
            self._timer = asyncio.get_running_loop().call_later(PARK_AFTER_S, self._ask)

    def want(self) -> bool:
        """There is something to say. True: for that the session goes into the line."""
        if self.place is Place.ROW:
            self._stop_timer()
        if self.place is not Place.PARKED:
            return False
        self._queue()
        return True

    def leave(self) -> None:
        """The session is over; the engine is told by others."""
        self._over = True
        self._stop_timer()

    def _leave(self, *, wanted: bool) -> None:
        if wanted and self.place is Place.LINE:
            return
        self._stop_timer()
        self.place = Place.PARKED
        if wanted:
            self._queue()

    def _take(self) -> None:
        """A row, or a row again; the session may have lost interest meanwhile."""
        self._stop_waiting()
        if self.place is Place.LINE:
            self._stop_timer()
            self.place = Place.ROW
        elif self.place is Place.PARKED:
            self.place = Place.ROW
            self.rest()

    def _stop_waiting(self) -> None:
        self._stage.tally.stop_waiting(self._stage.plumbing.now())

    def _queue(self) -> None:
        self.place = Place.LINE
        self._stage.tally.wait_for_row(self._stage.plumbing.now())
        self._timer = asyncio.get_running_loop().call_later(ROW_WITHIN_S, self._late)

    def _ask(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PARK_AFTER_S, self._ask)
        self._idle()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
