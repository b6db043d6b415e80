"""One XHTML document of a book as paragraphs, cut where the table of contents points into it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from selectolax.lexbor import LexborHTMLParser, LexborNode

_EMPTY_ELEMENT = re.compile(r"""<([A-Za-z][\w:.-]*)((?:[^<>"']|"[^"<]*"|'[^'<]*')*)/>""")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VOID = _names("area base br col embed hr img input link meta param source track wbr")
_SILENT = _names("head script style nav rt rp rtc template svg math img audio video iframe object form button select")
_BLOCKS = _names(
    "address article aside blockquote body caption dd details div dl dt fieldset figcaption figure footer h1 h2 h3 h4"
    " h5 h6 header hgroup hr html li main ol p pre section summary table tbody tfoot thead tr ul"
)
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_NOTES = _names(
    "noteref pagebreak footnote footnotes endnote endnotes rearnote rearnotes toc landmarks page-list doc-noteref"
    " doc-pagebreak doc-footnote doc-endnote doc-endnotes doc-backlink doc-toc doc-pagelist"
)
_CLASSES = _names(
    "noteref footnote-ref footnoteref fnref pagenum pageno pagenumber page-number pagebreak footnote footnotes"
)
_MARKER = re.compile(r"\s*[\[(]?(?:\d{1,4}|[*†‡§¶]{1,3}|[a-z])[\])]?\s*")

_MARKER_NODES = 12
"""An element with more nodes is no marker; looking into all would be quadratic in the depth."""


@dataclass(slots=True)
class Piece:
    """``title`` is None for what comes before the first title of the document."""

    title: str | None
    heading: str = ""
    """The first heading inside."""
    paragraphs: list[str] = field(default_factory=list)


def pieces_of(markup: str, titles: Mapping[str, str]) -> list[Piece]:
    """``titles`` by fragment; the empty fragment is the document's beginning. Inline words keep their spaces."""
    tree = LexborHTMLParser(_EMPTY_ELEMENT.sub(_opened, markup))
    pieces = [Piece(titles.get(""))]
    words: list[str] = []
    heading = False
    for event, value in _events(tree.body):
        if event == "text":
            words.append(value)
            continue
        if event == "id":
            if value and value in titles:
                _close(pieces[-1], words, heading)
                pieces.append(Piece(titles[value]))
            continue
        _close(pieces[-1], words, heading)
        heading = event == "open" and value in _HEADINGS
    _close(pieces[-1], words, heading)
    return [piece for piece in pieces if piece.paragraphs or piece.title]


def _opened(match: re.Match[str]) -> str:
    """XHTML's ``<title/>`` is an unclosed element to an HTML parser, which would swallow the page."""
    return match[0] if match[1].lower() in _VOID else f"<{match[1]}{match[2]}></{match[1]}>"


def _close(piece: Piece, words: list[str], heading: bool) -> None:
    paragraph = " ".join("".join(words).split())
    words.clear()
    if paragraph:
        piece.paragraphs.append(paragraph)
        if heading and not piece.heading:
            piece.heading = paragraph


def _events(root: LexborNode | None) -> Iterator[tuple[str, str]]:
    """("text", words), ("id", fragment), ("open" or "shut", block's tag).

    Without recursion: a page may be nested deep.
    """
    stack: list[tuple[LexborNode | None, str]] = [(root, "")]
    while stack:
        node, shut = stack.pop()
        if node is None:
            if shut:
                yield "shut", shut
            continue
        if root is not None and node.mem_id != root.mem_id:
            stack.append((node.next, ""))
        if node.is_text_node:
            yield "text", node.text_content or ""
        elif node.is_element_node:
            tag = node.tag or ""
            yield "id", node.attributes.get("id") or (node.attributes.get("name") or "" if tag == "a" else "")
            if _silent(node, tag):
                continue
            if tag in ("br", "td", "th"):
                yield "text", " "
            if tag in _BLOCKS:
                yield "open", tag
                stack.append((None, tag))
            stack.append((node.first_child, ""))


def _silent(node: LexborNode, tag: str) -> bool:
    attributes = node.attributes
    kinds = f"{attributes.get('epub:type') or ''} {attributes.get('role') or ''}".lower().split()
    if tag in _SILENT or "hidden" in attributes or not _NOTES.isdisjoint(kinds):
        return True
    if tag in ("a", "span", "sup", "div", "aside") and not _CLASSES.isdisjoint((attributes.get("class") or "").split()):
        return True
    return _marks_a_note(node, tag)


def _marks_a_note(node: LexborNode, tag: str) -> bool:
    """``<sup><a href="#n1">1</a></sup>``, ``<a href="#n1"><sup>1</sup></a>`` and ``<a href="#n1">[1]</a>``."""
    if tag not in ("sup", "a") or len(list(islice(node.traverse(include_text=True), _MARKER_NODES))) == _MARKER_NODES:
        return False
    if tag == "sup":
        return node.css_first("a[href*='#']") is not None and bool(_MARKER.fullmatch(node.text() or ""))
    if tag != "a" or "#" not in (node.attributes.get("href") or ""):
        return False
    text = node.text() or ""
    bracketed = text.strip().startswith(("[", "*", "†", "‡"))
    return bool(_MARKER.fullmatch(text)) and (bracketed or node.css_first("sup") is not None)
