"""The protocol parser gives the same messages however the stream is cut."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nats.errors import ProtocolError

from worker.link import LineParser


class Ear:
    """The client's side of the parser."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.heard.append((sid, subject, reply, data, headers))

    async def _process_ping(self) -> None:
        self.heard.append("ping")

    async def _process_pong(self) -> None:
        self.heard.append("pong")

    async def _process_info(self, info: dict[str, Any]) -> None:
        self.heard.append(info)

    async def _process_err(self, error: str) -> None:
        self.heard.append(error)


def parse(*chunks: bytes) -> list[Any]:
    async def run() -> list[Any]:
        ear = Ear()
        parser = LineParser(ear)
        for chunk in chunks:
            await parser.parse(chunk)
        return ear.heard

    return asyncio.run(run())


token = st.binary(min_size=1, max_size=12).filter(lambda part: not set(part) & set(b" \r\n"))
Command = tuple[bytes, Any]


def message(sid: int, subject: bytes, reply: bytes, data: bytes) -> Command:
    fields = [b"MSG", subject, str(sid).encode(), *([reply] if reply else []), str(len(data)).encode()]
    return b" ".join(fields) + b"\r\n" + data + b"\r\n", (sid, subject, reply, data, None)


def with_headers(sid: int, subject: bytes, reply: bytes, headers: bytes, data: bytes) -> Command:
    sizes = [str(len(headers)).encode(), str(len(headers) + len(data)).encode()]
    fields = [b"HMSG", subject, str(sid).encode(), *([reply] if reply else []), *sizes]
    return b" ".join(fields) + b"\r\n" + headers + data + b"\r\n", (sid, subject, reply, data, headers or None)


sids, payloads, replies = st.integers(1, 2**31), st.binary(max_size=40), st.just(b"") | token
commands = st.one_of(
    st.builds(message, sids, token, replies, payloads),
    st.builds(with_headers, sids, token, replies, st.binary(max_size=20), payloads),
    st.sampled_from(
        [
            (b"PING\r\n", "ping"),
            (b"PONG\r\n", "pong"),
            (b'INFO {"max_payload":5}\r\n', {"max_payload": 5}),
            (b"-ERR 'Stale Connection'\r\n", "'stale connection'"),
            (b"-ERR\r\n", ""),
            (b"-ERR '\xff'\r\n", "'\ufffd'"),
        ]
    ),
)


@settings(deadline=None)
@given(st.lists(commands, max_size=8), st.lists(st.integers(0, 400), max_size=6))
def test_cuts_do_not_matter(said: list[Command], cuts: list[int]) -> None:
    stream = b"+OK\r\n".join(raw for raw, _ in said)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[start:end] for start, end in itertools.pairwise(edges)]
    assert parse(*chunks) == [meant for _, meant in said]


@pytest.mark.parametrize(
    "line", [b"MSG a 1\r\n", b"MSG a b 3\r\n", b"MSG a 1 r x 3\r\n", b"HMSG a 1 3\r\n", b"HELLO\r\n", b"\r\n"]
)
def test_what_no_server_says_is_a_protocol_error(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse(line)
