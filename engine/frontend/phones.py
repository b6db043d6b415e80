"""Telephone, card and other long numbers in groups: digit by digit, a short pause between groups."""

from __future__ import annotations

import re

from engine.frontend import quantities
from engine.frontend.numerals import spell
from engine.frontend.words import Kind, Reading, View

_NATIONAL = re.compile(r"(?:\+?(\d{1,3})[-.])?\(?(\d{3})\)?[-.]?(\d{3})[-.](\d{4})")
_LOCAL = re.compile(r"(\d{3})[-.](\d{4})")
_GROUPS = re.compile(r"\+?\d+(?:-\d+){2,}")
_MNEMONIC = re.compile(r"(?:(1)-)?(8\d\d)-([A-Z]{4,})")
_INTERNATIONAL = re.compile(r"\+\d{7,15}")
_COUNTRY = re.compile(r"\+\d{1,3}")
_GROUP = re.compile(r"\d{2,4}|\d{3,4}-\d{3,4}")


def read(view: View) -> Reading | None:
    core = view.core
    if found := _MNEMONIC.fullmatch(core):
        country = "one, " if found[1] else ""
        return Reading(f"{country}{_group(found[2])}, {found[3].lower()}")
    if found := _NATIONAL.fullmatch(core) or _LOCAL.fullmatch(core):
        return _groups([group for group in found.groups() if group], core.startswith("+"))
    if _GROUPS.fullmatch(core):
        return _groups(core.lstrip("+").split("-"), core.startswith("+"))
    if _INTERNATIONAL.fullmatch(core):
        digits = core[1:]
        return _groups([digits[at : at + 3] for at in range(0, len(digits), 3)], True)
    return _apart(view)


def _apart(view: View) -> Reading | None:
    """Groups written as words of their own: the first one shows by itself or by its neighbours what they are."""
    core, following = view.core, view.next
    more = "," if _GROUP.fullmatch(following) else ""
    if view.context.kind is Kind.DIGITS and _GROUP.fullmatch(core):
        return Reading(", ".join(_group(part) for part in core.split("-")) + more, kind=Kind.DIGITS)
    if _begins(view):
        plus = "plus " if core.startswith("+") else ""
        return Reading(f"{plus}{_group(core)}{more}", kind=Kind.DIGITS)
    return None


def _begins(view: View) -> bool:
    core, following, after = view.core, view.next, view.after
    if not _GROUP.fullmatch(following):
        return False
    if _COUNTRY.fullmatch(core):
        return True
    if not re.fullmatch(r"\d{1,4}", core):
        return False
    if (view.words[0].bracketed and len(core) == 3) or quantities.is_code(view):
        return True
    grouped = (len(core), len(following), len(after)) in ((3, 3, 4), (1, 3, 3), (4, 4, 4)) and after.isdigit()
    return grouped or (core.startswith("0") and len(core) >= 3)


def _groups(groups: list[str], plus: bool) -> Reading:
    return Reading(("plus " if plus else "") + ", ".join(_group(group) for group in groups))


def _group(digits: str) -> str:
    return "eight hundred" if digits == "800" else spell(digits)
