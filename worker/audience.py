"""Whether anybody listens to a session, and whether it is held back meanwhile."""

from __future__ import annotations

from collections.abc import Callable

GONE_AFTER_S = 3.0
PROBE_EVERY_S = 1.0


class Audience:
    """Of one session. The server's 503 to a message says that nobody listens: the session is held at once, asked again
    once a second, goes on when a second passes without a 503, and is given up after three."""

    def __init__(self, hold: Callable[[], None], resume: Callable[[], None], probe: Callable[[], None]) -> None:
        """``hold``, ``resume``: of the session's row; ``probe`` sends a ping that shows whether anybody listens."""
        self._hold, self._resume, self._probe = hold, resume, probe
        self._unheard_since: float | None = None
        self._unheard_in_probe = False
        self._probed_at = 0.0
        self.held = False

    @property
    def absent(self) -> bool:
        return self._unheard_since is not None

    def unheard(self, now: float) -> None:
        """A 503 came back."""
        self._unheard_in_probe = True
        if self._unheard_since is None:
            self._unheard_since = self._probed_at = now
            self.hold()

    def is_gone(self, now: float) -> bool:
        """To be asked every second or oftener while ``absent``."""
        if self._unheard_since is None:
            return False
        if now - self._unheard_since >= GONE_AFTER_S:
            return True
        if now - self._probed_at >= PROBE_EVERY_S:
            self._look_again(now)
        return False

    def _look_again(self, now: float) -> None:
        self._probed_at = now
        if self._unheard_in_probe:
            self._unheard_in_probe = False
            self._probe()
        else:
            self._unheard_since = None
            self.resume()

    def hold(self) -> None:
        if not self.held:
            self.held = True
            self._hold()

    def resume(self) -> None:
        """Go on, unless nobody listens."""
        if self.held and self._unheard_since is None:
            self.held = False
            self._resume()
