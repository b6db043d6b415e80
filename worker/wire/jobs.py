"""Messages of batch jobs: the job itself, its control requests and their answer, and its progress.

A job says nothing about its tenant, bucket or place: those follow from the subject that it came on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from worker.errors import ErrorCode, bad_request
from worker.wire.events import EVENT_CONFIG, Count, Milliseconds
from worker.wire.requests import Name, Rendering, Request, SessionId, has_surrogates, joined

MOST_CHAPTERS = 4096
JOB_ID_VERSION = 1
"""Part of every derived id. Raise it only where the same job must no longer count as the same."""

JobId = SessionId
Position = Annotated[int, Field(ge=0, lt=2**53)]
"""Index into the text, in code points."""
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 of the text's UTF-8 bytes, in hexadecimal."""
ObjectName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$")]
"""Of an object in the tenant's own bucket: one flat name, so that it can be a file's too."""


def _printable(value: str) -> str:
    if any(c < " " or c == "\x7f" for c in value):
        raise PydanticCustomError("control_characters", "must not hold control characters")
    return value


def _book(value: str) -> str:
    value = joined(value)
    if has_surrogates(value):
        raise PydanticCustomError("text_surrogate", "half a surrogate pair")
    return value


Title = Annotated[str, Field(max_length=512), AfterValidator(_printable)]
Book = Annotated[str, AfterValidator(_book)]


class TextRef(Request):
    name: ObjectName
    digest: Digest


class Chapter(Request):
    """``[start, end)`` of the text. What lies in no chapter is not spoken."""

    title: Title = ""
    start: Position
    end: Position


class JobFormat(Request):
    encoding: Literal["flac", "opus", "wav", "mp3", "m4b"] = "flac"
    sample_rate: Literal[8_000, 16_000, 22_050, 24_000, 44_100, 48_000] = 24_000


class JobOptions(Rendering):
    """None: the model's default, or not at all."""

    gap_ms: float | None = Field(default=None, ge=0.0, le=60_000.0)
    """Silence between paragraphs' segments."""
    chapter_silence_ms: float | None = Field(default=None, ge=0.0, le=60_000.0)
    loudness_lufs: float | None = Field(default=None, ge=-70.0, le=0.0)
    """Integrated, of a chapter."""
    peak_db: float | None = Field(default=None, ge=-60.0, le=0.0)
    self_check: bool = False


class Job(Request):
    """One book. ``job`` None: the id that its content has; ``chapters`` empty: all of the text is one."""

    type: Literal["job"] = "job"
    job: JobId | None = None
    text: Book | None = None
    text_ref: TextRef | None = None
    title: Title = ""
    chapters: list[Chapter] = Field(default_factory=list, max_length=MOST_CHAPTERS)
    voice: Annotated[Name, AfterValidator(_printable)] | None = None
    language: str | None = Field(default=None, max_length=64)
    seed: int | None = Field(default=None, ge=0, lt=2**64)
    format: JobFormat = JobFormat()
    options: JobOptions = JobOptions()

    @model_validator(mode="after")
    def _one_text_and_chapters_in_order(self) -> Self:
        if (self.text is None) == (self.text_ref is None):
            raise PydanticCustomError("one_text", "exactly one of text and text_ref")
        if fault := _chapter_fault(self.chapters, None if self.text is None else len(self.text)):
            raise PydanticCustomError("chapters", "{fault}", {"fault": fault})
        return self

    @property
    def book_digest(self) -> str:
        """Hexadecimal SHA-256 of the text."""
        if self.text_ref is not None:
            return self.text_ref.digest
        assert self.text is not None
        return book_digest(self.text)

    @property
    def identity(self) -> str:
        """The id given, else the derived one: the same message is the same job however often it is queued."""
        if self.job is not None:
            return self.job
        return job_id(
            self.book_digest,
            voice=self.voice,
            language=self.language,
            seed=self.seed,
            title=self.title,
            chapters=self.chapters,
            format=self.format,
            options=self.options,
        )

    @property
    def settled_seed(self) -> int:
        """The seed given, else one that follows from the id, so that every worker that takes the job has the same."""
        if self.seed is not None:
            return self.seed
        return int.from_bytes(hashlib.sha256(f"seed\n{self.identity}".encode()).digest()[:8], "big")

    def chapters_of(self, text: str) -> list[Chapter]:
        """The chapters of the text that ``text_ref`` brought.

        Raises:
            WireError: (bad_request) one of them is not within the text, or the text is not the one referred to.
        """
        if book_digest(text) != self.book_digest:
            raise bad_request("the object does not have this digest", field="text_ref")
        if fault := _chapter_fault(self.chapters, len(text)):
            raise bad_request(fault, field="chapters")
        return self.chapters or [Chapter(title=self.title, start=0, end=len(text))]


def _chapter_fault(chapters: Sequence[Chapter], length: int | None) -> str | None:
    """``length``: of the text, if it is known."""
    at = 0
    for chapter in chapters:
        if chapter.end <= chapter.start:
            return "a chapter is empty"
        if chapter.start < at:
            return "chapters overlap or are out of order"
        at = chapter.end
    return "a chapter ends beyond the text" if length is not None and at > length else None


def book_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def job_id(
    book_digest: str,
    *,
    voice: str | None = None,
    language: str | None = None,
    seed: int | None = None,
    title: str = "",
    chapters: Sequence[Chapter] = (),
    format: JobFormat | None = None,
    options: JobOptions | None = None,
) -> str:
    """32 hexadecimal digits that follow from what is asked for; any change of it gives another id.

    Hashed is JSON with sorted names, without white space, in ASCII, and without the fields that have their default:
    an option added later does not change the id of jobs that do not use it.
    """
    asked = {
        "version": JOB_ID_VERSION,
        "book": book_digest,
        "voice": voice,
        "language": language,
        "seed": seed,
        "title": title,
        "chapters": [[chapter.title, chapter.start, chapter.end] for chapter in chapters],
        "format": (format or JobFormat()).model_dump(exclude_defaults=True),
        "options": (options or JobOptions()).model_dump(exclude_defaults=True),
    }
    return hashlib.sha256(canonical(asked)).hexdigest()[:32]


def canonical(tree: object) -> bytes:
    """One spelling for equal trees of plain values: sorted names, no white space, ASCII, the shortest exact floats."""
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


JobState = Literal["queued", "started", "paused", "done", "failed", "cancelled"]


class JobFailure(BaseModel):
    """Why, and never a word of the text."""

    model_config = EVENT_CONFIG
    code: ErrorCode
    message: str = Field(max_length=300)


class JobEvent(BaseModel):
    """Progress. Unknown fields are passed over, as in a session's events."""

    model_config = EVENT_CONFIG
    event: JobState | Literal["segment"]
    job: JobId
    epoch: Count = 0
    """Of the owner: it grows by one whenever another worker takes the job, or the same one again."""
    chapter: Count | None = None
    segment: Count | None = None
    """Index of a finished segment in its chapter."""
    of: Count | None = None
    """Segments of the whole job."""
    audio_ms: Milliseconds = 0.0
    """Of the job so far."""
    error: JobFailure | None = None


class JobControl(Request):
    """What to do with the job that the subject names."""

    type: Literal["status", "cancel", "retry"]


class JobStatus(BaseModel):
    """The answer to every control request: where the job stands after it."""

    model_config = EVENT_CONFIG
    type: Literal["job_status"] = "job_status"
    job: JobId
    state: JobState
    epoch: Count = 0
    attempt: Count = 0
    segments: Count = 0
    """Finished."""
    of: Count | None = None
    audio_ms: Milliseconds = 0.0
    error: JobFailure | None = None
