"""Formats by their names, and by the endings of file names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from worker.wire.offer import FORMATS

Format = Literal["wav", "opus", "pcm_s16le", "pcm_f32le", "mulaw", "alaw"]

ENDINGS: Mapping[str, Format] = {
    ".wav": "wav",
    ".wave": "wav",
    ".opus": "opus",
    ".ogg": "opus",
    ".oga": "opus",
    ".raw": "pcm_s16le",
    ".pcm": "pcm_s16le",
    ".s16": "pcm_s16le",
    ".f32": "pcm_f32le",
    ".ul": "mulaw",
    ".ulaw": "mulaw",
    ".mulaw": "mulaw",
    ".al": "alaw",
    ".alaw": "alaw",
}
"""The first of each format is the usual one."""
CONTAINERS: tuple[Format, ...] = ("wav", "opus")
BARE: tuple[str, ...] = (".raw", ".pcm")
"""Endings that promise samples without a header, of whatever kind."""


def by_ending(name: str) -> Format | None:
    return ENDINGS.get(Path(name).suffix.lower())


def usual_ending(form: Format) -> str:
    return next(ending for ending, known in ENDINGS.items() if known == form)


def usual_rate(form: Format) -> int:
    """24 kHz if the format has it."""
    rates = FORMATS[form]
    return 24_000 if 24_000 in rates else rates[0]


def clash(form: Format, name: str) -> str | None:
    """Why a file of this name should not hold the format; None if it may."""
    promised, ending = by_ending(name), Path(name).suffix.lower()
    if promised in (None, form) or (ending in BARE and form not in CONTAINERS):
        return None
    return f"a {ending} file holds {promised}, not {form}"
