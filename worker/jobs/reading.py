"""Picks a reader by content and suffix, for a file, bytes (standard input) or a directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePath

from worker.jobs.book import Book, BookLimits, Chapter, Cover, checked
from worker.jobs.epub import read_epub
from worker.jobs.errors import JobInputError
from worker.jobs.markdown import read_markdown
from worker.jobs.plain_text import decoded, read_plain_text

_MARKDOWN = frozenset({".md", ".markdown"})
_TEXT = frozenset({".txt", ".text"})
_OTHER = frozenset(
    {".pdf", ".doc", ".docx", ".odt", ".rtf", ".mobi", ".azw", ".azw3", ".html", ".htm", ".xhtml", ".zip"}
)
_COVERS = {".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png"}


def read_bytes(data: bytes, name: str = "", limits: BookLimits | None = None) -> Book:
    """``name`` is a file's name: its suffix helps to pick the reader, its stem is the title of last resort.

    Raises: JobInputError.
    """
    limits = limits or BookLimits()
    if len(data) > limits.file_bytes:
        raise JobInputError("too_large", f"the file is larger than {limits.file_bytes} bytes")
    suffix = PurePath(name).suffix.lower()
    title = re.sub(r"[_\s]+", " ", PurePath(name).stem).strip()
    if data.startswith(b"PK\x03\x04") or suffix == ".epub":
        return checked(read_epub(data, title, limits), limits)
    if suffix in _OTHER or data.startswith((b"%PDF-", b"{\\rtf")):
        raise JobInputError("unsupported", "a book is plain text, Markdown, EPUB or a directory of these")
    text = decoded(data)
    if len(text) > limits.characters:
        raise JobInputError("too_large", f"the text has {len(text)} characters, the limit is {limits.characters}")
    read = read_markdown if suffix in _MARKDOWN else read_plain_text
    return checked(read(text, title), limits)


def read_path(path: Path, limits: BookLimits | None = None) -> Book:
    """A file or a directory. Blocks. Raises: JobInputError."""
    limits = limits or BookLimits()
    if path.is_dir():
        return _read_directory(path, limits)
    return read_bytes(_content(path, limits), path.name, limits)


def _content(path: Path, limits: BookLimits) -> bytes:
    """Reads one byte past the limit at most, and only a regular file: a device may never end (case C38)."""
    try:
        if not path.is_file():
            raise JobInputError("unreadable", "no such file, or not a regular one")
        with path.open("rb") as file:
            return file.read(limits.file_bytes + 1)
    except OSError as error:
        raise JobInputError("unreadable", f"the file cannot be read: {os.strerror(error.errno or 0)}") from None


def _read_directory(root: Path, limits: BookLimits) -> Book:
    """Files in natural order ("2" before "10"), each one or more chapters; others than books are passed over."""
    chapters: list[Chapter] = []
    whole = Book(root.resolve().name, (), "", None, ())
    room = limits.characters
    unpacked = limits.unpacked_bytes
    for path in _files(root, limits):
        if path.stem.lower() == "cover" and path.suffix.lower() in _COVERS:
            whole = replace(whole, cover=Cover(_COVERS[path.suffix.lower()], _content(path, limits)))
            continue
        if path.suffix.lower() not in _MARKDOWN | _TEXT | {".epub"}:
            continue
        unpacked -= path.stat().st_size
        if unpacked < 0:
            raise JobInputError("too_large", f"the directory's files exceed {limits.unpacked_bytes} bytes")
        book = read_bytes(_content(path, limits), path.name, replace(limits, characters=max(room, 0)))
        room -= book.characters
        chapters += book.chapters
        authors, language = whole.authors or book.authors, whole.language or book.language
        whole = replace(whole, authors=authors, language=language, cover=whole.cover or book.cover)
    return checked(replace(whole, chapters=tuple(chapters)), limits)


def _files(root: Path, limits: BookLimits) -> list[Path]:
    found: list[Path] = []
    for path in _walked(root, root.resolve()):
        found.append(path)
        if len(found) > limits.entries:
            raise JobInputError("too_large", f"the directory has more than {limits.entries} files")
    return sorted(found, key=lambda path: [_natural(part) for part in path.relative_to(root).parts])


def _walked(root: Path, real: Path) -> Iterator[Path]:
    """Hidden files are passed over, and a link that leads outside is not followed (case C38)."""
    for folder, folders, names in os.walk(root, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(folder, name)
            if not name.startswith(".") and path.is_file() and path.resolve().is_relative_to(real):
                yield path


def _natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    parts = re.findall(r"[0-9]+|[^0-9]+", name.casefold())
    return [(0, int(p[:18]), "") if p[0].isdecimal() and p.isascii() else (1, 0, p) for p in parts], name
