from __future__ import annotations

from collections.abc import Callable

import pytest

from worker.errors import WireError
from worker.sections import NatsSettings
from worker.wire.subjects import (
    InputAddress,
    PoolAddress,
    input_subject,
    input_wildcard,
    out_subject,
    parse_input_subject,
    parse_pool_subject,
    pool_subject,
    pool_wildcard,
    reply_allowed,
)

SESSION = "Abc-0123_4567890"
BAD_TOKENS = ["", "a.b", "*", ">", "a b", "a\r\nX: y", "a\tb", "a\x00", "a\x0bb", "é", "x" * 65, "a\n"]


def test_subjects_are_built_as_the_contract_says() -> None:
    assert pool_subject("open", "default", "std") == "tts.v1.default.open.std"
    assert pool_subject("info", "t1", "std") == "tts.v1.t1.info.std"
    assert pool_wildcard("open", "std") == "tts.v1.*.open.std"
    assert input_subject("t1", "w7", SESSION) == f"tts.v1.t1.in.w7.{SESSION}"
    assert input_wildcard("w7") == "tts.v1.*.in.w7.*"
    assert out_subject("t1", SESSION) == f"tts.v1.t1.out.{SESSION}"


def test_parsers_undo_builders() -> None:
    assert parse_pool_subject("open", pool_subject("open", "t-1", "std")) == PoolAddress("t-1", "std")
    assert parse_input_subject(input_subject("t_1", "w7", SESSION)) == InputAddress("t_1", "w7", SESSION)


@pytest.mark.parametrize("token", BAD_TOKENS)
def test_no_token_widens_or_splits_a_subject(token: str) -> None:
    builders: list[Callable[[], str]] = [
        lambda: pool_subject("open", token, "std"),
        lambda: pool_subject("open", "default", token),
        lambda: pool_wildcard("info", token),
        lambda: input_subject(token, "w", SESSION),
        lambda: input_subject("default", token, SESSION),
        lambda: input_subject("default", "w", token),
        lambda: input_wildcard(token),
        lambda: out_subject(token, SESSION),
        lambda: out_subject("default", token),
    ]
    for build in builders:
        with pytest.raises(WireError) as error:
            build()
        assert error.value.code == "bad_request"


@pytest.mark.parametrize("session", ["x" * 15, "x" * 65, "a.>" + "x" * 16, SESSION + "\n"])
def test_session_ids_are_bounded(session: str) -> None:
    with pytest.raises(WireError):
        out_subject("default", session)


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "tts.v1.default.open",
        "tts.v1.default.open.std.more",
        "tts.v2.default.open.std",
        "tts.v1.default.info.std",
        "tts.v1..open.std",
        "tts.v1.\ufffd.open.std",
    ],
)
def test_foreign_subjects_are_refused(subject: str) -> None:
    with pytest.raises(WireError):
        parse_pool_subject("open", subject)
    with pytest.raises(WireError):
        parse_input_subject(subject)


SINGLE = NatsSettings()
PER_TENANT = NatsSettings(accounts_per_tenant=True)


@pytest.mark.parametrize(
    ("tenant", "reply", "single", "per_tenant"),
    [
        ("default", "_INBOX.abc.1", True, True),
        ("t1", "_INBOX_t1.abc", True, True),
        ("t1", "_R_.abc.def", False, True),
        ("default", "_R_.abc", False, True),
        ("t1", "_INBOX.abc", False, False),
        ("default", "_INBOX_t1.abc", False, False),
        ("t1", "_INBOX_t10.abc", False, False),
        ("t1", "_INBOX_t1", False, False),
        ("t1", "tts.v1.t2.out.victim", False, False),
        ("t1", "$JS.API.STREAM.DELETE.X", False, False),
        ("default", "", False, False),
        ("default", "_INBOX.", False, False),
        ("default", "_INBOX.>", False, False),
        ("default", "_INBOX.*.x", False, False),
        ("default", "_INBOX..x", False, False),
        ("default", "_INBOX.a b", False, False),
        ("default", "_INBOX.a\x0bb", False, False),
        ("default", "_INBOX.\ufffd", False, False),
        ("default", "_INBOX." + "a" * 600, False, False),
        ("default", "xx_INBOX.a", False, False),
    ],
)
def test_a_reply_stays_inside_the_tenants_own_inbox(tenant: str, reply: str, single: bool, per_tenant: bool) -> None:
    assert reply_allowed(tenant, reply, SINGLE) is single
    assert reply_allowed(tenant, reply, PER_TENANT) is per_tenant
