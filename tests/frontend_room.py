"""Text through the front end with the built-in voice's tokenizer, as strings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import engine
from engine.frontend.normaliser import Normaliser
from engine.frontend.stream import Piece, TextStream
from engine.frontend.tokenizer import Tokenizer

TOKENIZER = Tokenizer(Path(engine.__file__).parent / "builtin" / "tokenizer.model")
CAPITALS = Normaliser(letter_names={})
"""Letters by themselves stay capitals, which reads better in a test than "eff bee eye"."""
FLUSH = None


def stream(pronunciations: Mapping[str, str] | None = None, normaliser: Normaliser = CAPITALS) -> TextStream:
    return TextStream(normaliser, TOKENIZER, normaliser.pronunciations(pronunciations or {}))


def pieces_of(deltas: Iterable[str | None], text: TextStream | None = None) -> list[Piece]:
    """Everything that comes of the deltas (``FLUSH`` between them flushes) and of finish."""
    text = text or stream()
    pieces: list[Piece] = []
    for delta in deltas:
        pieces += text.flush() if delta is FLUSH else text.feed(delta)
        pieces += text.rest()
    pieces += text.finish()
    return pieces + text.rest()


def spoken(pieces: Iterable[Piece]) -> str:
    """Words as they are spoken, breaks as their length in frames: ``Wait [6] now.``"""
    return " ".join(piece.text or f"[{piece.entry.padding}]" for piece in pieces)


def said(*deltas: str | None, pronunciations: Mapping[str, str] | None = None) -> str:
    return spoken(pieces_of(deltas, stream(pronunciations)))
