"""Turns of a dialogue are marked as moshi marks them."""

from __future__ import annotations

import pytest
from sentencepiece import SentencePieceProcessor

from engine.contract import Entry
from engine.loading import BUILTIN
from engine.turns import is_marked, mark_turn, script

SCRIPTS = (
    ["Hello there, I am first."],
    ["Hello there.", 'And I am second <break time="0.4s"/> after a pause.', "Me again."],
    ["", "The other one begins.", "Then me."],
    ["One.", "", "The same speaker goes on."],
)


@pytest.mark.parametrize("turns", SCRIPTS)
@pytest.mark.parametrize("padding_between", [0, 1])
def test_equal_to_the_reference(turns: list[str], padding_between: int) -> None:
    pytest.importorskip("moshi")
    from moshi.models.tts import TokenIds, script_to_entries

    tokenizer = SentencePieceProcessor(str(BUILTIN / "tokenizer.model"))

    def entries(marked: bool, lines: list[str]) -> list[Entry]:
        made = script_to_entries(tokenizer, TokenIds(2049), 12.5, lines, marked, padding_between)
        return [Entry(tuple(entry.tokens), entry.padding) for entry in made]

    assert script([entries(False, [line]) for line in turns]) == entries(True, turns)


def test_a_mark_is_known() -> None:
    word = Entry((7, 8), 2)
    assert not is_marked(word)
    assert is_marked(mark_turn(word, 3))
    assert mark_turn(word, 3) == Entry((2, 7, 8), 3)
    assert not is_marked(Entry((), 4))
