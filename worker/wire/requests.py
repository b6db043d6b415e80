"""Messages of the producer: ``open``, and what follows on the session's input subject.

Strict models that refuse unknown fields. Text may be cut anywhere, inside a surrogate pair too, so a text field may
begin or end with half a pair; a half pair anywhere else can never become whole and is refused.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from worker.wire.subjects import SESSION_PATTERN, TOKEN_PATTERN


def join_surrogates(text: str) -> str:
    """Join each high surrogate with the low one that follows it; lone ones stay as they are."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def has_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)


def joined(value: str) -> str:
    """Surrogate pairs are one character again. For pydantic: NUL is refused."""
    if "\x00" in value:
        raise PydanticCustomError("text_nul", "must not hold NUL characters")
    return value if value.isascii() else join_surrogates(value)


def _whole_but_for_its_end(value: str) -> str:
    value = joined(value)
    if has_surrogates(value[:-1]) or "\udc00" <= value[-1:] <= "\udfff":
        raise PydanticCustomError("text_surrogate", "half a surrogate pair in the middle of the text")
    return value


def _delta(value: str) -> str:
    value = joined(value)
    if "\udc00" <= value[:1] <= "\udfff":
        _whole_but_for_its_end(value[1:])
        return value
    return _whole_but_for_its_end(value)


OpeningText = Annotated[str, AfterValidator(_whole_but_for_its_end)]
Delta = Annotated[str, AfterValidator(_delta)]
SessionId = Annotated[str, Field(pattern=f"^{SESSION_PATTERN}$")]
Token = Annotated[str, Field(pattern=f"^{TOKEN_PATTERN}$")]
Seq = Annotated[int, Field(ge=0, lt=2**63)]
Word = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^\S+$")]
Spelling = Annotated[str, Field(min_length=1, max_length=256)]
MOST_VOICES = 5
Name = Annotated[str, Field(max_length=256)]
Names = Annotated[list[Name], Field(min_length=1, max_length=MOST_VOICES)]
Voice = Annotated[
    Annotated[Name, Tag("name")] | Annotated[Names, Tag("names")],
    Discriminator(lambda value: "names" if isinstance(value, list) else "name"),
]
"""One voice, or those of several speakers in their order."""


class Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


class AudioFormat(Request):
    encoding: str = Field(default="pcm_s16le", max_length=32)
    sample_rate: int = 24_000


class Rendering(Request):
    """How the model speaks, live or in a job. None: the model's default."""

    temperature: float | None = Field(default=None, ge=0.0, le=10.0)
    top_k: int | None = Field(default=None, ge=0, le=65_536)
    cfg: float | None = Field(default=None, ge=0.0, le=100.0)
    padding_bonus: float | None = Field(default=None, ge=-100.0, le=100.0)
    padding_between: int | None = Field(default=None, ge=0, le=1_000)
    max_padding: int | None = Field(default=None, ge=1, le=1_000)
    gain_db: float = Field(default=0.0, ge=-96.0, le=48.0)
    trim_silence: bool = False
    pronunciations: dict[Word, Spelling] = Field(default_factory=dict, max_length=512)


class Options(Rendering):
    """What shapes a session. None: the worker's or the model's default; ``ready`` says what was chosen."""

    voice: Voice | None = None
    language: str | None = Field(default=None, max_length=64)
    format: AudioFormat = AudioFormat()
    pace: Literal["live", "fast"] = "live"
    lead_ms: float = Field(default=480.0, ge=80.0, le=60_000.0)
    credit_ms: float | None = Field(default=None, ge=0.0, le=86_400_000.0)
    seed: int | None = Field(default=None, ge=0, lt=2**64)
    marks: bool = False
    fanout: bool = False
    resume: bool = False
    idle_timeout_s: float = Field(default=30.0, gt=0.0, le=86_400.0)
    max_session_s: float = Field(default=3_600.0, gt=0.0, le=86_400.0)

    @property
    def voices(self) -> tuple[str, ...]:
        """Of all speakers; empty: the model's first voice."""
        if self.voice is None:
            return ()
        return (self.voice,) if isinstance(self.voice, str) else tuple(self.voice)


class Open(Options):
    type: Literal["open"] = "open"
    text: OpeningText | None = None
    final: bool = False
    session: SessionId | None = None


class InfoRequest(Request):
    type: Literal["info"] = "info"


class Text(Request):
    """The next delta. ``seq`` None: a plain-text delta, taken as the next; ``gen`` None: the current generation.
    ``speaker``: index into the session's voices; None: whoever spoke last in this generation, at first the first."""

    type: Literal["text"] = "text"
    seq: Seq | None
    text: Delta
    gen: Seq | None = None
    speaker: Seq | None = None


class Flush(Request):
    """``seq``: the number that the next text would have, so that a lost last delta is seen."""

    type: Literal["flush"] = "flush"
    seq: Seq | None = None
    gen: Seq | None = None


class Finish(Request):
    """``seq`` as in ``Flush``."""

    type: Literal["finish"] = "finish"
    seq: Seq | None = None
    gen: Seq | None = None


class Cancel(Request):
    """``gen`` None: the current generation. ``played_ms``: session media time that the listener has heard."""

    type: Literal["cancel"] = "cancel"
    gen: Seq | None = None
    played_ms: float | None = Field(default=None, ge=0.0, le=86_400_000.0)
    keep: bool = False


class Credit(Request):
    """Audio, in ms, that the worker may send beyond what it may send already."""

    type: Literal["credit"] = "credit"
    ms: float = Field(gt=0.0, le=86_400_000.0)


class Ping(Request):
    type: Literal["ping"] = "ping"


Input = Text | Flush | Finish | Cancel | Credit | Ping
INPUTS: tuple[type[Input], ...] = (Text, Flush, Finish, Cancel, Credit, Ping)
