"""The reference's measured figures (``reference_wer.json``), and what they allow us.

``tests/bench/reference_wer.py`` measures and writes them; a change of voice or sentences calls for a new run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.speech.scoring import WordErrors

HERE = Path(__file__).parent
SENTENCES = HERE / "sentences.txt"
FIGURES = HERE / "reference_wer.json"
VOICE = HERE.parents[1] / "engine" / "builtin"
VOICE_FILES = ("config.json", "model.safetensors", "codec.json", "codec.safetensors", "tokenizer.model")


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What the reference implementation scored with the voice and the sentences of these digests."""

    word_errors: WordErrors
    """Over all sentences and seeds."""
    first_word_text: str
    first_word: str
    first_word_heard: int
    """In how many of the trials the recogniser found ``first_word`` in the audio of ``first_word_text``."""
    first_word_trials: int
    voice_sha256: str
    sentences_sha256: str

    def allows(self, ours: WordErrors) -> bool:
        """At most 1.25 times the reference's word error rate, or two points above it."""
        reference = self.word_errors.rate
        return ours.rate <= max(1.25 * reference, reference + 0.02)


def load_yardstick(path: Path = FIGURES) -> Yardstick:
    figures = json.loads(path.read_text(encoding="utf-8"))
    total, first = figures["word_errors"], figures["first_word"]
    return Yardstick(
        word_errors=WordErrors(total["errors"], total["words"]),
        first_word_text=first["text"],
        first_word=first["word"],
        first_word_heard=first["heard"],
        first_word_trials=first["trials"],
        voice_sha256=figures["voice_sha256"],
        sentences_sha256=figures["sentences_sha256"],
    )


def read_sentences(path: Path = SENTENCES) -> list[str]:
    """One sentence a line."""
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def sentences_digest(sentences: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sentences).encode()).hexdigest()


def voice_digest(folder: Path = VOICE) -> str:
    """SHA-256 over the digests of the voice's files, in the order of ``VOICE_FILES``."""
    whole = hashlib.sha256()
    for name in VOICE_FILES:
        with (folder / name).open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()
