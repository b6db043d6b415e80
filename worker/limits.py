"""What one tenant may take of this worker: sessions at once, and characters of text a second."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

MOST_BUCKETS = 1024
"""Above this those that are full, and so as good as new, are forgotten."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Of one tenant at one worker; None: no limit."""

    sessions: int | None = None
    chars_per_s: float | None = None
    burst_chars: int = 1


class Bucket:
    """Characters that may still be taken: ``rate`` a second flow in, up to ``burst``.

    A text is taken while anything is left, and may leave a debt that the next ones wait for, as in Guava's RateLimiter.
    So what was taken never exceeds ``burst + rate * time`` by more than one text; a text longer than ``burst`` is not
    refused for ever, and a long one does not starve beside a trickle of short ones.
    """

    __slots__ = ("_burst_s", "_empty_at", "_rate")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst_s = burst / rate
        self._empty_at = -math.inf
        """When it held nothing: what flowed in since then is what is left."""

    def wait_s(self, now: float) -> float:
        """0: something may be taken now; else it may be as soon as more than that has passed."""
        return max(0.0, self._empty_at - now)

    def open(self, now: float) -> bool:
        return now > self._empty_at

    def full(self, now: float) -> bool:
        return now >= self._empty_at + self._burst_s

    def take(self, chars: int, now: float) -> None:
        self._empty_at = max(self._empty_at, now - self._burst_s) + chars / self._rate


class TenantLimits:
    """Of all tenants; one that has taken nothing yet has its whole burst."""

    def __init__(self, usual: Quota, overrides: Mapping[str, Quota], clock: Callable[[], float]) -> None:
        """``overrides``: quotas of single tenants; ``clock`` counts seconds."""
        self._usual, self._overrides, self._clock = usual, overrides, clock
        self._buckets: dict[str, Bucket] = {}

    def sessions(self, tenant: str) -> int | None:
        """Most at once."""
        return self._quota(tenant).sessions

    def text_wait_ms(self, tenant: str) -> int | None:
        """None: text may be taken now; else when it may be, if no more is taken meanwhile."""
        bucket, now = self._buckets.get(tenant), self._clock()
        if bucket is None or bucket.open(now):
            return None
        # A microsecond more, so that whoever waits as long finds it open, whatever the clock's rounding.
        return math.ceil(1000.0 * bucket.wait_s(now) + 0.001)

    def take_text(self, tenant: str, chars: int) -> None:
        quota = self._quota(tenant)
        if quota.chars_per_s is None or chars == 0:
            return
        bucket = self._buckets.get(tenant)
        if bucket is None:
            self._tidy()
            bucket = self._buckets[tenant] = Bucket(quota.chars_per_s, quota.burst_chars)
        bucket.take(chars, self._clock())

    def _quota(self, tenant: str) -> Quota:
        return self._overrides.get(tenant, self._usual)

    def _tidy(self) -> None:
        if len(self._buckets) >= MOST_BUCKETS:
            now = self._clock()
            self._buckets = {tenant: bucket for tenant, bucket in self._buckets.items() if not bucket.full(now)}
