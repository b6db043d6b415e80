"""Whether a session holds a row of the engine, as far as the event loop knows."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable

from scheduler import messages as sched
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
    has something to say); ``late``: no row came for ``ROW_WITHIN_S``.

    Guarantee: it is ``PARKED`` only while the step loop has no row for it and gives it none. What the session says and
    what the loop tells cross; so whoever leaves the line stands there until the loop has confirmed it.

    Generations are counted as the engine counts them.
    """

    def __init__(self, stage: Stage, *, idle: Hook, late: Hook) -> None:
        self._stage, self._idle, self._late = stage, idle, late
        self._timer: asyncio.TimerHandle | None = None
        self._asked: int | None = None  # the last generation in which there was something to say
        self._rested: int | None = None  # the last that was cancelled
        self._over = False
        self.place = Place.ROW

    @property
    def wanted(self) -> bool:
        """There is something to say in the current generation."""
        return self._asked is not None and (self._rested is None or self._asked > self._rested)

    def want(self, generation: int) -> bool:
        """There is something to say. True: for that the session goes into the line."""
        news, self._asked = not self.wanted, generation
        self._stop_timer(Place.ROW)
        if self.place is Place.ROW or (self.place is Place.LINE and not news):
            return False
        self._queue()
        return True

    def rest(self, ended: int | None = None) -> None:
        """From now on there is nothing to say. ``ended``: the generation that is cancelled by it."""
        self._rested = self._rested if ended is None else ended
        self._stop_timer()
        if self.place is Place.LINE:
            self._stop_waiting()
        elif self.place is Place.ROW and not self._over:
            self._timer = asyncio.get_running_loop().call_later(PARK_AFTER_S, self._ask)

    def leave(self) -> None:
        """The session is over; the engine is told by others."""
        self._over = True
        self._stop_timer()

    def follow(self, event: sched.Event) -> None:
        match event:
            case sched.Started():
                self._take()
            case sched.Parked() if self.place is Place.ROW:
                self._lose(self._asked is not None and self._asked >= event.generation)
            case sched.Ended() if self.place is Place.ROW:  # else nothing was said in that generation
                self._lose(self._asked is not None and self._asked > event.generation)
            case sched.Cancelled() if self.place is Place.LINE and event.generation == self._rested and not self.wanted:
                self.place = Place.PARKED

    def _take(self) -> None:
        """A row, or a row again; the session may have lost interest meanwhile."""
        self._stop_waiting()
        if self.place is not Place.ROW:
            self._stop_timer()
            self.place = Place.ROW
            if not self.wanted:
                self.rest()

    def _lose(self, asked_again: bool) -> None:
        self._stop_timer()
        self.place = Place.LINE if asked_again else Place.PARKED
        if asked_again and self.wanted and not self._over:
            self._queue()

    def _queue(self) -> None:
        self.place = Place.LINE
        self._stage.tally.wait_for_row(self._stage.plumbing.now())
        self._timer = asyncio.get_running_loop().call_later(ROW_WITHIN_S, self._late)

    def _stop_waiting(self) -> None:
        self._stage.tally.stop_waiting(self._stage.plumbing.now())

    def _ask(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PARK_AFTER_S, self._ask)
        self._idle()

    def _stop_timer(self, place: Place | None = None) -> None:
        if self._timer is not None and place in (None, self.place):
            self._timer.cancel()
            self._timer = None
