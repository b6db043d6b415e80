"""What every reader makes of its input: a book of chapters of paragraphs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from worker.jobs.errors import JobInputError

_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufeff]")


@dataclass(frozen=True, slots=True)
class BookLimits:
    """Checked before the work that they bound. ``entries`` counts a zip's or a directory's files."""

    file_bytes: int = 256 * 2**20
    entries: int = 10_000
    entry_bytes: int = 64 * 2**20
    unpacked_bytes: int = 512 * 2**20
    ratio: int = 100
    """Unpacked by packed size of an entry; English text packs to about 3, deflate ends at 1,032."""
    characters: int = 20_000_000


@dataclass(frozen=True, slots=True)
class Cover:
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Chapter:
    title: str
    """May be empty; never repeated at the start of ``text``."""
    text: str
    """Paragraphs separated by one blank line, each on one line."""


@dataclass(frozen=True, slots=True)
class Book:
    title: str
    authors: tuple[str, ...]
    language: str
    """A BCP 47 tag, empty if the source does not say."""
    cover: Cover | None
    chapters: tuple[Chapter, ...]

    @property
    def characters(self) -> int:
        return sum(len(chapter.title) + len(chapter.text) for chapter in self.chapters)

    @property
    def digest(self) -> str:
        """SHA-256 in hex over all that reaches the result, so that one changed word is another book (case C33)."""
        cover = [self.cover.media_type, hashlib.sha256(self.cover.data).hexdigest()] if self.cover else None
        chapters = [[chapter.title, chapter.text] for chapter in self.chapters]
        form = ["book", 1, self.title, list(self.authors), self.language, cover, chapters]
        return hashlib.sha256(json.dumps(form, separators=(",", ":")).encode()).hexdigest()


def one_line(text: str) -> str:
    return " ".join(_CONTROLS.sub("", text).split())


def chapter_of(title: str, paragraphs: Iterable[str]) -> Chapter:
    """Without empty paragraphs, and without the title where the text repeats it as its first paragraph."""
    title = one_line(title)
    kept = [line for line in map(one_line, paragraphs) if line]
    if kept and title and kept[0].casefold() == title.casefold():
        kept = kept[1:]
    return Chapter(title, "\n\n".join(kept))


def checked(book: Book, limits: BookLimits) -> Book:
    """Raises: JobInputError (empty, too_large)."""
    if not any(chapter.text for chapter in book.chapters):
        raise JobInputError("empty", "the book has no text")
    if book.characters > limits.characters:
        raise JobInputError("too_large", f"the book has {book.characters} characters, the limit is {limits.characters}")
    return book
