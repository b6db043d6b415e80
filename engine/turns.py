"""Turns of a dialogue: the first word of each bears the token of its speaker (moshi ``models/tts.py``
``script_to_entries``). Models that hear voices were trained so; there are two tokens, for however many voices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from engine.contract import Entry

TURN_TOKENS = (1, 2)
"""moshi ``TokenIds.main`` and ``other``: the speakers in turn."""


class Turns:
    """Marks one generation's entries. A turn without words is no turn; where the speaker changes to one with the same
    token, nothing is marked, as in the reference."""

    def __init__(self, last: int | None = None) -> None:
        """last: who has spoken before; None: nobody."""
        self._last = None if last is None else last % len(TURN_TOKENS)
        """Whose token came last."""

    def marked(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        for entry in entries:
            speaker = entry.speaker % len(TURN_TOKENS)
            if entry.is_word and speaker != self._last:
                self._last = speaker
                entry = _marked(entry, TURN_TOKENS[speaker])
            yield entry


def _marked(entry: Entry, token: int) -> Entry:
    """The token takes a step of its own: padding that was made for the word's length grows with it."""
    padding = entry.padding + 1 if entry.padding else 0
    return dataclasses.replace(entry, tokens=(token, *entry.tokens), padding=padding)
