from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from worker.errors import ERROR_CODES
from worker.wire import events, requests
from worker.wire.codec import (
    AUDIO_TYPES,
    ContentType,
    decode_event,
    decode_info_request,
    decode_input,
    decode_open,
    encode,
    encode_audio,
)

contents = st.sampled_from([ContentType.MSGPACK, ContentType.JSON])
token_chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
sessions = st.text(token_chars, min_size=16, max_size=64)
tokens = st.text(token_chars, min_size=1, max_size=64)
seqs = st.integers(0, 2**63 - 1)
plain = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=50)
words = st.text("abcdefgé'-", min_size=1, max_size=20)
ms = st.floats(0, 1e7) | st.integers(0, 10**7).map(float)
highs, lows = (
    st.characters(min_codepoint=0xD800, max_codepoint=0xDBFF),
    st.characters(min_codepoint=0xDC00, max_codepoint=0xDFFF),
)
opening_texts = st.builds(lambda text, high: text + high, plain, st.just("") | highs)
deltas = st.builds(lambda low, text: low + text, st.just("") | lows, opening_texts)
formats = st.builds(
    requests.AudioFormat, encoding=st.text("abc_16", max_size=32), sample_rate=st.integers(-(2**63), 2**63)
)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


options = st.fixed_dictionaries(
    {},
    optional={
        "voice": plain | st.lists(plain, min_size=1, max_size=5),
        "language": plain,
        "format": formats,
        "pace": st.sampled_from(["live", "fast"]),
        "lead_ms": st.floats(80, 60_000),
        "credit_ms": maybe(ms),
        "seed": maybe(st.integers(0, 2**64 - 1)),
        "temperature": maybe(st.floats(0, 10)),
        "top_k": maybe(st.integers(0, 65_536)),
        "cfg": maybe(st.floats(0, 100)),
        "padding_bonus": maybe(st.floats(-100, 100)),
        "padding_between": maybe(st.integers(0, 1_000)),
        "max_padding": maybe(st.integers(1, 1_000)),
        "gain_db": st.floats(-96, 48),
        "trim_silence": st.booleans(),
        "pronunciations": st.dictionaries(words, words, max_size=5),
        "marks": st.booleans(),
        "fanout": st.booleans(),
        "resume": st.booleans(),
        "idle_timeout_s": st.floats(0.001, 86_400),
        "max_session_s": st.floats(0.001, 86_400),
    },
)
opens = st.builds(
    lambda chosen, text, final, session: requests.Open(text=text, final=final, session=session, **chosen),
    options,
    maybe(opening_texts),
    st.booleans(),
    maybe(sessions),
)
inputs = st.one_of(
    st.builds(requests.Text, seq=maybe(seqs), text=deltas, gen=maybe(seqs), speaker=maybe(seqs)),
    st.builds(requests.Flush, seq=maybe(seqs), gen=maybe(seqs)),
    st.builds(requests.Finish, seq=maybe(seqs), gen=maybe(seqs)),
    st.builds(requests.Cancel, gen=maybe(seqs), played_ms=maybe(ms), keep=st.booleans()),
    st.builds(requests.Credit, ms=st.floats(0.001, 1e7)),
    st.builds(requests.Ping),
)

limits = st.builds(
    events.Limits,
    text_chars=st.integers(1, 10**6),
    buffer_chars=st.integers(1, 10**6),
    session_s=st.floats(1, 1e5),
    idle_s=st.floats(1, 1e5),
)
readies = st.builds(
    lambda chosen, **fields: events.Ready(**chosen, **fields),
    options,
    session=sessions,
    input=plain,
    worker=tokens,
    model=plain,
    engine=plain,
    frame_ms=ms,
    text_seq=seqs,
    limits=limits,
)
usages = st.builds(
    events.Usage,
    characters=seqs,
    words=seqs,
    frames=seqs,
    audio_ms=ms,
    first_audio_ms=maybe(ms),
    queued_ms=ms,
    stalled_ms=ms,
)
details = st.dictionaries(
    plain, plain | st.integers(-(2**63), 2**63) | ms | st.booleans() | st.lists(plain, max_size=3), max_size=3
)
infos = st.builds(
    events.Info,
    worker=tokens,
    pool=tokens,
    engine=plain,
    model=st.builds(events.ModelCard, name=plain, digest=plain, sample_rate=seqs, frame_ms=ms),
    voices=st.lists(plain, max_size=3),
    languages=st.lists(plain, max_size=3),
    formats=st.dictionaries(plain, st.lists(seqs, max_size=3), max_size=3),
    options=st.lists(plain, max_size=3),
    limits=limits,
)
control = st.one_of(
    readies,
    st.builds(events.Mark, word=plain, offset=seqs, start_ms=ms, end_ms=maybe(ms)),
    st.builds(events.NeedText, text_seq=seqs),
    st.builds(events.Flushed, text_seq=seqs, pts=seqs),
    st.builds(events.Cancelled, gen=seqs, spoken=deltas, unspoken=deltas),
    st.builds(events.End, reason=st.sampled_from(events.END_REASONS), usage=usages),
    st.builds(events.Error, code=st.sampled_from(ERROR_CODES), message=plain, retryable=st.booleans(), detail=details),
    st.builds(events.Pulse, text_seq=seqs),
    infos,
)


def same(one: BaseModel, other: BaseModel) -> None:
    assert type(one) is type(other)
    assert one == other


@settings(deadline=None)
@given(opens, contents)
def test_opens_round_trip(request: requests.Open, content: ContentType) -> None:
    packet = encode(request, content)
    same(decode_open(packet.headers, packet.payload), request)


@settings(deadline=None)
@given(inputs, contents)
def test_inputs_round_trip(message: requests.Input, content: ContentType) -> None:
    packet = encode(message, content)
    same(decode_input(packet.headers, packet.payload), message)


@given(contents)
def test_info_requests_round_trip(content: ContentType) -> None:
    packet = encode(requests.InfoRequest(), content)
    assert decode_info_request(packet.headers, packet.payload) == requests.InfoRequest()


@settings(deadline=None)
@given(control, contents)
def test_events_round_trip(event: events.ControlEvent, content: ContentType) -> None:
    packet = encode(event, content)
    decoded = decode_event(packet.headers, packet.payload)
    assert isinstance(decoded, BaseModel)
    same(decoded, event)
    assert packet.headers["Tts-Event"] == event.type


@given(
    st.binary(max_size=64),
    seqs.filter(lambda n: n < 10**18),
    st.integers(0, 10**6),
    st.sampled_from(sorted(AUDIO_TYPES)),
)
def test_audio_round_trips(payload: bytes, seq: int, gen: int, encoding: str) -> None:
    audio = events.Audio(payload, seq=seq, pts=seq // 2, gen=gen, encoding=encoding)
    packet = encode_audio(audio)
    assert decode_event(packet.headers, packet.payload) == audio


@settings(deadline=None)
@given(plain.filter(str.strip), st.integers(0, 100))
def test_joined_deltas_are_the_text_however_it_is_cut(text: str, cut: int) -> None:
    """Cut between UTF-16 units, as a JavaScript producer does."""
    units = text.encode("utf-16-le")
    at = 2 * (cut % (len(units) // 2 + 1))
    joined = ""
    for seq, part in enumerate((units[:at], units[at:])):
        packet = encode(requests.Text(seq=seq, text=part.decode("utf-16-le", "surrogatepass")), ContentType.JSON)
        decoded = decode_input(packet.headers, packet.payload)
        assert isinstance(decoded, requests.Text)
        joined += decoded.text
    assert requests.join_surrogates(joined) == text
