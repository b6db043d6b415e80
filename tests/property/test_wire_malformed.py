from __future__ import annotations

import contextlib
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract import ModelInfo, SlotOptions
from tests.property.malformed import Malformed, malformed_inputs, malformed_opens
from worker.errors import ERROR_CODES, WireError
from worker.wire.codec import answer_type, decode_event, decode_input, decode_open, encode
from worker.wire.events import Error, Limits
from worker.wire.offer import Offer

MODEL = ModelInfo(
    name="toy",
    digest="00",
    voices=("anna", "ben"),
    languages=("en",),
    sample_rate=24_000,
    frame_samples=1_920,
    defaults=SlotOptions(seed=0, temperature=0.6, top_k=50, temperature_text=0.5, top_k_text=25),
    options=frozenset({"seed", "temperature", "top_k", "padding_bonus", "max_padding"}),
)
OFFER = Offer(MODEL, Limits(text_chars=100_000, buffer_chars=100_000, session_s=3_600.0, idle_s=600.0))


def the_one_error(request: Malformed, error: WireError) -> None:
    """Typed, small, decodable, and without a control character that could forge a log line or a header."""
    assert error.code in ERROR_CODES
    packet = encode(Error.of(error), answer_type(request.headers))
    assert len(packet.payload) < 16 * 1024
    decoded = decode_event(packet.headers, packet.payload)
    assert isinstance(decoded, Error)
    assert decoded.code == error.code
    assert error.message.isprintable()


@settings(max_examples=500, deadline=None)
@given(malformed_opens())
def test_every_malformed_open_is_one_typed_error(request: Malformed) -> None:
    try:
        OFFER.settle(decode_open(request.headers, request.body), seed=1)
    except WireError as error:
        the_one_error(request, error)
    else:
        raise AssertionError("accepted")


@settings(max_examples=500, deadline=None)
@given(malformed_inputs())
def test_every_malformed_input_is_one_typed_error(request: Malformed) -> None:
    try:
        decode_input(request.headers, request.body)
    except WireError as error:
        the_one_error(request, error)
    else:
        raise AssertionError("accepted")


content_types = st.sampled_from(["application/json", "application/msgpack", "text/plain", "x"])
no_headers: dict[str, str] = {}
any_headers = st.just(no_headers) | st.builds(lambda kind: {"Content-Type": kind}, content_types)


@settings(max_examples=500, deadline=None)
@given(any_headers, st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode()))
def test_any_bytes_decode_or_are_a_wire_error(headers: Mapping[str, str], body: bytes) -> None:
    """Whatever else is raised fails the test."""
    for decode in (decode_open, decode_input, decode_event):
        with contextlib.suppress(WireError):
            assert decode(headers, body) is not None
