"""Turns of a dialogue: the first word of each bears the token of its speaker (moshi ``models/tts.py``
``script_to_entries``). Models that hear voices were trained so; there are two tokens, for however many voices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from engine.contract import Entry

TURN_TOKENS = (1, 2)
"""moshi ``TokenIds.main`` and ``other``: the speakers in turn."""


def mark_turn(entry: Entry, turn: int) -> Entry:
    """A turn's first word with the token of the speaker before it; ``turn`` counts from 0.

    The token takes a step of its own: padding that was made for the word's length grows with it.
    """
    assert entry.is_word, "a break begins no turn"
    padding = entry.padding + 1 if entry.padding else 0
    return dataclasses.replace(entry, tokens=(TURN_TOKENS[turn % len(TURN_TOKENS)], *entry.tokens), padding=padding)


def is_marked(entry: Entry) -> bool:
    return entry.tokens[:1] in tuple((token,) for token in TURN_TOKENS)


def script(turns: Sequence[Iterable[Entry]]) -> list[Entry]:
    """The turns of two speakers as one text. A turn without words is skipped, and the speaker's next turn follows."""
    out: list[Entry] = []
    last = None
    for index, turn in enumerate(turns):
        fresh = True
        for entry in turn:
            speaker = index % len(TURN_TOKENS)
            if fresh and entry.is_word:
                fresh = False
                if speaker != last:
                    last, entry = speaker, mark_turn(entry, index)
            out.append(entry)
    return out
