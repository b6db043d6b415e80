"""Markdown: headings make chapters; code, HTML, images and addresses are not spoken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

from worker.jobs.book import Book, chapter_of, one_line

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.{0,20000}?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FIELD = re.compile(r"([A-Za-z_-]+)[ \t]*:[ \t]*(.*)")


@dataclass(frozen=True, slots=True)
class _Block:
    level: int
    """1 to 6 for a heading, 7 for a paragraph."""
    text: str


def read_markdown(text: str, title: str) -> Book:
    """``title`` stands where neither the front matter nor a lone first-level heading names the book."""
    match = _FRONT_MATTER.match(text)
    fields = _fields(match[1]) if match else {}
    blocks = list(_blocks(text[match.end() :] if match else text))
    levels = [block.level for block in blocks if block.level < 7]
    lone = levels.count(1) == 1 and levels[0] == 1 and 2 in levels
    named = next((block.text for block in blocks if block.level == 1), "") if lone else ""
    title = one_line(next(iter(fields.get("title", [])), "") or named or title)
    cut = 2 if lone else min(levels, default=7)
    sections: list[tuple[str, list[str]]] = [(title, [])]
    for block in blocks:
        if block.level == cut and cut < 7:
            sections.append((block.text, []))
        elif not (lone and block.level == 1):
            sections[-1][1].append(block.text)
    chapters = tuple(chapter for chapter in (chapter_of(t, b) for t, b in sections) if chapter.text)
    authors = tuple(fields.get("author", []) + fields.get("authors", []))
    return Book(title, authors, next(iter(fields.get("language", fields.get("lang", []))), ""), None, chapters)


def _fields(text: str) -> dict[str, list[str]]:
    """The part of YAML that front matter uses: scalars, ``[a, b]`` and lists of dashes."""
    fields: dict[str, list[str]] = {}
    values: list[str] = []
    for line in text.split("\n"):
        if match := _FIELD.fullmatch(line.rstrip()):
            values = fields.setdefault(match[1].lower(), [])
            value = match[2].strip()
            listed = value.startswith("[") and value.endswith("]")
            values += [_bare(part) for part in (value[1:-1].split(",") if listed else [value]) if _bare(part)]
        elif line.lstrip().startswith("- "):
            values.append(_bare(line.lstrip()[2:]))
    return fields


def _bare(value: str) -> str:
    value = one_line(value)
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _blocks(text: str) -> Iterator[_Block]:
    heading = 7
    row: list[str] | None = None
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "heading_open":
            heading = int(token.tag[1]) if token.level == 0 else 7
        elif token.type == "heading_close":
            heading = 7
        elif token.type == "tr_open":
            row = []
        elif token.type == "tr_close" and row is not None:
            yield _Block(7, ", ".join(cell for cell in row if cell))
            row = None
        elif token.type == "inline":
            spoken = one_line("".join(_inline(token.children or [])))
            if row is not None:
                row.append(spoken)
            elif spoken:
                yield _Block(heading, spoken)


def _inline(tokens: Sequence[Token]) -> Iterator[str]:
    address = False
    for token in tokens:
        if token.type == "link_open":
            address = token.markup == "autolink"
        elif token.type == "link_close":
            address = False
        elif token.type in ("softbreak", "hardbreak") or (
            token.type == "html_inline" and token.content.lower().startswith("<br")
        ):
            yield " "
        elif token.type in ("text", "code_inline", "text_special") and not address:
            yield token.content
