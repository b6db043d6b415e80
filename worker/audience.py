"""Whether anybody hears a session, and what follows from it."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable

from worker.connection import Hook
from worker.route import Route

GONE_AFTER_S = 3.0
OFFLINE_FOR_S = 30.0
ASK_EVERY_S = 0.25


class Presence(enum.Enum):
    HEARD = enum.auto()
    """As far as is known; the next 503 will tell."""
    ASKING = enum.auto()
    """Nobody listens, or nobody knows, for we were offline."""
    OFFLINE = enum.auto()
    """We have no server."""
    GONE = enum.auto()


class Audience:
    """Of one session. It holds the session's row back and withholds its events while nobody can hear them:

    | what happens             | then                                                                                |
    |--------------------------|-------------------------------------------------------------------------------------|
    | fan-out begins           | held, and asked at once                                                             |
    | a 503 to a probe         | held; asked again every 0.25 s; given up (``gone``) after 3 s without an answer     |
    | the server is lost       | held; given up after 30 s                                                           |
    | the server is back       | asked at once, and then as after a 503: listeners may take longer to come back      |
    | an answer without a 503  | what was withheld goes out, the row goes on                                         |

    ``leave`` ends it with its session: at once, or when the last events are heard or nobody is left to hear them.
    """

    def __init__(self, route: Route, *, hold: Hook, resume: Hook, probe: Callable[[Hook], None], gone: Hook) -> None:
        """``hold``, ``resume``: of the session's row. ``probe`` sends something that shows whether anybody listens, and
        has its argument called when that is known. ``gone``: nobody will come; not after ``leave``."""
        self._route, self._hold, self._resume, self._probe, self._gone = route, hold, resume, probe, gone
        self._loop = asyncio.get_running_loop()
        self._presence = Presence.HEARD
        self._deaf = False  # a 503 has come since the last question
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._left = False
        self.held = False

    def attend(self) -> None:
        """The session has begun."""
        self._route.watch(self.unheard, self.went, self.came)
        if not self._route.connected:
            self.went()

    def doubt(self) -> Hook:
        """Nothing is known of listeners yet: the session is held until the result is called, after a 503 if there was
        one. That takes a round trip, which is also what it costs."""
        if self._presence is Presence.HEARD:
            self._withdraw(Presence.ASKING)
        return self._answered

    @property
    def absent(self) -> bool:
        return self._presence is not Presence.HEARD

    @property
    def offline(self) -> bool:
        return self._presence is Presence.OFFLINE

    def hold(self) -> None:
        if not self.held:
            self.held = True
            self._hold()

    def resume(self) -> None:
        """Go on, unless nobody listens."""
        if self.held and not self.absent:
            self.held = False
            self._resume()

    def leave(self) -> None:
        """The session is over."""
        self._left = True
        if self._presence in (Presence.HEARD, Presence.GONE):
            self._close()

    # --- signs ----------------------------------------------------------------------------------------------------

    def unheard(self) -> None:
        """A 503 came back."""
        self._deaf = True
        if self._presence is Presence.HEARD:
            self._withdraw(Presence.ASKING)
            self._later(ASK_EVERY_S, self._ask)

    def went(self) -> None:
        """The server is lost."""
        if self._presence is not Presence.GONE:
            self._withdraw(Presence.OFFLINE)
            self._later(OFFLINE_FOR_S, self._give_up)

    def came(self) -> None:
        """It is back."""
        if self._presence is Presence.OFFLINE:
            self._withdraw(Presence.ASKING)
            self._ask()

    def _ask(self) -> None:
        self._deaf = False
        self._probe(self._answered)

    def _answered(self) -> None:
        if self._presence is not Presence.ASKING:
            return
        if not self._deaf:
            self._welcome()
        elif self._loop.time() - self._since >= GONE_AFTER_S:
            self._give_up()
        else:
            self._later(ASK_EVERY_S, self._ask)

    # --- what follows ---------------------------------------------------------------------------------------------

    def _withdraw(self, presence: Presence) -> None:
        self._presence = presence
        self._since = self._loop.time()
        self._stop_timer()
        self._route.withheld = True
        self.hold()

    def _welcome(self) -> None:
        self._presence = Presence.HEARD
        self._route.release()
        if self._left:
            self._close()
        else:
            self.resume()

    def _give_up(self) -> None:
        self._presence = Presence.GONE
        if self._left:
            self._close()
        else:
            self._gone()

    def _close(self) -> None:
        self._stop_timer()
        self._route.release()
        self._route.close()

    def _later(self, seconds: float, call: Hook) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, call)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
