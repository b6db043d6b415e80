from __future__ import annotations

import json
import tracemalloc
from typing import Any

import msgpack
import pytest

from worker.errors import WireError
from worker.wire.codec import (
    ContentType,
    answer_type,
    decode_event,
    decode_info_request,
    decode_input,
    decode_open,
    encode,
    encode_audio,
)
from worker.wire.events import Audio, End, Mark, Usage
from worker.wire.requests import AudioFormat, Cancel, Credit, Finish, Flush, Open, Ping, Text

JSON = {"Content-Type": "application/json"}
MSGPACK = {"Content-Type": "application/msgpack"}


def opened(**fields: Any) -> Open:
    return decode_open({}, json.dumps(fields).encode())


def refused(headers: dict[str, str], body: bytes) -> WireError:
    with pytest.raises(WireError) as error:
        decode_open(headers, body)
    return error.value


def test_plain_text_opens_a_finished_session_with_defaults() -> None:
    assert decode_open({}, b"Hello there") == Open(text="Hello there", final=True)
    assert decode_open({"Content-Type": "text/plain; charset=utf-8"}, b'{"text": "x"}').text == '{"text": "x"}'


def test_plain_text_on_input_is_the_next_delta() -> None:
    assert decode_input({}, b"lo the") == Text(seq=None, text="lo the")


def test_a_brace_means_json_and_a_header_means_what_it_says() -> None:
    assert decode_open({}, b'{"text": "Hi"}').text == "Hi"
    assert decode_open(JSON, b' {"text": "Hi", "type": "open"}').text == "Hi"
    assert decode_open({"content-type": "Application/MsgPack"}, msgpack.packb({"text": "Hi"})).text == "Hi"


@pytest.mark.parametrize(
    ("headers", "answer"),
    [
        ({}, ContentType.JSON),
        (JSON, ContentType.JSON),
        (MSGPACK, ContentType.MSGPACK),
        ({"Content-Type": "x/y"}, ContentType.JSON),
    ],
)
def test_answers_come_in_the_encoding_of_the_open(headers: dict[str, str], answer: ContentType) -> None:
    assert answer_type(headers) is answer


def test_open_has_the_defaults_of_the_contract() -> None:
    request = opened()
    assert request.format == AudioFormat(encoding="pcm_s16le", sample_rate=24_000)
    assert (request.pace, request.lead_ms, request.credit_ms) == ("live", 480.0, None)
    assert (request.idle_timeout_s, request.max_session_s) == (30.0, 3600.0)
    assert (request.text, request.final, request.session, request.voice) == (None, False, None, None)
    assert (request.marks, request.fanout, request.resume, request.trim_silence) == (False, False, False, False)
    assert opened(format={"sample_rate": 8000}).format.sample_rate == 8000


def test_every_input_message_is_known_by_its_type() -> None:
    bodies: dict[str, Any] = {
        '{"type": "text", "seq": 0, "text": "Hel"}': Text(seq=0, text="Hel"),
        '{"type": "text", "seq": 0, "text": "a", "gen": 1}': Text(seq=0, text="a", gen=1),
        '{"type": "flush"}': Flush(),
        '{"type": "finish", "seq": 3}': Finish(seq=3),
        '{"type": "cancel", "gen": 0, "played_ms": 1250, "keep": true}': Cancel(gen=0, played_ms=1250.0, keep=True),
        '{"type": "credit", "ms": 400}': Credit(ms=400.0),
        '{"type": "ping"}': Ping(),
    }
    for body, message in bodies.items():
        assert decode_input({}, body.encode()) == message
        assert decode_input(MSGPACK, msgpack.packb(json.loads(body))) == message


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"seq": 0, "text": "a"}', "type"),
        (b'{"type": "open"}', "type"),
        (b'{"type": ["text"]}', "type"),
        (b'{"type": "text", "text": "a"}', "seq"),
        (b'{"type": "text", "seq": true, "text": "a"}', "seq"),
        (b'{"type": "text", "seq": -1, "text": "a"}', "seq"),
        (b'{"type": "text", "seq": 1.0, "text": "a"}', "seq"),
        (b'{"type": "text", "seq": 0}', "text"),
        (b'{"type": "credit", "ms": 0}', "ms"),
        (b'{"type": "cancel", "keep": 1}', "keep"),
    ],
)
def test_bad_input_messages_name_the_field(body: bytes, field: str) -> None:
    with pytest.raises(WireError) as error:
        decode_input({}, body)
    assert (error.value.code, error.value.detail["field"]) == ("bad_request", field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("top_k", True),
        ("top_k", 1.0),
        ("top_k", 10**25),
        ("temperature", "1"),
        ("temperature", -0.1),
        ("temperature", False),
        ("seed", -1),
        ("seed", 2**64),
        ("final", 1),
        ("pace", "slow"),
        ("voice", 3),
        ("voice", "v" * 300),
        ("session", "short"),
        ("session", "x" * 16 + "\n"),
        ("session", "a.>aaaaaaaaaaaaaaaaaaaa"),
        ("idle_timeout_s", 0),
        ("lead_ms", 1e300),
        ("format", "wav"),
        ("pronunciations", {"two words": "x"}),
        ("pronunciations", {"word": ""}),
        ("pronunciations", {f"w{n}": "x" for n in range(600)}),
        ("text", 5),
        ("text", "a\x00b"),
    ],
)
def test_bad_options_are_one_bad_request(field: str, value: object) -> None:
    error = refused({}, json.dumps({field: value}).encode())
    assert error.code == "bad_request"
    if isinstance(value, int) and value == 10**25:
        return  # refused before it is known which field it belongs to
    assert error.detail == {"field": field}


def test_a_field_of_the_format_is_named_in_full() -> None:
    assert refused({}, b'{"format": {"sample_rate": "a"}}').detail == {"field": "format.sample_rate"}


def test_unknown_fields_are_named() -> None:
    error = refused({}, b'{"txt": "a secret", "b\\r\\nX": 1, "top_k": "x"}')
    assert (error.code, error.detail) == ("unknown_field", {"fields": ["b??X", "txt"]})
    assert "txt" in error.message
    assert "secret" not in str(error)
    assert refused({}, b'{"format": {"bits": 16}}').detail == {"fields": ["bits"]}


@pytest.mark.parametrize("value", ["0", "-1", "1e-6", "1.0"])
def test_speed_is_an_option_that_no_worker_has(value: str) -> None:
    error = refused({}, b'{"text": "a", "speed": %s}' % value.encode())
    assert (error.code, error.detail) == ("unsupported_option", {"option": "speed"})


def test_no_error_quotes_the_text() -> None:
    secret = "my card is 4111"
    bodies: list[dict[str, Any]] = [
        {"text": [secret]},
        {"text": {secret: secret}},
        {"text": secret + "\x00"},
        {"pronunciations": {secret: "x"}},
        {"pronunciations": {"word": [secret]}},
        {"pronunciations": secret},
        {"type": secret},
        {"format": secret},
    ]
    for body in bodies:
        error = refused({}, json.dumps(body).encode())
        assert secret not in f"{error} {error.detail}", body
    with pytest.raises(WireError) as info:
        decode_input({}, json.dumps({"type": secret, "text": secret}).encode())
    assert secret not in f"{info.value} {info.value.detail}"


DEEP_JSON = b'{"a":' * 100_000
BOMB = bytes([0x81, 0xA1, 0x61])  # {"a": ...


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, b""),
        (JSON, b""),
        ({}, b"\xff\xfe"),
        ({}, b"a\x00b"),
        ({}, b"\x1b[31m"),
        ({}, msgpack.packb({"text": "undeclared"})),
        ({"Content-Type": "image/png"}, b"{}"),
        (JSON, b"[]"),
        (JSON, b'"text"'),
        (JSON, b"{"),
        (JSON, b"{}{}"),
        (JSON, b'\xef\xbb\xbf{"text": "a"}'),
        (JSON, '{"text": "a"}'.encode("utf-16")),
        (JSON, b'{"text": "\xed\xa0\xbd"}'),
        (JSON, b'{"text": "a", "text": "b"}'),
        (JSON, b'{"temperature": NaN}'),
        (JSON, b'{"temperature": -Infinity}'),
        (JSON, b'{"temperature": 1e999}'),
        (JSON, b'{"seed": ' + b"9" * 5000 + b"}"),
        (JSON, b'{"voice": "\\ud83d"}'),
        (JSON, b'{"\\ud83d": 1}'),
        (JSON, b'{"voice": "a\\u0000"}'),
        (JSON, DEEP_JSON),
        (JSON, b"[" * 500_000),
        (JSON, b'{"format": ' * 20 + b"1" + b"}" * 20),
        (MSGPACK, b"\xc1"),
        (MSGPACK, b"\x01"),
        (MSGPACK, b"\x80\x80"),
        (MSGPACK, b"\x81\xa1a"),
        (MSGPACK, b"\x82\xa4text\xa1a\xa4text\xa1b"),
        (MSGPACK, b"\x81\x01\xa1a"),
        (MSGPACK, b"\x81\xa4text\xa1\xff"),
        (MSGPACK, b"\x81\xc4\x04text\xa1a"),
        (MSGPACK, BOMB + b"\x91" * 100_000),
        (MSGPACK, BOMB + b"\xdd\x7f\xff\xff\xff" * 500),
        (MSGPACK, b"\xdf\xff\xff\xff\xff"),
        (MSGPACK, BOMB + b"\xdb\xff\xff\xff\xff"),
        (MSGPACK, BOMB + b"\xc7\x00\x05"),
        (MSGPACK, BOMB + b"\xd6\xff\x00\x00\x00\x00"),
        (MSGPACK, b"\x81\xabtemperature\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"),
        (MSGPACK, b"\x81\xabtemperature\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00"),
    ],
)
def test_hostile_bodies_are_bad_requests(headers: dict[str, str], body: bytes) -> None:
    assert refused(headers, body).code == "bad_request"


def test_a_body_above_a_megabyte_is_too_large() -> None:
    assert refused({}, b"a" * (1024 * 1024 + 1)).code == "too_large"


@pytest.mark.parametrize("claimed", [10**6, 4096, 16])
def test_a_bomb_costs_no_memory(claimed: int) -> None:
    """Nested arrays that each claim many entries would be gigabytes if room were made on their word."""
    body = BOMB + (b"\xdd" + claimed.to_bytes(4, "big")) * 200_000
    tracemalloc.start()
    refused(MSGPACK, body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


HIGH, LOW, SMILE = "\ud83d", "\ude42", "\U0001f642"


@pytest.mark.parametrize("content", [ContentType.JSON, ContentType.MSGPACK])
def test_a_delta_may_be_cut_inside_a_surrogate_pair(content: ContentType) -> None:
    for text in ("Hi " + HIGH, LOW + " there", LOW, HIGH, LOW + HIGH):
        packet = encode(Text(seq=0, text=text), content)
        decoded = decode_input(packet.headers, packet.payload)
        assert isinstance(decoded, Text)
        assert decoded.text == text


def test_the_halves_of_a_pair_inside_one_delta_are_joined() -> None:
    packed = b"\x83\xa4type\xa4text\xa3seq\x00\xa4text\xa6" + (HIGH + LOW).encode("utf-8", "surrogatepass")
    decoded = decode_input(MSGPACK, packed)
    assert isinstance(decoded, Text)
    assert decoded.text == SMILE


NEVER_WHOLE = ["a\ud83db", "a\ude42", "\ude42\ude42", "\ud83d\ud83d", "a\ude42b"]


@pytest.mark.parametrize("text", NEVER_WHOLE)
def test_half_a_pair_that_can_never_become_whole_is_refused(text: str) -> None:
    with pytest.raises(WireError) as error:
        decode_input({}, json.dumps({"type": "text", "seq": 0, "text": text}).encode())
    assert error.value.detail == {"field": "text"}


def test_an_opening_text_may_end_but_not_begin_inside_a_pair() -> None:
    assert opened(text="Hi " + HIGH).text == "Hi " + HIGH
    assert refused({}, json.dumps({"text": LOW + "a"}).encode()).detail == {"field": "text"}


def test_info_requests_may_be_empty() -> None:
    for body in (b"", b"{}", b'{"type": "info"}'):
        assert decode_info_request({}, body).type == "info"
    for body in (b"hello", b'{"pool": "x"}', b'{"type": "open"}'):
        with pytest.raises(WireError):
            decode_info_request({}, body)


def test_audio_is_raw_bytes_under_headers() -> None:
    audio = Audio(b"\x01\x00\xff\x7f", seq=3, pts=5760, gen=1, encoding="pcm_s16le")
    packet = encode_audio(audio)
    assert packet.payload == audio.payload
    assert packet.headers == {
        "Tts-Event": "audio",
        "Tts-Seq": "3",
        "Tts-Pts": "5760",
        "Tts-Gen": "1",
        "Content-Type": "audio/x-pcm-s16le",
    }
    assert decode_event(packet.headers, packet.payload) == audio


@pytest.mark.parametrize("name", ["Tts-Seq", "Tts-Pts", "Tts-Gen"])
@pytest.mark.parametrize("value", ["", "-1", "x", "9" * 30, "1.0", "١"])
def test_audio_with_bad_headers_is_no_event(name: str, value: str) -> None:
    packet = encode_audio(Audio(b"", seq=0, pts=0, gen=0, encoding="wav"))
    with pytest.raises(WireError):
        decode_event({**packet.headers, name: value}, packet.payload)


def test_events_carry_their_name_in_body_and_header() -> None:
    usage = Usage(characters=5, words=1, frames=6, audio_ms=480.0, queued_ms=1.5, stalled_ms=0.0)
    packet = encode(End(reason="finished", usage=usage), ContentType.JSON)
    assert packet.headers == {"Content-Type": "application/json", "Tts-Event": "end"}
    body = json.loads(packet.payload)
    assert body["type"] == "end"
    assert "first_audio_ms" not in body["usage"]


def test_a_mark_says_that_its_end_is_not_known() -> None:
    packet = encode(Mark(word="Hi", offset=0, start_ms=80.0, end_ms=None), ContentType.JSON)
    assert packet.headers["Tts-Event"] == "mark"
    assert json.loads(packet.payload) == {
        "type": "mark",
        "word": "Hi",
        "offset": 0,
        "start_ms": 80.0,
        "end_ms": None,
    }


def test_a_client_reads_the_events_of_a_newer_worker() -> None:
    event = decode_event({}, b'{"type": "need_text", "text_seq": 4, "since": "v1.7"}')
    assert event.type == "need_text"  # type: ignore[union-attr]
    with pytest.raises(WireError):
        decode_event({}, b'{"type": "applause"}')
