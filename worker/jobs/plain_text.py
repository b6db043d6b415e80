"""Plain text, hard-wrapped or not, with or without chapter headings."""

from __future__ import annotations

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE

from worker.jobs.book import Book, Chapter, chapter_of, one_line
from worker.jobs.errors import JobInputError

_WORDS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|\
eighteen|nineteen|twenty|thirty|forty|fifty|first|second|third|last|the"
_NUMBER = rf"(?:\d{{1,4}}|[ivxlc]{{1,8}}|(?:{_WORDS})(?:[ -][a-z]{{3,9}})?)"
_HEADING = re.compile(
    rf"(?:chapter|part|book|volume|section|letter|canto|act|scene)[ ]{{1,3}}{_NUMBER}"
    r"(?:\.?|[ ]?[.:–—-][ ](?P<title>.+))"
    r"|(?:prologue|epilogue|preface|foreword|introduction|afterword|appendix|interlude)\.?",
    re.IGNORECASE,
)
_LONGEST_HEADING = 120
_LONGEST_TITLE = 80
_BROKEN_WORD = re.compile(r"(?<=[^\W\d_])-\n(?=[^\W\d_])")
_WRAP = 120
"""Characters; a longer line is no hard-wrapped one."""


def decoded(data: bytes) -> str:
    """Text with ``\\n`` line ends; UTF-8, or UTF-16 with its mark.

    Raises: JobInputError (bad_encoding, unsupported).
    """
    try:
        text = data.decode("utf-16" if data.startswith((BOM_UTF16_BE, BOM_UTF16_LE)) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise JobInputError("bad_encoding", f"not valid UTF-8 at byte {error.start}") from None
    if "\0" in text:
        raise JobInputError("unsupported", "not a text: it holds zero bytes")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\f", "\n\n").replace("\u2029", "\n\n").replace("\u2028", "\n").replace("\x85", "\n")


def read_plain_text(text: str, title: str) -> Book:
    """``title`` is the book's, and the title of what comes before the first heading."""
    lines = [line.rstrip() for line in text.split("\n")]
    sections: list[tuple[str, list[str]]] = [(title, [])]
    number = 0
    while number < len(lines):
        heading, used = _heading_at(lines, number)
        if heading:
            sections.append((heading, []))
        else:
            sections[-1][1].append(lines[number])
        number += used
    return Book(one_line(title), (), "", None, tuple(_merged([chapter_of(t, paragraphs(b)) for t, b in sections])))


def _heading_at(lines: list[str], number: int) -> tuple[str, int]:
    """The heading's text, or an empty one, and how many lines it takes.

    A heading stands between blank lines; a short line right under a bare "CHAPTER I." is its title.
    """
    line = lines[number].strip()
    if len(line) > _LONGEST_HEADING or (number and lines[number - 1]):
        return "", 1
    match = _HEADING.fullmatch(line)
    if match is None:
        return "", 1
    below = [*lines[number + 1 : number + 3], "", ""][:2]
    if not below[0]:
        return line, 1
    if match["title"] is None and not below[1] and len(below[0]) <= _LONGEST_TITLE:
        return f"{line.rstrip('.')}: {below[0].strip()}", 2
    return "", 1


def _merged(chapters: list[Chapter]) -> list[Chapter]:
    """Drops a table of contents; "PART ONE" with nothing under it goes in front of the next chapter's title."""
    later: set[str] = set()
    kept: list[Chapter] = []
    for number, chapter in reversed(list(enumerate(chapters))):
        title = chapter.title.rstrip(".")
        if chapter.text:
            kept.append(chapter)
        elif number and kept and title.casefold() not in later:
            kept[-1] = Chapter(f"{title}, {kept[-1].title}", kept[-1].text)
        later |= {title.casefold(), title.casefold().partition(":")[0]}
    return kept[::-1]


def paragraphs(lines: list[str]) -> list[str]:
    """Joins hard-wrapped lines. A hyphen at a line's end stays, as only the writer knows its kind, and takes no space.

    Without any blank line, lines longer than a wrapped one are paragraphs themselves.
    """
    filled = [line.strip() for line in lines if line.strip()]
    if len(filled) > 1 and "" not in "\n".join(lines).strip().split("\n") and max(map(len, filled)) > _WRAP:
        return filled
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line.strip())
        elif blocks[-1]:
            blocks.append([])
    return [_joined(block) for block in blocks]


def _joined(block: list[str]) -> str:
    text = "\n".join(block)
    return _BROKEN_WORD.sub("-", text).replace("\n", " ")
