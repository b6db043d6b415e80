"""EPUB 2 and 3: the spine's order, the table of contents' titles, no notes, no page numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fast_ebook import ITEM_COVER, epub

from worker.jobs.book import Book, BookLimits, Cover, chapter_of, one_line
from worker.jobs.container import Container, Titles, resolved
from worker.jobs.errors import JobInputError
from worker.jobs.page import Piece, pieces_of

_COVER = re.compile(rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|GIF8[79]a|RIFF....WEBP", re.DOTALL)


@dataclass(slots=True)
class _Draft:
    title: str
    paragraphs: list[str]


def read_epub(data: bytes, title: str, limits: BookLimits) -> Book:
    """``title`` stands where the metadata has none.

    Raises: JobInputError (bad_container, unsafe_path, unsafe_xml, too_large, encrypted, bad_encoding).
    """
    container = Container(data, limits)
    package = container.package_path()
    copy = container.plain_copy(package)
    try:
        source = epub.read_epub(copy)
    except (ValueError, KeyError, OSError, RuntimeError):
        raise JobInputError("bad_container", "the EPUB's package document cannot be read") from None
    titles = _titles(source.toc, package)
    named = next(iter(_metadata(source, "title")), title)
    chapters = (chapter_of(draft.title, draft.paragraphs) for draft in _drafts(container, source, package, titles))
    return Book(
        one_line(named),
        tuple(_metadata(source, "creator")),
        next(iter(_metadata(source, "language")), ""),
        _cover(container, source, package),
        tuple(chapter for chapter in chapters if chapter.text),
    )


def _metadata(source: Any, name: str) -> list[str]:
    return [value for value in (one_line(text) for text, _ in source.get_metadata("DC", name)) if value]


def _titles(entries: Iterable[Any], package: str) -> Titles:
    """The first title of each place; where a part and its first chapter share one, both."""
    titles: dict[str, dict[str, str]] = {}
    stack = list(reversed(list(entries)))
    while stack:
        entry = stack.pop()
        place, _, fragment = entry.href.partition("#")
        if place:
            titles.setdefault(resolved(package, place), {}).setdefault(fragment, one_line(entry.title))
        stack.extend(reversed(list(entry.children)))
    return titles


def _drafts(container: Container, source: Any, package: str, titles: Titles) -> list[_Draft]:
    """A document that no title points into goes on with the chapter before it, if there is a table of contents."""
    drafts: list[_Draft] = []
    for identifier, linear in source.get_spine():
        item = source.get_item_with_id(identifier) if linear else None
        path = resolved(package, item.get_name()) if item else ""
        markup = container.markup(path) if item and "html" in item.get_media_type() else None
        for piece in pieces_of(markup, titles.get(path, {})) if markup is not None else ():
            _append(drafts, piece, contents=bool(titles))
    return drafts


def _append(drafts: list[_Draft], piece: Piece, contents: bool) -> None:
    if piece.title is None and contents and drafts:
        drafts[-1].paragraphs += piece.paragraphs
    else:
        drafts.append(_Draft(piece.title or piece.heading, piece.paragraphs))


def _cover(container: Container, source: Any, package: str) -> Cover | None:
    for item in source.get_items_of_type(ITEM_COVER):
        data = container.read(resolved(package, item.get_name()))
        if data and _COVER.match(data):
            return Cover(item.get_media_type(), data)
    return None
