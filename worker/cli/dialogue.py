"""A text for several voices: a line that begins with ``[2]`` is the second voice's, and so is what follows it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from worker.cli.command import CommandError

_MARK = re.compile(r"\[([0-9]+)\][^\S\n]*")
_PERHAPS = re.compile(r"\[?|\[[0-9]{1,2}|\[[0-9]+\][^\S\n]*")

Turn = tuple[int | None, str]
"""Speaker, from 0 on (None: there is one voice), and text."""


class Dialogue:
    """Takes the text in pieces, cut anywhere. Of one voice, marks are text."""

    def __init__(self, voices: int) -> None:
        self._voices = voices
        self._speaker = 0
        self._held = ""
        """The beginning of a line that may be a mark."""
        self._at_start = True
        self._line = 1

    def take(self, piece: str, *, last: bool = False) -> Iterator[Turn]:
        """``last``: no more will come. Raises CommandError for the mark of a voice that there is not."""
        if self._voices < 2:
            yield None, piece
            return
        for line in (self._held + piece).splitlines(keepends=True):
            self._held = ""
            if self._at_start and not last and _PERHAPS.fullmatch(line):
                self._held = line
                return
            if self._at_start and (mark := _MARK.match(line)):
                self._speaker = self._known(int(mark[1]))
                line = line[mark.end() :]
            self._at_start = line.endswith("\n")
            self._line += self._at_start
            if line:
                yield self._speaker, line

    def _known(self, number: int) -> int:
        if not 1 <= number <= self._voices:
            raise CommandError(f"line {self._line}: [{number}], but --voice names {self._voices} voices")
        return number - 1
