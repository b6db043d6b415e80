"""Requests that are wrong in every way somebody thought of; each must be answered with exactly one typed error.

Every body is small enough to be published on a server with the default max_payload of 1 MiB.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack
from hypothesis import strategies as st

from worker.wire.requests import Open

JSON = {"Content-Type": "application/json"}
MSGPACK = {"Content-Type": "application/msgpack"}
SURROGATES = st.sampled_from(["\ud83d", "\ude42", "\ud800", "\udfff"])


@dataclass(frozen=True, slots=True)
class Malformed:
    headers: dict[str, str]
    body: bytes

    def __repr__(self) -> str:
        shown = self.body if len(self.body) <= 80 else self.body[:80] + b"..."
        return f"Malformed({self.headers}, {shown!r}, {len(self.body)} bytes)"


Fields = dict[str, Any]
Encoder = Callable[[Fields], Malformed]


def as_json(fields: Fields) -> Malformed:
    return Malformed(JSON, json.dumps(fields).encode())


def as_msgpack(fields: Fields) -> Malformed:
    return Malformed(MSGPACK, msgpack.packb(fields, unicode_errors="surrogatepass"))


encoders: st.SearchStrategy[Encoder] = st.sampled_from([as_json, as_msgpack])

WRONG: dict[str, list[Any]] = {
    "text": [5, True, ["a"], {"a": "b"}, 1.5],
    "final": [1, "true", 0, []],
    "session": ["short", "a" * 65, "a.>" + "b" * 16, "a b" * 8, 7, "x" * 16 + "\n", "é" * 20],
    "voice": [
        3,
        [],
        ["anna"] * 6,
        [1],
        ["v" * 300],
        [["anna"]],
        "v" * 300,
        "../../etc/hostname",
        "/dev/zero",
        "a\r\nX: y",
        "",
        True,
    ],
    "language": [1, "tlh", ["en"], "x" * 100],
    "format": ["wav", 24_000, [], {"encoding": 1}, {"sample_rate": "24000"}, {"sample_rate": 24_000.5}],
    "pace": ["slow", "", 1, None, True],
    "lead_ms": ["480", 0, -1, 1e300, True],
    "credit_ms": [-1, "0", 1e300, False],
    "seed": [-1, 1.5, "7", True],
    "temperature": [-0.1, 1e6, "1", True, []],
    "top_k": [-1, 1.0, 10**9, "5", False],
    "padding_bonus": ["0", 1e9, True],
    "max_padding": [0, -5, 10**9, 2.5],
    "gain_db": ["3", 1e9, -1e9, True],
    "trim_silence": [1, "yes"],
    "pronunciations": [[], "a=b", {"a": 1}, {"two words": "x"}, {"": "x"}, {"a": ""}, {"a": "b" * 300}],
    "marks": [1, "yes"],
    "fanout": [1, "no"],
    "resume": [True, []],
    "idle_timeout_s": [0, -1, "30", 1e9],
    "max_session_s": [0, -1, "30", 1e9],
    "speed": [0, -1, 1, 1e-6, "fast", None],
    "type": ["text", "opening", 1, [], None],
}

INPUT_WRONG: dict[str, list[Any]] = {
    "seq": [-1, 1.0, "0", True, 2**63],
    "gen": [-1, 0.5, "1", True],
    "speaker": [-1, 0.0, "1", True, [0]],
    "text": [5, True, ["a"], {"a": "b"}, None],
    "type": ["open", "ready", "", 1, [], None, {}],
}


def wrong_values(base: Fields, wrong: dict[str, list[Any]]) -> st.SearchStrategy[Malformed]:
    pairs = st.sampled_from([(name, value) for name, values in wrong.items() for value in values])
    return st.builds(lambda encode, pair: encode({**base, pair[0]: pair[1]}), encoders, pairs)


def unknown_fields(base: Fields, known: frozenset[str]) -> st.SearchStrategy[Malformed]:
    names = st.text(st.characters(codec="utf-8"), max_size=40).filter(lambda name: name not in known)
    values = st.none() | st.booleans() | st.integers(0, 9) | st.text("ab", max_size=3)
    return st.builds(
        lambda encode, more: encode({**base, **more}), encoders, st.dictionaries(names, values, min_size=1, max_size=4)
    )


def bad_strings(base: Fields) -> st.SearchStrategy[Malformed]:
    """NULs anywhere, half surrogate pairs where they can never become whole."""

    def build(encode: Encoder, name: str, before: str, bad: str, after: str) -> Malformed:
        if name == "text":
            return encode({**base, "text": f"{before}a{bad}z{after}"})
        return encode({**base, name: before + bad + after})

    names = st.sampled_from(["text", "session", "voice", "language", "pace", "type"])
    words = st.text("abc ", max_size=5)
    return st.builds(build, encoders, names, words, st.just("\x00") | SURROGATES, words) | st.builds(
        lambda encode, bad: encode({**base, "a" + bad: 1}), encoders, st.just("\x00") | SURROGATES
    )


def not_text() -> st.SearchStrategy[Malformed]:
    """Plain bodies that are no printable text."""
    controls = st.sampled_from([b"\x00", b"\x07", b"\x1b[2J", b"\x7f", b"\xff", b"\xc3", b"\xed\xa0\xbd", b"\xf8\x88"])
    text = st.text("abc é", max_size=20).map(str.encode)
    return st.builds(lambda before, bad, after: Malformed({}, b"a" + before + bad + after), text, controls, text)


def broken_json(base: Fields) -> st.SearchStrategy[Malformed]:
    whole = json.dumps({**base, "text": "Hello"}).encode()
    cut = st.integers(1, len(whole) - 1).map(lambda n: whole[:n])
    nested = st.tuples(st.sampled_from([b'{"a":', b"[", b'{"format":']), st.integers(20, 200_000)).map(
        lambda bomb: b'{"text":' + (bomb[0] * bomb[1])[:900_000]
    )
    twice = st.sampled_from([b'{"text":"a","text":"b"}', b'{"seq":0,"seq":0}', b'{"a":{"b":1,"b":2}}'])
    constants = st.sampled_from([b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"9" * 5000, b"1" * 30])
    odd = st.sampled_from([b"[]", b"null", b"true", b'"text"', b"{}{}", b"{,}", b"{'text':'a'}", b"{\x00}", b"{\xff}"])
    numbers = constants.map(lambda constant: b'{"temperature":' + constant + b"}")
    return st.builds(Malformed, st.just(JSON), cut | nested | twice | numbers | odd)


def broken_msgpack() -> st.SearchStrategy[Malformed]:
    noise = st.binary(min_size=1, max_size=40).filter(lambda body: not 0x80 <= body[0] <= 0x8F and body[0] < 0xDE)
    claims = st.sampled_from([b"\x91", b"\x81\xa1a", b"\xdd\x7f\xff\xff\xff", b"\xdc\x10\x00", b"\xdf\xff\xff\xff\xff"])
    bombs = st.tuples(claims, st.integers(1, 150_000)).map(lambda bomb: b"\x81\xa1a" + (bomb[0] * bomb[1])[:900_000])
    odd = st.sampled_from(
        [
            b"\x81\xa4text\xdb\xff\xff\xff\xff",
            b"\x81\xa4text\xc6\xff\xff\xff\xff",
            b"\x81\xa4text\xa1\xff",
            b"\x81\xc4\x04text\xa1a",
            b"\x81\x01\x02",
            b"\x81\xc0\x02",
            b"\x81\x90\x02",
            b"\x82\xa4text\xa1a\xa4text\xa1a",
            b"\x81\xa1a\xc7\x00\x05",
            b"\x81\xa1a\xd6\xff\x00\x00\x00\x00",
            b"\x81\xabtemperature\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
            b"\x80\x80",
        ]
    )
    return st.builds(Malformed, st.just(MSGPACK), noise | bombs | odd)


def foreign() -> st.SearchStrategy[Malformed]:
    """Nothing at all, or something of another kind."""
    types = st.sampled_from(["image/png", "application/cbor", "application/x-www-form-urlencoded", "", "json", "é"])
    return st.just(Malformed({}, b"")) | st.builds(
        lambda kind: Malformed({"Content-Type": kind}, b'{"text": "a"}'), types
    )


def huge(field: str, base: Fields) -> st.SearchStrategy[Malformed]:
    """One word, or many, far beyond any limit of characters."""
    units = st.sampled_from(["a", "a ", "1", "é", "\U0001f642"])
    return st.builds(lambda unit, count: as_msgpack({**base, field: (unit * count)[:200_000]}), units, st.just(200_000))


def absurd_formats() -> st.SearchStrategy[Malformed]:
    encodings = st.sampled_from(["pcm_s16le", "mulaw", "alaw", "opus", "mp3", "", "../x", "PCM_S16LE"])
    rates = st.integers(-(2**63), 2**63).filter(
        lambda rate: rate not in (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)
    )
    return st.builds(
        lambda encode, name, rate: encode({"format": {"encoding": name, "sample_rate": rate}}),
        encoders,
        encodings,
        rates,
    )


def malformed_opens() -> st.SearchStrategy[Malformed]:
    """Bodies for ``open``, wrong for every worker whose limit of text is below 200,000 characters."""
    base: Fields = {"text": "Hello.", "final": True}
    return st.one_of(
        wrong_values(base, WRONG),
        unknown_fields(base, frozenset({*Open.model_fields, "speed"})),
        bad_strings(base),
        not_text(),
        broken_json(base),
        broken_msgpack(),
        foreign(),
        huge("text", base),
        absurd_formats(),
        st.builds(lambda encode, half: encode({"text": "Hi " + half, "final": True}), encoders, SURROGATES),
    )


def malformed_inputs() -> st.SearchStrategy[Malformed]:
    """Bodies for a session's input subject, wrong whatever the session's state."""
    base: Fields = {"type": "text", "seq": 0, "text": "Hello."}
    return st.one_of(
        wrong_values(base, INPUT_WRONG),
        unknown_fields(base, frozenset({*base, "gen"})),
        bad_strings(base),
        not_text(),
        broken_json(base),
        broken_msgpack(),
        foreign(),
    )
