"""Books of every kind read as chapters of paragraphs, and hostile ones refused (cases C33 and C38)."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from worker.jobs.book import Book, BookLimits
from worker.jobs.errors import JobInputError
from worker.jobs.reading import read_bytes, read_path

PNG = b"\x89PNG\r\n\x1a\nrest"
CONTAINER = """<?xml version="1.0"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""
PACKAGE = """<?xml version="1.0"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="id">x</dc:identifier>
<dc:title>Salt &amp; Sea</dc:title><dc:creator>Ann Author</dc:creator><dc:creator>Bo Author</dc:creator>
<dc:language>en-GB</dc:language></metadata><manifest>
<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="cov" href="img/the%20cover.png" media-type="image/png" properties="cover-image"/>
<item id="one" href="text/one.xhtml" media-type="application/xhtml+xml"/>
<item id="two" href="text/two.xhtml" media-type="application/xhtml+xml"/></manifest>
<spine><itemref idref="nav"/><itemref idref="two"/><itemref idref="one"/></spine></package>"""
NAV = """<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"><body>
<nav epub:type="toc"><ol><li><a href="text/two.xhtml">The Sea</a></li><li><a href="text/one.xhtml">The Salt</a></li>
<li><a href="text/one.xhtml#more">More Salt</a></li></ol></nav></body></html>"""


def page(body: str) -> str:
    return (
        '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" '
        '"http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd"><html xmlns="http://www.w3.org/1999/xhtml" '
        f'xmlns:epub="http://www.idpf.org/2007/ops"><head><title/><script src="x"/></head><body>{body}</body></html>'
    )


def epub_of(pages: Mapping[str, str] | None = None, extra: Mapping[str, bytes | str] | None = None) -> bytes:
    entries: dict[str, bytes | str] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": CONTAINER,
        "OEBPS/content.opf": PACKAGE,
        "OEBPS/nav.xhtml": NAV,
        "OEBPS/img/the cover.png": PNG,
        "OEBPS/text/one.xhtml": page("<p>Salt one.</p>"),
        "OEBPS/text/two.xhtml": page("<p>Sea one.</p>"),
        **{f"OEBPS/text/{name}.xhtml": page(body) for name, body in (pages or {}).items()},
        **(extra or {}),
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in entries.items():
            target.writestr(name, data)
    return file.getvalue()


def spoken(body: str) -> list[str]:
    return read_bytes(epub_of({"two": body}), "a.epub").chapters[0].text.split("\n\n")


def titles(book: Book) -> list[str]:
    return [chapter.title for chapter in book.chapters]


def refusal(data: bytes, name: str = "a.epub", limits: BookLimits | None = None) -> str:
    with pytest.raises(JobInputError) as caught:
        read_bytes(data, name, limits)
    return caught.value.code


def test_an_epub_has_its_spines_order_its_contents_titles_and_its_metadata() -> None:
    book = read_bytes(epub_of({"one": '<h1>The Salt</h1><p>Before.</p><h2 id="more">More Salt</h2><p>After.</p>'}), "a")
    assert titles(book) == ["The Sea", "The Salt", "More Salt"]
    assert [chapter.text for chapter in book.chapters] == ["Sea one.", "Before.", "After."]
    assert (book.title, book.authors, book.language) == ("Salt & Sea", ("Ann Author", "Bo Author"), "en-GB")
    assert book.cover is not None
    assert (book.cover.media_type, book.cover.data) == ("image/png", PNG)


def test_a_document_without_an_entry_in_the_contents_goes_on_with_the_chapter_before() -> None:
    nav = NAV.replace('<li><a href="text/one.xhtml">The Salt</a></li>', "").replace("#more", "#none")
    book = read_bytes(epub_of(extra={"OEBPS/nav.xhtml": nav}))
    assert [(c.title, c.text) for c in book.chapters] == [("The Sea", "Sea one.\n\nSalt one.")]


@pytest.mark.parametrize(
    ("body", "paragraphs"),
    [
        ("<p>One <i>two</i> <b>three</b>,\n four.</p>", ["One two three, four."]),
        ("<p>un<i>bro</i>ken</p><p>next</p>", ["unbroken", "next"]),
        ("<div>loose<p>inner</p>tail</div>", ["loose", "inner", "tail"]),
        ("<p>line<br/>break</p><ul><li>a</li><li>b</li></ul>", ["line break", "a", "b"]),
        (
            '<p>Word<a epub:type="noteref" href="#n">1</a>.</p><aside epub:type="footnote" id="n">Note.</aside>',
            ["Word."],
        ),
        ('<p>Word<sup><a href="#n">12</a></sup>, <a href="#n">[3]</a>end</p>', ["Word, end"]),
        ('<p>E=mc<sup>2</sup> and <a href="#x">see it</a></p>', ["E=mc2 and see it"]),
        ("<p><ruby>kan<rp>(</rp><rt>read</rt><rp>)</rp></ruby>ji</p>", ["kanji"]),
        ('<p>a <span epub:type="pagebreak" title="7">7</span>b<span class="pagenum">8</span></p>', ["a b"]),
        (
            "<script>evil()</script><style>p{}</style><nav>menu</nav><p>x<a id='a'/>y &amp; z&#8212;</p>",
            ["xy & z\u2014"],
        ),
        ("<div>" * 3000 + "deep" + "</div>" * 3000, ["deep"]),
    ],
)
def test_what_of_a_page_is_spoken(body: str, paragraphs: list[str]) -> None:
    assert spoken(body) == paragraphs


ENTITY = '<!DOCTYPE html [<!ENTITY x SYSTEM "file:///etc/hostname">]><html><body><p>&x;</p></body></html>'


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ({"OEBPS/text/two.xhtml": ENTITY}, "unsafe_xml"),
        ({"OEBPS/text/two.xhtml": b"\xff\xfe" + ENTITY.encode("utf-16-le")}, "unsafe_xml"),
        ({"OEBPS/content.opf": ENTITY}, "unsafe_xml"),
        ({"META-INF/container.xml": ENTITY}, "unsafe_xml"),
        ({"../evil.xhtml": "x"}, "unsafe_path"),
        ({"/etc/evil": "x"}, "unsafe_path"),
        ({"a\\..\\..\\evil": "x"}, "unsafe_path"),
        ({"C:/evil": "x"}, "unsafe_path"),
        ({"OEBPS/bomb.xhtml": b"a" * 10_000_000}, "too_large"),
        ({"META-INF/container.xml": "<a/>"}, "bad_container"),
        ({"OEBPS/content.opf": "<a"}, "bad_container"),
        ({"OEBPS/text/two.xhtml": b"<html><body>caf\xe9</body></html>"}, "bad_encoding"),
    ],
)
def test_a_hostile_or_broken_epub_is_refused_by_its_kind(extra: Mapping[str, bytes | str], code: str) -> None:
    assert refusal(epub_of(extra=extra)) == code


@pytest.mark.parametrize(
    "limits",
    [
        BookLimits(entries=3),
        BookLimits(entry_bytes=50),
        BookLimits(unpacked_bytes=500),
        BookLimits(characters=10),
        BookLimits(file_bytes=100),
    ],
)
def test_every_size_is_capped(limits: BookLimits) -> None:
    assert refusal(epub_of(), limits=limits) == "too_large"


@pytest.mark.parametrize(
    ("algorithm", "code"),
    [("http://www.w3.org/2001/04/xmlenc#aes128-cbc", "encrypted"), ("http://www.idpf.org/2008/embedding", None)],
)
def test_drm_is_named_and_obfuscated_fonts_are_none(algorithm: str, code: str | None) -> None:
    xml = (
        '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
        '<e:EncryptedData xmlns:e="http://www.w3.org/2001/04/xmlenc#">'
        f'<e:EncryptionMethod Algorithm="{algorithm}"/></e:EncryptedData></encryption>'
    )
    data = epub_of(extra={"META-INF/encryption.xml": xml})
    assert refusal(data) == code if code else len(read_bytes(data).chapters) == 2


def test_plain_text_has_chapters_and_joined_lines() -> None:
    text = (
        "My Book\n\nContents\n\nChapter I\n\nCHAPTER 2: The End\n\n"
        "Chapter I\nThe Start\n\nA hard-\nwrapped line\ngoes on.\n\nChapter 12 was long.\n\n"
        "PART TWO\n\nCHAPTER 2: The End\n\nLast.\r\n\r\nEpilogue\r\n\r\nGone."
    )
    book = read_bytes(b"\xef\xbb\xbf" + text.encode(), "my_book.txt")
    assert book.title == "my book"
    assert titles(book)[:1] == ["my book"]
    assert [(c.title, c.text) for c in book.chapters][-3:] == [
        ("Chapter I: The Start", "A hard-wrapped line goes on.\n\nChapter 12 was long."),
        ("PART TWO, CHAPTER 2: The End", "Last."),
        ("Epilogue", "Gone."),
    ]


def test_text_without_headings_is_one_chapter_and_long_lines_are_paragraphs() -> None:
    long = "word " * 40
    book = read_bytes(f"{long}\n{long}".encode(), "x.txt")
    assert len(book.chapters) == 1
    assert book.chapters[0].text.count("\n\n") == 1


@pytest.mark.parametrize(
    ("data", "name", "code"),
    [
        (b"caf\xe9", "a.txt", "bad_encoding"),
        (b"a\0b", "a.txt", "unsupported"),
        (b"%PDF-1.7", "a", "unsupported"),
        (b"text", "a.docx", "unsupported"),
        (b" \n", "a.txt", "empty"),
        (b"# Only a heading", "a.md", "empty"),
        (b"no zip", "a.epub", "bad_container"),
    ],
)
def test_what_is_no_book_is_refused_without_quoting_it(data: bytes, name: str, code: str) -> None:
    assert refusal(data, name) == code


MARKDOWN = """---
title: "The Title"
authors: [Ann, 'Bo']
language: en
---
Opening.

# One

Some *emphasised* [link text](http://a.example/x) and <http://b.example> ![picture](c.png) &amp; `code`.

- first
- second
  line

```python
hidden()
```
<div>hidden</div>

## Sub

| a | b |
|---|---|
| c | d |

# Two

Last.
"""


def test_markdown_speaks_words_and_neither_code_nor_addresses() -> None:
    book = read_bytes(MARKDOWN.encode(), "x.md")
    assert (book.title, book.authors, book.language) == ("The Title", ("Ann", "Bo"), "en")
    assert titles(book) == ["The Title", "One", "Two"]
    assert book.chapters[1].text.split("\n\n") == [
        "Some emphasised link text and & code.",
        "first",
        "second line",
        "Sub",
        "a, b",
        "c, d",
    ]


def test_a_lone_first_heading_names_the_markdown_book() -> None:
    book = read_bytes(b"# Book\n\nHello.\n\n## One\n\nA.\n\n## Two\n\nB.", "x.md")
    assert book.title == "Book"
    assert titles(book) == ["Book", "One", "Two"]


def test_a_directory_is_read_in_natural_order_and_never_outside_of_itself(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    root = tmp_path / "book"
    (root / "sub").mkdir(parents=True)
    for name in ("10.txt", "2.txt", "1.md", "sub/a.txt", ".hidden.txt"):
        (root / name).write_text(f"text of {name}")
    (root / "cover.png").write_bytes(PNG)
    (root / "3.txt").symlink_to(tmp_path / "secret.txt")
    (root / "4").symlink_to(tmp_path)
    book = read_path(root)
    assert [chapter.text for chapter in book.chapters] == [
        f"text of {n}" for n in ("1.md", "2.txt", "10.txt", "sub/a.txt")
    ]
    assert book.title == "book"
    assert book.cover is not None
    for limits in (BookLimits(entries=3), BookLimits(characters=30), BookLimits(unpacked_bytes=20)):
        with pytest.raises(JobInputError) as caught:
            read_path(root, limits)
        assert caught.value.code == "too_large"


@pytest.mark.parametrize("path", ["/dev/zero", "/nowhere/at/all"])
def test_no_device_is_read_and_a_missing_file_has_the_same_error(path: str) -> None:
    with pytest.raises(JobInputError, match="no such file, or not a regular one") as caught:
        read_path(Path(path))
    assert caught.value.code == "unreadable"


def test_one_changed_word_changes_the_digest_and_the_same_book_does_not() -> None:
    book = read_bytes(epub_of())
    chapter = book.chapters[0]
    variants = [
        replace(book, chapters=(replace(chapter, text=chapter.text + "x"), *book.chapters[1:])),
        replace(book, chapters=(replace(chapter, title="x"), *book.chapters[1:])),
        replace(book, chapters=book.chapters[::-1]),
        replace(book, cover=None),
        replace(book, language="fr"),
    ]
    assert len({book.digest, *(variant.digest for variant in variants)}) == 6
    assert read_bytes(epub_of()).digest == book.digest
