"""Messages of the worker: what listeners hear on a session's one output subject, and the reply to ``info``.

Strict in their types, but unknown fields are passed over: a client reads the events of a newer worker.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from worker.errors import Detail, ErrorCode, WireError
from worker.wire.requests import Open, Options, Seq, SessionId, Token

Milliseconds = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=0)]
EndReason = Literal["finished", "cancelled", "idle", "gone", "limit", "shutdown", "failed"]
END_REASONS: tuple[EndReason, ...] = get_args(EndReason)
Parting = EndReason | Literal["moved"]
"""How a session leaves a worker: it ends, or another worker takes it over."""

EVENT_CONFIG = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


class Event(BaseModel):
    model_config = EVENT_CONFIG


class Limits(BaseModel):
    """Characters in one message, characters not yet spoken, and the longest that a session may last or be silent."""

    model_config = EVENT_CONFIG
    text_chars: int = Field(gt=0)
    buffer_chars: int = Field(gt=0)
    session_s: float = Field(gt=0.0)
    idle_s: float = Field(gt=0.0)


class Ready(Options, Event):
    """The session is open. Every option is settled: an ``open`` with these gives the same audio."""

    model_config = EVENT_CONFIG
    type: Literal["ready"] = "ready"
    session: SessionId
    input: str
    """The subject for text and the other messages of the producer."""
    worker: Token
    model: str
    engine: str
    """The engine's version."""
    frame_ms: Milliseconds
    text_seq: Seq
    limits: Limits
    header: str | None = Field(default=None, pattern=r"^[A-Za-z0-9+/]+={0,2}$")
    """Base64 of the container's header (WAV, Ogg), with which the first audio begins; who missed that puts it before
    what he hears."""
    gen: Seq | None = None
    """Of a session that was taken over: its generation from now on."""
    since_gen: Seq | None = None
    """Of such a session: the first number of the same generation."""
    exact: bool | None = None
    """Of such a session: whether what follows is what would have followed."""

    @classmethod
    def answering(
        cls,
        settled: Open,
        *,
        session: str,
        input: str,
        worker: str,
        model: str,
        engine: str,
        frame_ms: float,
        limits: Limits,
        text_seq: int = 0,
        header: bytes = b"",
        gen: int | None = None,
        since_gen: int | None = None,
        exact: bool | None = None,
    ) -> Ready:
        """``settled`` is what ``Offer.settle`` made of the request."""
        options = {name: getattr(settled, name) for name in Options.model_fields}
        return cls(
            session=session,
            input=input,
            worker=worker,
            model=model,
            engine=engine,
            frame_ms=frame_ms,
            limits=limits,
            text_seq=text_seq,
            header=base64.b64encode(header).decode() if header else None,
            gen=gen,
            since_gen=since_gen,
            exact=exact,
            **options,
        )

    @property
    def header_bytes(self) -> bytes:
        return base64.b64decode(self.header or "")

    def request(self, text: str | None = None, *, final: bool = False) -> Open:
        """The ``open`` that gives the same audio for the same text."""
        options = {name: getattr(self, name) for name in Options.model_fields}
        return Open(text=text, final=final, **options)


class Mark(Event):
    """A white-space word of the generation's text, before the audio that holds ``start_ms``; times are media time.

    ``offset`` counts code points, a surrogate pair as one, from the beginning of the generation's text. ``end_ms``
    None: until the next mark or the end. A word that speaks nothing has no length.
    """

    type: Literal["mark"] = "mark"
    word: str
    offset: Seq
    start_ms: Milliseconds
    end_ms: Milliseconds | None


class NeedText(Event):
    """The model wants the next word and has none. ``text_seq``: next expected."""

    type: Literal["need_text"] = "need_text"
    text_seq: Seq


class Flushed(Event):
    """All audio of the text given before ``text_seq`` is out; ``pts`` is the index of the next sample."""

    type: Literal["flushed"] = "flushed"
    text_seq: Seq
    pts: Seq


class Cancelled(Event):
    """``gen`` is the new generation; ``spoken`` and ``unspoken`` together are exactly the old one's text."""

    type: Literal["cancelled"] = "cancelled"
    gen: Seq
    spoken: str
    unspoken: str


class Usage(BaseModel):
    """``first_audio_ms``: from ``open`` to the first audio, None without any. ``queued_ms``: from ``open`` to the first
    step (its text had to come first), and from text to a row again after a pause between generations. ``stalled_ms``:
    waiting for text later. ``audio_ms``: what was sent."""

    model_config = EVENT_CONFIG
    characters: Count
    words: Count
    frames: Count
    audio_ms: Milliseconds
    first_audio_ms: Milliseconds | None = None
    queued_ms: Milliseconds
    stalled_ms: Milliseconds


class End(Event):
    """Exactly one after ``ready``, always last."""

    type: Literal["end"] = "end"
    reason: EndReason
    usage: Usage


class Error(Event):
    type: Literal["error"] = "error"
    code: ErrorCode
    message: str
    retryable: bool
    detail: Detail = Field(default_factory=dict)

    @classmethod
    def of(cls, error: WireError) -> Error:
        return cls(code=error.code, message=error.message, retryable=error.retryable, detail=error.detail)

    def as_exception(self) -> WireError:
        return WireError(self.code, self.message, retryable=self.retryable, detail=self.detail)


class Pulse(Event):
    """The worker's ``ping`` while a session is silent."""

    type: Literal["ping"] = "ping"
    text_seq: Seq


class ModelCard(BaseModel):
    model_config = EVENT_CONFIG
    name: str
    digest: str
    sample_rate: int
    frame_ms: Milliseconds
    speakers: int = Field(default=1, ge=1)
    """Voices that one session may have."""


class Info(Event):
    """Reply to an ``info`` request."""

    type: Literal["info"] = "info"
    worker: Token
    pool: Token
    engine: str
    model: ModelCard
    voices: list[str]
    languages: list[str]
    formats: dict[str, list[int]]
    """Encoding -> sample rates."""
    options: list[str]
    """Options of ``open`` that are honoured."""
    limits: Limits


ControlEvent = Ready | Mark | NeedText | Flushed | Cancelled | End | Error | Pulse | Info
EVENTS: tuple[type[ControlEvent], ...] = (Ready, Mark, NeedText, Flushed, Cancelled, End, Error, Pulse, Info)


@dataclass(frozen=True, slots=True)
class Audio:
    """Whole samples in the session's format, or whole Ogg pages. ``seq``: payloads before this one; ``pts``: index of
    its first sample at the session's rate, for Opus too."""

    payload: bytes
    seq: int
    pts: int
    gen: int
    encoding: str
