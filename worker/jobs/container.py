"""An EPUB's zip, judged by its directory before any entry is read (case C38)."""

from __future__ import annotations

import codecs
import io
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import unquote
from xml.etree import ElementTree

from worker.jobs.book import BookLimits
from worker.jobs.errors import JobInputError

_SMALL = 64 * 1024
"""Bytes; a smaller entry may pack as well as it likes."""
_ENCODINGS = frozenset({"utf-8", "utf-16", "iso8859-1", "cp1252", "ascii"})
_DECLARED = re.compile(rb"""<\?xml[^>]{0,80}?encoding=["']([A-Za-z0-9._-]{1,20})["']""")
_DECLARATION = re.compile(r"\s*<\?xml[^>]{0,200}\?>")
_DOCTYPE = re.compile(r"<!DOCTYPE[^<>\[]*>", re.IGNORECASE)
_UNSAFE = re.compile(r"<!ENTITY|<!DOCTYPE(?![^<>\[]*>)", re.IGNORECASE)
_FONT_OBFUSCATION = frozenset({"http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"})
_MARKUP = frozenset({".xml", ".opf", ".ncx", ".xhtml", ".html", ".htm"})
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, OverflowError, RuntimeError, IndexError)


class Container:
    """Entries by their path. Nothing is ever written to a disk, and no path leaves the zip."""

    def __init__(self, data: bytes, limits: BookLimits) -> None:
        """Raises: JobInputError (bad_container, unsafe_path, too_large, encrypted)."""
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except _BROKEN:
            raise JobInputError("bad_container", "not a whole zip file") from None
        self._entries = {entry.filename: entry for entry in self._zip.infolist()}
        _judge(self._zip.infolist(), limits)
        self._refuse_drm()

    def read(self, path: str) -> bytes | None:
        entry = self._entries.get(path) or self._entries.get(unquote(path))
        if entry is None or entry.is_dir():
            return None
        try:
            return self._zip.read(entry)
        except _BROKEN:
            raise JobInputError("bad_container", "an entry of the EPUB is damaged") from None

    def markup(self, path: str) -> str | None:
        data = self.read(path)
        return None if data is None else safe_markup(data)

    def package_path(self) -> str:
        """Where the OPF lies."""
        text = self.markup("META-INF/container.xml")
        if text is None:
            raise JobInputError("bad_container", "a zip file, but not an EPUB: no META-INF/container.xml")
        for element in _parsed(text).iter():
            if element.tag.endswith("rootfile") and (path := element.get("full-path")):
                return path
        raise JobInputError("bad_container", "the EPUB names no package document")

    def plain_copy(self, package: str) -> bytes:
        """A new zip of what was judged: markup in UTF-8 without a DTD, every other entry empty.

        So the parser behind it sees neither a bomb nor an entity, whatever its own reading of the zip would be.
        """
        copy = io.BytesIO()
        with zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as target:
            for path in self._entries:
                suffix = PurePosixPath(path).suffix.lower()
                text = self.markup(path) if path == package or suffix in _MARKUP else None
                target.writestr(zipfile.ZipInfo(path), (text or "").encode("utf-8", "replace"))
        return copy.getvalue()

    def _refuse_drm(self) -> None:
        text = self.markup("META-INF/encryption.xml")
        if text is None:
            return
        methods = [e.get("Algorithm", "") for e in _parsed(text).iter() if e.tag.endswith("}EncryptionMethod")]
        if "EncryptedData" in text and (not methods or not _FONT_OBFUSCATION.issuperset(methods)):
            raise JobInputError("encrypted", "the EPUB is protected by DRM and cannot be read")


def _judge(entries: list[zipfile.ZipInfo], limits: BookLimits) -> None:
    if len(entries) > limits.entries:
        raise JobInputError("too_large", f"the EPUB has {len(entries)} entries, the limit is {limits.entries}")
    if len({entry.filename for entry in entries}) < len(entries):
        raise JobInputError("bad_container", "the EPUB holds two entries of one name")
    for entry in entries:
        parts = entry.filename.replace("\\", "/").split("/")
        if not parts[0] or ".." in parts or ":" in parts[0]:
            raise JobInputError("unsafe_path", "an entry of the EPUB would lie outside it")
        if entry.flag_bits & 1:
            raise JobInputError("encrypted", "the EPUB is encrypted with a password")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise JobInputError("bad_container", "an EPUB's entries are stored or deflated")
        if entry.file_size > limits.entry_bytes:
            raise JobInputError("too_large", f"an entry of the EPUB unpacks to {entry.file_size} bytes")
        if entry.file_size > max(_SMALL, limits.ratio * entry.compress_size):
            raise JobInputError("too_large", f"an entry of the EPUB unpacks to over {limits.ratio} times its size")
    if (total := sum(entry.file_size for entry in entries)) > limits.unpacked_bytes:
        raise JobInputError("too_large", f"the EPUB unpacks to {total} bytes, the limit is {limits.unpacked_bytes}")


def safe_markup(data: bytes) -> str:
    """Decoded, without the XML declaration and a bare DOCTYPE, whose address is never fetched.

    Raises: JobInputError (bad_encoding; unsafe_xml for an entity or a DTD of its own).
    """
    declared = _DECLARED.search(data[:200])
    name = declared[1].decode().lower() if declared else "utf-8"
    if data.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)):
        name = "utf-16"
    try:
        name = codecs.lookup(name).name
        if name not in _ENCODINGS:
            raise JobInputError("bad_encoding", "a document of the EPUB has an encoding that is not read")
        text = data.decode("utf-8-sig" if name == "utf-8" else name)
    except (LookupError, UnicodeDecodeError):
        raise JobInputError("bad_encoding", "a document of the EPUB is not in the encoding that it declares") from None
    if _UNSAFE.search(text):
        raise JobInputError("unsafe_xml", "a document of the EPUB declares entities or a DTD")
    return _DOCTYPE.sub("", _DECLARATION.sub("", text, count=1))


def _parsed(text: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError):
        raise JobInputError("bad_container", "the EPUB's container is not well-formed XML") from None


def resolved(base: str, reference: str) -> str:
    """``reference`` without its fragment, relative to the folder of ``base``, both inside the zip."""
    parts: list[str] = []
    for part in (PurePosixPath(base).parent / unquote(reference.partition("#")[0])).parts:
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
    return "/".join(parts)


Titles = Mapping[str, Mapping[str, str]]
"""By document and fragment (an empty one is the document's beginning)."""
