from __future__ import annotations

import random

import pytest

from worker.cli.command import CommandError
from worker.cli.dialogue import Dialogue

TEXT = "Hello there.\n[2] And [1] you?\n[2]  Well.\n\n[1]\nFine\n[2]x\n[ no\n[10 no\n[1"
TURNS = [
    (0, "Hello there.\n"),
    (1, "And [1] you?\nWell.\n\n"),
    (0, "\nFine\n"),
    (1, "x\n[ no\n[10 no\n[1"),
]


def turns(text: str, cuts: list[int], voices: int = 2) -> list[tuple[int | None, str]]:
    dialogue = Dialogue(voices)
    out: list[tuple[int | None, str]] = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        for speaker, part in dialogue.take(text[start:end]):
            out.append((speaker, part))
    out += dialogue.take("", last=True)
    joined: list[tuple[int | None, str]] = []
    for speaker, part in out:
        if joined and joined[-1][0] == speaker:
            part = joined.pop()[1] + part
        joined.append((speaker, part))
    return joined


def test_marks_are_found_wherever_the_text_is_cut() -> None:
    assert turns(TEXT, []) == TURNS
    assert turns(TEXT, list(range(1, len(TEXT)))) == TURNS
    rng = random.Random(1)
    for _ in range(100):
        assert turns(TEXT, sorted(rng.sample(range(len(TEXT)), 6))) == TURNS


def test_for_one_voice_marks_are_text() -> None:
    assert turns(TEXT, [20], voices=1) == [(None, TEXT)]


@pytest.mark.parametrize("mark", ["[0]", "[3]", "[77]"])
def test_a_voice_that_there_is_not(mark: str) -> None:
    with pytest.raises(CommandError, match=r"line 2: \["):
        turns(f"Hello.\n{mark} Hello?", [])
