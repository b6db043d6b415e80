from __future__ import annotations

import pytest

from worker.errors import (
    ERROR_CODES,
    RETRYABLE,
    WireError,
    bad_request,
    clean,
    too_large,
    unknown_fields,
    unsupported_option,
)
from worker.wire.codec import ContentType, encode
from worker.wire.events import Error


def test_the_codes_are_those_of_the_contract() -> None:
    assert ERROR_CODES == (
        "bad_request",
        "unknown_field",
        "too_large",
        "voice_not_found",
        "unsupported_format",
        "unsupported_option",
        "text_gap",
        "no_session",
        "no_capacity",
        "over_limit",
        "model_failure",
        "forbidden",
        "internal",
    )
    assert set(ERROR_CODES) > RETRYABLE


def test_retryable_follows_the_code_unless_said_otherwise() -> None:
    assert WireError("no_capacity", "no free slot").retryable
    assert not WireError("bad_request", "no").retryable
    assert too_large("text", 5, "characters", retryable=True).retryable


def test_clean_shows_printable_ascii_only_and_not_much_of_it() -> None:
    assert clean("a\r\nX: y\x00é") == "a??X: y??"
    assert clean("x" * 100) == "x" * 64 + "..."


def test_errors_name_their_field_and_limit() -> None:
    assert bad_request("no", field="top_k").detail == {"field": "top_k"}
    assert too_large("text", 5, "characters").detail == {"field": "text", "limit": 5}
    assert unsupported_option("speed").detail == {"option": "speed"}
    error = unknown_fields(["b", "a", "b"])
    assert (error.code, error.detail) == ("unknown_field", {"fields": ["a", "b"]})
    assert "a, b" in error.message


@pytest.mark.parametrize("content", [ContentType.MSGPACK, ContentType.JSON])
def test_the_largest_error_is_small(content: ContentType) -> None:
    long = '"' * 100_000
    error = WireError("bad_request", long, detail={f"{n}{long}": [long] * 1000 if n % 2 else long for n in range(1000)})
    assert len(encode(Error.of(error), content).payload) < 16 * 1024
    assert len(encode(Error.of(unknown_fields([long + str(n) for n in range(1000)])), content).payload) < 16 * 1024


def test_an_error_survives_the_wire_as_an_exception() -> None:
    error = WireError("over_limit", "slow down", detail={"retry_after_ms": 250})
    back = Error.of(error).as_exception()
    assert (back.code, back.message, back.retryable, back.detail) == (
        "over_limit",
        "slow down",
        True,
        {"retry_after_ms": 250},
    )
