"""SentencePiece, one spoken word at a time."""

from __future__ import annotations

import string
from pathlib import Path

import sentencepiece

from engine.errors import CheckpointError

_CANDIDATES = string.ascii_letters + string.digits + string.punctuation


class Tokenizer:
    """Encodes a word with its punctuation by itself (the voice was trained on words encoded one by one). Thread-safe.

    Raises CheckpointError if the file is no SentencePiece model.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError) as error:
            raise CheckpointError(str(path), "not a SentencePiece model") from error
        self._unknown = int(self._model.unk_id())
        self.charset = frozenset(char for char in _CANDIDATES if self._unknown not in self._model.encode(char))
        """The ASCII characters, white space aside, that the model has pieces for."""

    def encode(self, word: str) -> tuple[int, ...]:
        """Ids without ``<unk>``, which the text machine would take for the end of the word."""
        return tuple(token for token in self._model.encode(word) if token != self._unknown)
