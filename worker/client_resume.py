"""A resumable session whose worker may be gone, as its client sees it: make sure, then have another take it over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from worker.client_events import WorkerGone
from worker.connection import Hook

SURE_AFTER_S = 0.3
"""Of nobody receiving anything. A worker that only lost its connection is back later; the session does not wait."""
ASK_AGAIN_S = 0.1
SILENCE_S = 2.0
"""Without a word, though asked: where nobody closes the connection, there is no 503."""
ANSWER_S = 1.0
"""For an answer to the open: it may have gone to a worker that is cut off."""
GIVE_UP_S = 15.0


class Resumption:
    """Its methods are called with what is heard; it calls ``ping`` (does the worker hear us?), ``reopen`` and, when no
    worker has taken the session for ``GIVE_UP_S``, ``give_up``."""

    def __init__(self, *, ping: Hook, reopen: Hook, give_up: Callable[[WorkerGone], None]) -> None:
        self._ping, self._reopen, self._give_up = ping, reopen, give_up
        self._loop = asyncio.get_running_loop()
        self._unheard_at: float | None = None
        self._asking_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def asking(self) -> bool:
        """An open is on its way."""
        return self._asking_since is not None

    def heard(self) -> None:
        """Anything from the worker."""
        if not self.asking:
            self._unheard_at = None
            self._stop_timer()

    def quiet(self, seconds: float) -> None:
        """Nothing was heard for so long, though something was due."""
        if self.asking or seconds <= 0.0:
            return
        if seconds > SILENCE_S:
            self.ask()
        else:
            self._ping()

    def unheard(self) -> None:
        """A 503: nobody received what was said."""
        if self.asking:
            self.refused()
            return
        now = self._loop.time()
        self._unheard_at = now if self._unheard_at is None else self._unheard_at
        if now - self._unheard_at >= SURE_AFTER_S:
            self.ask()
        else:
            self._later(ASK_AGAIN_S, self._ping)

    def refused(self) -> None:
        """No worker has room now."""
        if self.asking:
            self._later(SURE_AFTER_S, self.ask)

    def ask(self) -> None:
        now = self._loop.time()
        self._asking_since = now if self._asking_since is None else self._asking_since
        if now - self._asking_since > GIVE_UP_S:
            self.close()
            self._give_up(WorkerGone(f"no other took the session over for {GIVE_UP_S:g} s"))
            return
        self._later(ANSWER_S, self.ask)
        self._reopen()

    def done(self) -> None:
        """A worker has the session."""
        self._unheard_at = self._asking_since = None
        self._stop_timer()

    def close(self) -> None:
        self._stop_timer()

    def _later(self, seconds: float, call: Hook) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, call)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
