"""Turns of a dialogue are marked as moshi marks them, and spoken as moshi speaks them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor

pytest.importorskip("moshi")

from moshi.models.tts import TokenIds, script_to_entries

from engine.contract import Entry
from engine.loading import BUILTIN
from engine.turns import Turns
from tests.parity import tiny_checkpoints as tiny
from tests.parity.test_checkpoints import TOLERANCE, Case, Spoken, begin, follow, load

pytestmark = pytest.mark.usefixtures("one_torch_thread")

SCRIPTS = (
    ["Hello there, I am first."],
    ["Hello there.", 'And I am second <break time="0.4s"/> after a pause.', "Me again."],
    ["", "The other one begins.", "Then me."],
    ["One.", "", "The same speaker goes on."],
    ["One.", '<break time="1s"/>', "Nobody spoke between."],
    ["I am one,", "I am two,", "I am three,", "I am four,", "and I am five.", "", "", "Three again."],
)
TEXT_CARD = 2048


def tokenizer() -> SentencePieceProcessor:
    return SentencePieceProcessor(str(BUILTIN / "tokenizer.model"))


def reference(lines: Sequence[str], padding_between: int, multi_speaker: bool = True) -> list[Entry]:
    made = script_to_entries(tokenizer(), TokenIds(TEXT_CARD + 1), 12.5, lines, multi_speaker, padding_between)
    return [Entry(tuple(entry.tokens), entry.padding) for entry in made]


def ours(lines: Sequence[str], padding_between: int) -> list[Entry]:
    """As a worker hands them to the engine: the speaker of each, no marks."""
    turns = (reference([line], padding_between, multi_speaker=False) for line in lines)
    return [Entry(entry.tokens, entry.padding, speaker) for speaker, turn in enumerate(turns) for entry in turn]


def bare(entries: Iterable[Entry]) -> list[Entry]:
    return [Entry(entry.tokens, entry.padding) for entry in entries]


@pytest.mark.parametrize("lines", SCRIPTS, ids=range(len(SCRIPTS)))
@pytest.mark.parametrize("padding_between", [0, 1])
def test_marks_are_those_of_the_reference(lines: list[str], padding_between: int) -> None:
    turns = Turns()
    entries = ours(lines, padding_between)
    marked = [*turns.marked(entries[:3]), *turns.marked(entries[3:])]
    assert bare(marked) == reference(lines, padding_between)


def test_two_and_five_speakers_speak_as_the_reference(tmp_path: Path) -> None:
    """Every token and logit, of moshi's own script."""
    raw = tiny.published(text_card=TEXT_CARD, tts_config={"audio_delay": 0.4, "second_stream_ahead": 2})
    tiny.write_checkpoint(tmp_path, raw, seed=8)
    rows, names = [], []
    for lines, padding_between in ((["It is me.", "And me.", "Me."], 1), (["A one", "a two", "a b", "c", "and d."], 0)):
        own = tuple(f"v{len(lines)}-{n}" for n in range(2 if len(lines) == 3 else 5))
        paths = tuple(tiny.write_voice(tmp_path / "voices", name, seed) for seed, name in enumerate(own))
        # Of three turns the last is the first speaker's again.
        entries = tuple(Entry(e.tokens, e.padding, e.speaker % len(own)) for e in ours(lines, padding_between))
        rows.append(tiny.Row(entries, paths, 2.0, script=tuple(reference(lines, padding_between))))
        names.append(own)
    spoken = Spoken(Case("script", cfg=(2.0, 2.0)), tmp_path, rows, names, tiny.generate(tmp_path, raw, rows))
    assert None not in spoken.record.end_steps
    engine = load(spoken)
    begin(engine, spoken, [0, 2])
    worst, _ties = follow(engine, spoken, [0, 2])
    assert worst <= TOLERANCE
