"""When each word is heard, as a file: JSON for programs, SubRip or WebVTT captions for players.

WebVTT: https://www.w3.org/TR/webvtt1/. SubRip has no standard; players agree on what is written here. Lines of at most
42 characters, two to a caption, and seven seconds are the usual limits (Netflix Timed Text Style Guide: English).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from worker.wire.events import Mark

LINE_CHARS = 42
CAPTION_CHARS = 2 * LINE_CHARS
CAPTION_MS = 7_000.0
PAUSE_MS = 700.0
"""A longer pause ends a caption."""
_CLOSERS = "\"')]}\u201d\u2019\u00bb*_"


@dataclass(frozen=True, slots=True)
class Caption:
    text: str
    start_ms: float
    end_ms: float


def settled(marks: Sequence[Mark], audio_ms: float) -> list[Mark]:
    """The marks with every end known: the next one's beginning, or the end of the audio."""
    if not marks:
        return []
    ends = [mark.start_ms for mark in marks[1:]] + [max(round(audio_ms, 3), marks[-1].start_ms)]
    return [
        mark if mark.end_ms is not None else mark.model_copy(update={"end_ms": end})
        for mark, end in zip(marks, ends, strict=True)
    ]


def captions(marks: Sequence[Mark]) -> Iterator[Caption]:
    """Of settled marks: whole sentences where they fit, never a word's part. The last word may take any time."""
    first = 0
    for index, (mark, following) in enumerate(pairwise(marks), 1):
        chars = len(" ".join(one.word for one in marks[first : index + 1]))
        full = chars > CAPTION_CHARS or following.start_ms - marks[first].start_ms >= CAPTION_MS
        if full or following.start_ms - _end(mark) >= PAUSE_MS or _ends_sentence(mark.word):
            yield _caption(marks[first:index])
            first = index
    if marks:
        yield _caption(marks[first:])


def as_json(marks: Sequence[Mark]) -> str:
    """A list with one mark a line."""
    lines = (mark.model_dump_json(exclude={"type"}) for mark in marks)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def as_srt(marks: Sequence[Mark]) -> str:
    return "".join(
        f"{number}\n{_clock(one.start_ms, ',')} --> {_clock(one.end_ms, ',')}\n{_arrowless(_wrapped(one.text))}\n\n"
        for number, one in enumerate(captions(marks), 1)
    )


def as_vtt(marks: Sequence[Mark]) -> str:
    cues = (
        f"\n{_clock(one.start_ms, '.')} --> {_clock(one.end_ms, '.')}\n{_escaped(_wrapped(one.text))}\n"
        for one in captions(marks)
    )
    return "WEBVTT\n" + "".join(cues)


KINDS: Mapping[str, Callable[[Sequence[Mark]], str]] = {".json": as_json, ".srt": as_srt, ".vtt": as_vtt}


def is_kind(name: str) -> bool:
    return Path(name).suffix.lower() in KINDS


def written(name: str, marks: Sequence[Mark], audio_ms: float) -> bytes:
    """What a file of that name holds. Raises KeyError if it is of no kind."""
    return KINDS[Path(name).suffix.lower()](settled(marks, audio_ms)).encode("utf-8")


def _end(mark: Mark) -> float:
    assert mark.end_ms is not None, "settled marks"
    return mark.end_ms


def _caption(marks: Sequence[Mark]) -> Caption:
    return Caption(" ".join(mark.word for mark in marks), marks[0].start_ms, _end(marks[-1]))


def _ends_sentence(word: str) -> bool:
    """As far as it matters for captions: "Mr." may end one."""
    return word.rstrip(_CLOSERS).endswith((".", "!", "?", "\u2026"))


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, LINE_CHARS, break_long_words=False, break_on_hyphens=False))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _arrowless(text: str) -> str:
    """An arrow would be taken for another caption's times."""
    return text.replace("-->", "->")


def _clock(ms: float, point: str) -> str:
    seconds, rest = divmod(round(ms), 1_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{point}{rest:03}"
