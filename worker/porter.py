"""Whom this worker serves, whom it answers, and how much each tenant may take."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from worker.errors import Detail, WireError
from worker.limits import Quota, TenantLimits
from worker.sections import LimitsSettings, QuotaSettings, Settings
from worker.telemetry import Telemetry
from worker.wire import subjects

if TYPE_CHECKING:
    from worker.relocation import Arrival
    from worker.session import LiveSession

log = logging.getLogger(__name__)

ASK_AGAIN_MS = 1000
"""When a session of the tenant ends nobody knows; asking once a second is no burden."""
LOG_EVERY_S = 10.0
"""A flood of requests is not to become a flood of log lines."""


class Porter:
    """Guarantee: whatever it refuses has changed nothing, and costs one answer."""

    def __init__(self, settings: Settings, telemetry: Telemetry, clock: Callable[[], float]) -> None:
        """``clock`` counts seconds."""
        self._served = frozenset(settings.worker.tenants)
        self._rules, self._telemetry, self._clock = settings.nats, telemetry, clock
        self._limits = _limits(settings.limits, clock)
        self._logged_at = -math.inf
        self._unlogged = 0

    def check_served(self, tenant: str) -> None:
        """Raises WireError (forbidden)."""
        if self._served and tenant not in self._served:
            raise WireError("forbidden", "this worker does not serve the tenant")

    def may_answer(self, tenant: str, reply: str) -> bool:
        """False: the request is to be dropped unanswered."""
        if reply and subjects.reply_allowed(tenant, reply, self._rules):
            return True
        self._telemetry.reply_dropped()
        self._unlogged += 1
        if self._clock() - self._logged_at >= LOG_EVERY_S:
            log.warning(
                "%d requests name no reply subject of their tenant's, the last of tenant %s; dropped unanswered",
                self._unlogged,
                tenant,
            )
            self._logged_at, self._unlogged = self._clock(), 0
        return False

    def check_sessions(self, arrival: Arrival, tenants: Mapping[str, str], sessions: Mapping[str, LiveSession]) -> None:
        """``tenants``, ``sessions``: of this worker, by session. A session that has ended, and whose row is on its way
        back, counts no more, unless they are as many as the tenant may have sessions.

        Raises WireError (over_limit).
        """
        most = self._limits.sessions(arrival.tenant)
        if most is None:
            return
        own = arrival.settled.session  # it may be here already, and be taken over by its own worker
        over = [sessions[key].over for key, tenant in tenants.items() if tenant == arrival.tenant and key != own]
        if over.count(False) >= most or len(over) >= 2 * most:
            detail: Detail = {"limit": "sessions", "most": most, "retry_after_ms": ASK_AGAIN_MS}
            raise WireError("over_limit", f"at most {most} sessions of a tenant at this worker", detail=detail)

    def check_text(self, tenant: str, text: str) -> None:
        """Raises WireError (over_limit)."""
        wait_ms = self._limits.text_wait_ms(tenant) if text else None
        if wait_ms is not None:
            self._telemetry.text_refused()
            detail: Detail = {"limit": "chars_per_s", "retry_after_ms": wait_ms}
            raise WireError("over_limit", "more text a second than the tenant may send", detail=detail)

    def count_text(self, tenant: str, text: str) -> None:
        """It was taken."""
        self._limits.take_text(tenant, len(text))

    def inlet(self, tenant: str) -> Callable[[str], None]:
        """Both at once, for the texts of one session."""

        def take(text: str) -> None:
            self.check_text(tenant, text)
            self.count_text(tenant, text)

        return take


def _limits(settings: LimitsSettings, clock: Callable[[], float]) -> TenantLimits:
    overrides = {tenant: _quota(settings.of(tenant)) for tenant in settings.tenants}
    return TenantLimits(_quota(settings), overrides, clock)


def _quota(settings: QuotaSettings) -> Quota:
    return Quota(settings.sessions, settings.chars_per_s, settings.burst_chars)
