"""Whatever the bytes, reading gives a book or a JobInputError (case C38)."""

from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.jobs.book import Book
from worker.jobs.errors import JobInputError
from worker.jobs.reading import read_bytes

NAMES = st.sampled_from(["", "a.txt", "a.md", "a.epub"])
CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="p.opf"/></rootfiles></container>'
)
OPF = (
    '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata/><manifest><item id="c" href="c.xhtml" '
    'media-type="application/xhtml+xml"/></manifest><spine><itemref idref="c"/></spine></package>'
)


def packed(page: str | bytes, package: str | bytes = OPF, compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as target:
        target.writestr("META-INF/container.xml", CONTAINER)
        target.writestr("p.opf", package)
        target.writestr("c.xhtml", page)
    return file.getvalue()


WHOLE = packed("<html><body><h1>Title</h1><p>Some words.</p></body></html>")


def sound(data: bytes, name: str) -> Book | None:
    try:
        book = read_bytes(data, name)
    except JobInputError as error:
        return None if error.code else pytest.fail("no code")
    assert any(chapter.text for chapter in book.chapters)
    for chapter in book.chapters:
        paragraphs = chapter.text.split("\n\n")
        assert all(paragraph == " ".join(paragraph.split()) for paragraph in paragraphs)
    return book


def test_the_whole_epub_is_a_book() -> None:
    book = sound(WHOLE, "a.epub")
    assert book is not None
    assert book.chapters[0].text == "Some words."


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode()), NAMES)
def test_random_bytes(data: bytes, name: str) -> None:
    sound(data, name)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(WHOLE) - 1))
def test_truncated_zips(end: int) -> None:
    assert sound(WHOLE[:end], "a.epub") is None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes(changes: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE)
    for place, value in changes:
        data[place] = value
    sound(bytes(data), "a.epub")


MARKS = """<p> </p> <div/> <script> <table><td> <svg> <nav> <sup><a/></sup> <![CDATA[ ]]> <!-- &#xD800; &#0; words
<body> </html> <template> <a/href='#'> <p/a=" < />"""
PARTS = st.sampled_from(MARKS.split())


@settings(max_examples=150, deadline=None)
@given(st.lists(PARTS, max_size=25), st.sampled_from(["page", "package", "a.md"]))
def test_scrambled_markup(parts: list[str], place: str) -> None:
    text = "".join(parts)
    if place == "a.md":
        sound(text.encode(), place)
    else:
        sound(packed(text) if place == "page" else packed("<p>x</p>", text + OPF), "a.epub")
