"""Letters and digits mixed: seats, flights, models, chemical formulas, serial numbers, hashes."""

from __future__ import annotations

import re

from engine.frontend.letters import spell_out, word_or_letters
from engine.frontend.numerals import cardinal, pairs, spell, year
from engine.frontend.words import Kind, Reading, View

_MIXED = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9]+")
_HYPHENED = re.compile(r"(?=.*\d)(?=.*[A-Z])[A-Z0-9]+(?:-[A-Z0-9]+)+")
_HEX = re.compile(r"(?=.*\d)(?:0x)?[0-9a-fA-F]{4,}(?:-[0-9a-fA-F]{4,})+")
_SCAN_LINES = re.compile(r"([1-9]\d{2,3})([pi])")
_DATED = re.compile(r"([A-Z]{2,4})((?:19|20)\d\d)")
_ZONE = re.compile(r"(UTC|GMT)([-+])(\d{1,2})")
_RUN = re.compile(r"[A-Za-z]+|\d+")
_MOST_RUNS = 6
_LONGEST = 16
"""Characters; what is longer, or changes more often, is no name but a string of characters."""
_GROUP = 4


def read(view: View) -> Reading | None:
    core = view.core
    if zone := _ZONE.fullmatch(core):
        return Reading(f"{spell_out(zone[1])} {'plus' if zone[2] == '+' else 'minus'} {cardinal(int(zone[3]))}")
    if _HEX.fullmatch(core):
        return Reading(", ".join(_characters(part) for part in core.split("-")), kind=Kind.SPELLED)
    if _HYPHENED.fullmatch(core):
        parts = core.split("-")
        return Reading((", " if len(parts) > 2 else " ").join(_runs(part) for part in parts))
    if _MIXED.fullmatch(core):
        if len(core) > _LONGEST or len(_RUN.findall(core)) > _MOST_RUNS:
            return string(core)
        return Reading(_runs(core))
    return None


def string(core: str) -> Reading:
    """Character by character in groups of four."""
    groups = (core[at : at + _GROUP] for at in range(0, len(core), _GROUP))
    return Reading(", ".join(_characters(group) for group in groups), kind=Kind.SPELLED)


def _characters(text: str) -> str:
    return " ".join(spell(char) if char.isdigit() else char.upper() for char in text if char.isalnum())


def _runs(core: str) -> str:
    if scan_lines := _SCAN_LINES.fullmatch(core):
        return f"{pairs(int(scan_lines[1]))} {scan_lines[2].upper()}"
    if dated := _DATED.fullmatch(core):
        return f"{spell_out(dated[1])} {year(int(dated[2]))}"
    return " ".join(_digits(run) if run.isdigit() else _letters(run) for run in _RUN.findall(core))


def _letters(run: str) -> str:
    return spell_out(run) if len(run) <= 2 else word_or_letters(run)


def _digits(run: str) -> str:
    if run.startswith("0") or len(run) > 3:
        return spell(run)
    return pairs(int(run)) if len(run) == 3 else cardinal(int(run))
