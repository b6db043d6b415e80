from __future__ import annotations

import logging

import pytest

from scheduler.clock import FakeClock
from worker.errors import WireError
from worker.limits import MOST_BUCKETS, Bucket, Quota, TenantLimits
from worker.porter import LOG_EVERY_S, Porter
from worker.sections import LimitsSettings, NatsSettings, Settings, TelemetrySettings, WorkerSettings
from worker.settings import SettingsError, load
from worker.telemetry import Telemetry


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(100.0)


def limits(clock: FakeClock, usual: Quota, **overrides: Quota) -> TenantLimits:
    return TenantLimits(usual, overrides, clock.now)


# --- characters ---------------------------------------------------------------------------------------------------


def test_text_is_taken_while_anything_is_left_and_the_debt_is_waited_for(clock: FakeClock) -> None:
    one = limits(clock, Quota(chars_per_s=10, burst_chars=100))
    for chars in (60, 39, 31):  # 1 is left for the last
        assert one.text_wait_ms("acme") is None
        one.take_text("acme", chars)
    assert one.text_wait_ms("acme") == 3_001  # 30 owed, and then something must be there
    clock.advance(3.0)
    assert one.text_wait_ms("acme") == 1
    clock.advance(0.001)
    assert one.text_wait_ms("acme") is None


def test_a_burst_that_is_used_up_exactly_is_used_up(clock: FakeClock) -> None:
    one = limits(clock, Quota(chars_per_s=10, burst_chars=100))
    one.take_text("acme", 100)
    assert one.text_wait_ms("acme") == 1


def test_a_text_longer_than_the_burst_is_taken_too(clock: FakeClock) -> None:
    one = limits(clock, Quota(chars_per_s=10, burst_chars=5))
    assert one.text_wait_ms("acme") is None
    one.take_text("acme", 1_005)
    assert one.text_wait_ms("acme") == 100_001


def test_no_more_than_the_burst_is_saved_up(clock: FakeClock) -> None:
    one = limits(clock, Quota(chars_per_s=10, burst_chars=100))
    one.take_text("acme", 1)
    clock.advance(1e6)
    one.take_text("acme", 110)
    assert one.text_wait_ms("acme") == 1_001


def test_tenants_have_their_own(clock: FakeClock) -> None:
    one = limits(clock, Quota(chars_per_s=10, burst_chars=10), globex=Quota(chars_per_s=1_000, burst_chars=10))
    for tenant in ("acme", "globex", "initech"):
        assert one.text_wait_ms(tenant) is None
        if tenant != "initech":
            one.take_text(tenant, 110)
    assert (one.text_wait_ms("acme"), one.text_wait_ms("globex")) == (10_001, 101)


def test_without_a_rate_nothing_is_counted(clock: FakeClock) -> None:
    one = limits(clock, Quota())
    one.take_text("acme", 10**9)
    assert one.text_wait_ms("acme") is None


def test_a_text_without_characters_costs_nothing(clock: FakeClock) -> None:
    one = limits(clock, Quota(chars_per_s=1, burst_chars=1))
    one.take_text("acme", 0)
    assert one.text_wait_ms("acme") is None


def test_whoever_owes_nothing_is_forgotten_and_no_one_else(clock: FakeClock) -> None:
    one = limits(clock, Quota(chars_per_s=1, burst_chars=10))
    for number in range(MOST_BUCKETS - 1):
        one.take_text(f"t{number}", 10)
    one.take_text("debtor", 1_000)
    clock.advance(10.0)
    one.take_text("next", 1)
    assert len(one._buckets) == 2
    assert one.text_wait_ms("debtor") is not None


def test_a_bucket_is_full_when_it_is_as_good_as_new() -> None:
    bucket = Bucket(10.0, 100.0)
    assert bucket.full(0.0)
    bucket.take(50, 0.0)
    assert not bucket.full(4.9)
    assert bucket.full(5.0)


# --- settings -----------------------------------------------------------------------------------------------------


def test_nothing_is_limited_unless_somebody_says_so() -> None:
    settings = load(env={}).limits
    assert (settings.sessions, settings.chars_per_s, settings.overrides) == (None, None, ())
    assert settings.of("acme").sessions is None


def test_a_tenant_may_have_limits_of_its_own() -> None:
    words = "acme.sessions=64, acme.chars_per_s=off, b-2.burst_chars=7"
    settings = load(["--limits.sessions", "2", "--limits.chars-per-s", "15.5"], {"ANTIPHON_LIMITS__OVERRIDES": words})
    assert settings.limits.tenants == {"acme", "b-2"}
    quotas = [settings.limits.of(tenant) for tenant in ("acme", "b-2", "acm")]
    assert [quota.sessions for quota in quotas] == [64, 2, 2]
    assert [quota.chars_per_s for quota in quotas] == [None, 15.5, 15.5]
    assert [quota.burst_chars for quota in quotas] == [20_000, 7, 20_000]


def test_a_file_may_have_a_table_for_each_tenant(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("limits") / "a.toml"
    file.write_text('[limits]\nsessions = 3\n[limits.overrides.acme]\nsessions = 5\nchars_per_s = "off"\n')
    settings = load((), {}, file).limits
    assert settings.overrides == ("acme.sessions=5", "acme.chars_per_s=off")
    assert settings.of("acme").sessions == 5


@pytest.mark.parametrize(
    "bad",
    ["acme", "acme.x=1", "acme.sessions=0", "acme.chars_per_s=nan", "a.b.sessions=1", "acme.sessions=x", ".sessions=1"],
)
def test_a_bad_override_stops_the_start(bad: str) -> None:
    with pytest.raises(SettingsError, match="ANTIPHON_LIMITS__OVERRIDES"):
        load(["--limits.overrides", bad], {})


# --- the porter ---------------------------------------------------------------------------------------------------


def porter(clock: FakeClock, **sections: object) -> Porter:
    quiet = TelemetrySettings(prometheus=False)
    telemetry = Telemetry(quiet, pool="std", worker="w", version="0")
    return Porter(Settings(telemetry=quiet, **sections), telemetry, clock.now)  # type: ignore[arg-type]


def test_whom_it_serves(clock: FakeClock) -> None:
    porter(clock).check_served("anyone")
    some = porter(clock, worker=WorkerSettings(tenants=("acme",)))
    some.check_served("acme")
    with pytest.raises(WireError, match="forbidden"):
        some.check_served("globex")


def test_a_refusal_says_when_to_come_back_and_whoever_does_is_let_in(clock: FakeClock) -> None:
    take = porter(clock, limits=LimitsSettings(chars_per_s=7.0, burst_chars=3)).inlet("acme")
    for text in ("some words", "and more of them"):
        take(text)
        with pytest.raises(WireError) as caught:
            take("x")
        error = caught.value
        assert (error.code, error.retryable, error.detail["limit"]) == ("over_limit", True, "chars_per_s")
        wait_ms = error.detail["retry_after_ms"]
        assert isinstance(wait_ms, int)
        clock.advance((wait_ms - 1) / 1000)
        with pytest.raises(WireError):
            take("x")
        clock.advance(0.001)


def test_a_flood_of_foreign_replies_is_no_flood_of_log_lines(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    one = porter(clock, nats=NatsSettings())
    with caplog.at_level(logging.WARNING):
        for _ in range(1_000):
            assert not one.may_answer("acme", "_INBOX_globex.x")
        clock.advance(LOG_EVERY_S)
        assert not one.may_answer("acme", "")
        assert one.may_answer("acme", "_INBOX_acme.x")
    assert [record.getMessage().split(" ")[0] for record in caplog.records] == ["1", "1000"]
