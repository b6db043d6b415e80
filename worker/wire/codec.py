"""Bytes and headers to messages and back. Every body is hostile until it is decoded.

A body is msgpack or JSON by its ``Content-Type``; without one, a body that starts with ``{`` is JSON and any other
printable body is plain text. Whatever is wrong with a request ends as exactly one ``WireError``, in bounded time and
memory: sizes are refused before anything of that size is built, and nothing is executed or guessed.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import msgpack
from pydantic import BaseModel, ValidationError

from worker.errors import WireError, bad_request, too_large, unknown_fields, unsupported_option
from worker.wire.events import EVENTS, Audio, ControlEvent, Event
from worker.wire.jobs import MOST_CHAPTERS, Job, JobControl, JobEvent, JobStatus
from worker.wire.requests import INPUTS, AudioFormat, InfoRequest, Input, Open, Text, has_surrogates

EVENT_HEADER = "Tts-Event"
SEQ_HEADER = "Tts-Seq"
PTS_HEADER = "Tts-Pts"
GEN_HEADER = "Tts-Gen"
TYPE_HEADER = "Content-Type"
HANDOVER_HEADER = "Tts-Handover"
"""On an open: a worker that leaves asks another to take its session over; all events go where they went."""
TRACE_HEADERS = ("traceparent", "tracestate")

MAX_BODY_BYTES = 1024 * 1024
MAX_DEPTH = 8
MAX_MAP_ITEMS = 1024
REQUEST_LIST_ITEMS = 16
"""The voices are the only list in a session's request; one that claims more is refused before room for it is made, at
every depth."""
EVENT_LIST_ITEMS = 4096
_INT_DIGITS = 20  # of 2**64 - 1
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NUMBER = re.compile(r"[0-9]{1,18}")

AUDIO_TYPES: Mapping[str, str] = {
    "pcm_s16le": "audio/x-pcm-s16le",
    "pcm_f32le": "audio/x-pcm-f32le",
    "mulaw": "audio/PCMU",
    "alaw": "audio/PCMA",
    "opus": "audio/ogg; codecs=opus",
    "wav": "audio/wav",
}
_ENCODINGS_BY_TYPE = {media_type: encoding for encoding, media_type in AUDIO_TYPES.items()}


class ContentType(enum.Enum):
    MSGPACK = "application/msgpack"
    JSON = "application/json"
    TEXT = "text/plain"

    @property
    def answer(self) -> ContentType:
        """What a session opened in this encoding is answered in."""
        return ContentType.JSON if self is ContentType.TEXT else self


@dataclass(frozen=True, slots=True)
class Packet:
    payload: bytes
    headers: dict[str, str]


Message = TypeVar("Message", bound=BaseModel)
Tree = dict[str, Any]


# --- from bytes ---------------------------------------------------------------------------------------------------


def decode_open(headers: Mapping[str, str], body: bytes) -> Open:
    """Raises WireError. Plain text means all of the text, with every default."""
    content = content_type_of(headers, body)
    if content is ContentType.TEXT:
        return _build(Open, {"text": _plain(body), "final": True})
    tree = _map(content, body)
    if "speed" in tree:
        raise unsupported_option("speed")
    return _build(Open, _typed(tree, "open"))


def decode_input(headers: Mapping[str, str], body: bytes) -> Input:
    """Raises WireError. Plain text is the next delta: a ``Text`` without seq."""
    content = content_type_of(headers, body)
    if content is ContentType.TEXT:
        return _build(Text, {"seq": None, "text": _plain(body)})
    tree = _map(content, body)
    kind = tree.get("type")
    for model in INPUTS:
        if kind == model.model_fields["type"].default:
            return _build(model, tree)
    raise bad_request("one of text, flush, finish, cancel, credit, ping", field="type")


def decode_info_request(headers: Mapping[str, str], body: bytes) -> InfoRequest:
    """Raises WireError. An empty body is a request too."""
    if not body:
        return InfoRequest()
    content = content_type_of(headers, body)
    if content is ContentType.TEXT:
        raise bad_request("an info request is a map or empty")
    return _build(InfoRequest, _typed(_map(content, body), "info"))


def decode_job(headers: Mapping[str, str], body: bytes) -> Job:
    """Raises WireError. Plain text is the book, with every default."""
    content = content_type_of(headers, body)
    if content is ContentType.TEXT:
        return _build(Job, {"text": _plain(body)})
    return _build(Job, _typed(_map(content, body, MOST_CHAPTERS), "job"))


def decode_job_control(headers: Mapping[str, str], body: bytes) -> JobControl:
    """Raises WireError. An empty body asks for the status."""
    if not body:
        return JobControl(type="status")
    content = content_type_of(headers, body)
    if content is ContentType.TEXT:
        raise bad_request("a job is controlled by a map or an empty body")
    return _build(JobControl, _map(content, body))


def decode_job_event(headers: Mapping[str, str], body: bytes) -> JobEvent:
    """For clients. Raises WireError (bad_request)."""
    return _build(JobEvent, _tree(content_type_of(headers, body), body, EVENT_LIST_ITEMS))


def decode_job_status(headers: Mapping[str, str], body: bytes) -> JobStatus:
    """For clients. Raises WireError (bad_request)."""
    return _build(JobStatus, _tree(content_type_of(headers, body), body, EVENT_LIST_ITEMS))


def decode_event(headers: Mapping[str, str], body: bytes) -> ControlEvent | Audio:
    """For clients. Raises WireError (bad_request) on what no worker sends."""
    if headers.get(EVENT_HEADER) == "audio":
        seq, pts, gen = (_number(headers, name) for name in (SEQ_HEADER, PTS_HEADER, GEN_HEADER))
        encoding = _ENCODINGS_BY_TYPE.get(headers.get(TYPE_HEADER, ""), "")
        return Audio(body, seq=seq, pts=pts, gen=gen, encoding=encoding)
    tree = _tree(content_type_of(headers, body), body, EVENT_LIST_ITEMS)
    for model in EVENTS:
        if tree.get("type") == model.model_fields["type"].default:
            return _build(model, tree)
    raise bad_request("not an event of this contract", field="type")


def content_type_of(headers: Mapping[str, str], body: bytes) -> ContentType:
    """Raises WireError (bad_request, too_large)."""
    if not body:
        raise bad_request("empty body")
    if len(body) > MAX_BODY_BYTES:
        raise too_large("body", MAX_BODY_BYTES, "bytes")
    declared = _declared(headers)
    if declared is None:
        return ContentType.JSON if body.startswith(b"{") else ContentType.TEXT
    try:
        return ContentType(declared)
    except ValueError:
        raise bad_request("application/msgpack, application/json or text/plain", field=TYPE_HEADER) from None


def answer_type(headers: Mapping[str, str]) -> ContentType:
    """What to answer a request in that could not be decoded; never raises."""
    return ContentType.MSGPACK if _declared(headers) == ContentType.MSGPACK.value else ContentType.JSON


def _declared(headers: Mapping[str, str]) -> str | None:
    for name, value in headers.items():
        if name.lower() == "content-type":
            return value.partition(";")[0].strip().lower()
    return None


def _number(headers: Mapping[str, str], name: str) -> int:
    value = headers.get(name, "")
    if not _NUMBER.fullmatch(value):
        raise bad_request("a decimal number", field=name)
    return int(value)


def _plain(body: bytes) -> str:
    text = _utf8(body)
    if _UNPRINTABLE.search(text):
        raise bad_request("a body without Content-Type is printable text or a JSON map")
    return text


def _utf8(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise bad_request("body is not valid UTF-8") from None


def _map(content: ContentType, body: bytes, list_items: int = REQUEST_LIST_ITEMS) -> Tree:
    tree = _tree(content, body, list_items)
    _check_strings({name: value for name, value in tree.items() if name != "text"}, MAX_DEPTH)
    return tree


def _tree(content: ContentType, body: bytes, list_items: int) -> Tree:
    value = _from_json(_utf8(body)) if content is ContentType.JSON else _from_msgpack(body, list_items)
    if not isinstance(value, dict):
        raise bad_request("body is not a map")
    return value


def _from_json(text: str) -> object:
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_int=_integer, parse_float=_finite, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):
        raise bad_request("body is not valid JSON") from None


def _from_msgpack(body: bytes, list_items: int) -> object:
    try:
        return msgpack.unpackb(
            body,
            raw=False,
            # Half a surrogate pair at a delta's edge is legal; every other invalid byte still fails.
            unicode_errors="surrogatepass",
            strict_map_key=True,
            object_pairs_hook=_unique,
            ext_hook=_refuse_ext,
            max_map_len=MAX_MAP_ITEMS,
            max_array_len=list_items,
            max_bin_len=0,
            max_ext_len=0,
        )
    except (ValueError, RecursionError, msgpack.UnpackException):
        raise bad_request("body is not valid msgpack") from None


def _unique(pairs: list[tuple[object, object]]) -> Tree:
    if len(pairs) > MAX_MAP_ITEMS:
        raise bad_request(f"more than {MAX_MAP_ITEMS} entries in a map")
    tree: Tree = {}
    for name, value in pairs:
        if not isinstance(name, str):
            raise bad_request("a field name is not a string")
        if name in tree:
            raise bad_request("a field is given twice")
        tree[name] = value
    return tree


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > _INT_DIGITS:
        raise bad_request("an integer is out of range")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise bad_request("a number is out of range")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise bad_request(f"{name} is not JSON")


def _refuse_ext(code: int, data: bytes) -> NoReturn:
    raise bad_request("msgpack extension types are not part of the contract")


def _check_strings(value: object, depth: int) -> None:
    """Half surrogate pairs and NULs belong nowhere but (the former) in ``text``."""
    if depth == 0:
        raise bad_request("body is nested too deeply")
    if isinstance(value, str):
        if "\x00" in value or has_surrogates(value):
            raise bad_request("a string holds NUL or half a surrogate pair")
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_strings(name, depth)
            _check_strings(item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            _check_strings(item, depth - 1)


def _typed(tree: Tree, kind: str) -> Tree:
    """``open`` and ``info`` may leave their type out, but not name another."""
    if tree.get("type", kind) != kind:
        raise bad_request(f'"{kind}", or left out', field="type")
    return tree


def _build(model: type[Message], tree: Tree) -> Message:
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise _wire_error(error) from None


def _wire_error(error: ValidationError) -> WireError:
    """One typed error for all that pydantic found; its own texts name limits, never values."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    unknown = [str(item["loc"][-1]) for item in found if item["type"] == "extra_forbidden"]
    if unknown:
        return unknown_fields(unknown)
    first = found[0]
    return bad_request(first["msg"][:1].lower() + first["msg"][1:], field=_field(first["loc"]))


def _field(location: tuple[int | str, ...]) -> str | None:
    """The field's name; of what lies below it only names of our own, for keys below may be a session's words."""
    names = [str(part) for part in location[:1]]
    names += [part for part in location[1:2] if part in AudioFormat.model_fields]
    return ".".join(names) or None


# --- to bytes -----------------------------------------------------------------------------------------------------


def encode(message: BaseModel, content: ContentType) -> Packet:
    """A request or an event, with its headers. Fields that are None are left out."""
    tree = message.model_dump(exclude_none=True)
    required = (name for name, field in type(message).model_fields.items() if field.is_required())
    tree.update({name: None for name in required if name not in tree})
    headers = {TYPE_HEADER: content.answer.value}
    if isinstance(message, Event):
        headers[EVENT_HEADER] = tree["type"]
    return Packet(_dump(tree, content.answer), headers)


def _dump(tree: Tree, content: ContentType) -> bytes:
    if content is ContentType.MSGPACK:
        packed: bytes = msgpack.packb(tree, unicode_errors="surrogatepass")
        return packed
    return json.dumps(tree, separators=(",", ":"), allow_nan=False).encode("ascii")


def encode_audio(audio: Audio) -> Packet:
    return Packet(
        audio.payload,
        {
            EVENT_HEADER: "audio",
            SEQ_HEADER: str(audio.seq),
            PTS_HEADER: str(audio.pts),
            GEN_HEADER: str(audio.gen),
            TYPE_HEADER: AUDIO_TYPES[audio.encoding],
        },
    )
