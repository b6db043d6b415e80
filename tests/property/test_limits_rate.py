"""Whatever a tenant sends and when: never more than its burst, its rate and one text; never less than it may."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.clock import FakeClock
from worker.limits import Quota, TenantLimits

RATES = st.floats(0.1, 1e6)
BURSTS = st.integers(1, 10**6)
CHARS = st.integers(1, 10**5)
PAUSES = st.floats(0.0, 100.0)
STARTS = st.floats(0.0, 1e7)


@given(RATES, BURSTS, STARTS, st.lists(st.tuples(PAUSES, CHARS), max_size=40))
def test_the_rate_is_kept_and_waiting_always_helps(
    rate: float, burst: int, start: float, texts: list[tuple[float, int]]
) -> None:
    clock = FakeClock(start)
    limits = TenantLimits(Quota(chars_per_s=rate, burst_chars=burst), {}, clock.now)
    taken = longest = 0
    for pause, chars in texts:
        clock.advance(pause)
        wait_ms = limits.text_wait_ms("acme")
        if wait_ms is not None:
            assert wait_ms >= 1
            clock.advance(wait_ms / 1000)
            assert limits.text_wait_ms("acme") is None
        limits.take_text("acme", chars)
        taken, longest = taken + chars, max(longest, chars)
        allowed = burst + rate * (clock.now() - start) + longest
        assert taken <= allowed * (1 + 1e-6) + 1e-6


@given(RATES, BURSTS, st.lists(CHARS, min_size=1, max_size=40))
def test_nobody_waits_who_stays_below_the_rate(rate: float, burst: int, texts: list[int]) -> None:
    clock = FakeClock(1000.0)
    limits = TenantLimits(Quota(chars_per_s=rate, burst_chars=burst), {}, clock.now)
    for chars in texts:
        assert limits.text_wait_ms("acme") is None
        limits.take_text("acme", chars)
        clock.advance(chars / rate * 1.000001 + 1e-6)
