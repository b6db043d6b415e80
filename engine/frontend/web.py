"""E-mail addresses, URLs, host and file names, handles: a short spoken form, never sign by sign."""

from __future__ import annotations

import re

from engine.frontend.letters import spell_out, word_or_letters
from engine.frontend.lexicon import listed
from engine.frontend.numerals import cardinal, spell
from engine.frontend.words import DOTTED_LETTERS, Kind, Reading, View

MAX_LABELS = 8
"""Parts of a host or a local part that are spoken; the rest is left out."""

_TLDS = listed(
    "com org net edu gov mil int info biz name dev app shop store tech cloud online site website blog news media "
    "health bank museum travel jobs tel io ai co tv me uk us ca au nz ie de fr es it nl be ch at se no dk fi pl "
    "pt gr cz ro hu ru ua tr il ae in cn jp kr tw hk sg my th vn id ph za ng ke eg br mx ar cl pe eu xyz test "
    "example local"
)
_AS_WORDS = frozenset(("co", "me", "so", "to"))
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z]{2,}"
_EMAIL = re.compile(rf"(?:mailto:)?([\w.%+-]+)@({_HOST})")
_URL = re.compile(
    r"(?:(?:https?|wss?|ftp|nats)://)(?:[^/@\s]*@)?([\w.-]+)(?::(\d+))?(/[^?#]*)?([?#].*)?", re.IGNORECASE
)
_BARE = re.compile(rf"({_HOST})(?::(\d+))?(/[^?#]*)?([?#].*)?")
_ADDRESS = re.compile(rf"[a-z]://|www\.|[\w.]@[\w]|{_HOST}[/?#:]", re.IGNORECASE)
_FILE = re.compile(r"[\w-]+(?:\.[A-Za-z][A-Za-z0-9]{0,9})+")
_LINK = re.compile(r"([^\]]+)\]\(\S+")
_SERVICE = re.compile(r"(localhost|\d{1,3}(?:\.\d{1,3}){3}):(\d{1,5})")
_HANDLE = re.compile(r"([@#])([A-Za-z_][\w.-]*)")
_SEGMENT = re.compile(r"[A-Za-z][A-Za-z-]{1,24}")
_RUNS = re.compile(r"[A-Za-z]+|\d+|[-_+%]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SIGNS = {"-": "dash", "_": "underscore", "+": "plus", "%": "percent"}


def is_address(text: str) -> bool:
    """Whether a white-space word holds an address, inside which no sentence ends."""
    return _ADDRESS.search(text) is not None


def ends_domain(text: str) -> bool:
    """Whether a text ends with a known top-level domain: what follows is no part of the address."""
    return text.rpartition(".")[2].lower() in _TLDS


def read(view: View) -> Reading | None:
    core = view.core
    if link := _LINK.fullmatch(core):
        return Reading(_label(link[1]), kind=Kind.SILENT)
    if mail := _EMAIL.match(core):
        rest = _dotted(mail[1]) + " at " + _dotted(mail[2])
        return Reading(rest, kind=Kind.SILENT)
    if url := _URL.match(core) or _bare(core):
        return Reading(_address(url), kind=Kind.SILENT)
    if handle := _HANDLE.fullmatch(core):
        words = " ".join(_CAMEL.sub(" ", handle[2].replace("_", " ")).split()[:MAX_LABELS])
        return Reading(f"{'at' if handle[1] == '@' else 'hashtag'} {_dotted(words)}")
    if service := _SERVICE.fullmatch(core):
        return Reading(f"{_dotted(service[1])} port {spell(service[2])}")
    if _FILE.fullmatch(core) and not DOTTED_LETTERS.fullmatch(core):
        return Reading(_dotted(core))
    return None


def _bare(core: str) -> re.Match[str] | None:
    """A host name without a scheme: known top-level domain, or "www." before it."""
    found = _BARE.fullmatch(core)
    if found and (ends_domain(found[1]) or core.lower().startswith("www.")):
        return found
    return None


def _address(url: re.Match[str]) -> str:
    host = re.sub(r"^www\.", "", url[1], flags=re.IGNORECASE).strip(".")
    words = [_dotted(host)]
    if url[2]:
        words.append(f"port {spell(url[2])}")
    segments = [part for part in (url[3] or "").split("/") if part]
    if not url[4] and 1 <= len(segments) <= 2 and all(_SEGMENT.fullmatch(part) for part in segments):
        words += [f"slash {_label(part)}" for part in segments]
    return " ".join(words)


def _dotted(text: str) -> str:
    labels = [label for label in text.split(".") if label][:MAX_LABELS]
    words = [_label(label) for label in labels]
    if len(labels) > 1 and len(labels[-1]) == 2 and labels[-1].lower() not in _AS_WORDS:
        words[-1] = spell_out(labels[-1]) if labels[-1].isalpha() else words[-1]
    return " dot ".join(words)


def _label(label: str) -> str:
    return " ".join(_run(run) for word in label.split() for run in _RUNS.findall(word)[: 4 * MAX_LABELS])


def _run(run: str) -> str:
    if run.isdigit():
        return cardinal(int(run)) if len(run) <= 2 and not run.startswith("0") else spell(run)
    return _SIGNS.get(run) or word_or_letters(run)
