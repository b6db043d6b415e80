"""The one tag of SSML that the front end knows: ``<break time="0.5s"/>`` and its variants.

Source: W3C Speech Synthesis Markup Language 1.1, section 3.2.3; the reference (moshi ``models/tts.py``,
``script_to_entries``) takes ``time="..s"`` alone.
"""

from __future__ import annotations

import re

LONGEST_S = 10.0
"""A longer break is cut to this, and so are several with no word between them."""
MAX_TAG_CHARS = 120

_OPENINGS = ("<break", "</break")
_TAG = re.compile(r"<break((?:[ \t\r\n][^<>]*)?)/?>|</break[ \t\r\n]*>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"([a-z:]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'/]+))", re.IGNORECASE)
_TIME = re.compile(r"\+?(\d+(?:\.\d*)?|\.\d+)\s*(ms|s)", re.IGNORECASE)
_STRENGTHS_S = {"none": 0.0, "x-weak": 0.1, "weak": 0.2, "medium": 0.4, "strong": 0.7, "x-strong": 1.0}


def match(text: str, position: int) -> tuple[int, float] | None:
    """The tag that begins at ``position``: (its end, seconds, uncapped), or None if none does. ``</break>`` is 0 s."""
    found = _TAG.match(text, position, position + MAX_TAG_CHARS)
    if found is None:
        return None
    if found[1] is None:
        return found.end(), 0.0
    seconds = _seconds(found[1].rstrip("/"))
    return None if seconds is None else (found.end(), seconds)


def may_begin(text: str, position: int) -> bool:
    """Whether more text could complete a tag that begins with the "<" at ``position``."""
    rest = text[position : position + MAX_TAG_CHARS + 1].lower()
    if len(rest) > MAX_TAG_CHARS or ">" in rest or "<" in rest[1:]:
        return False
    if any(opening.startswith(rest) for opening in _OPENINGS):
        return True
    return any(rest.startswith(opening) and rest[len(opening)] in "/ \t\r\n" for opening in _OPENINGS)


def _seconds(attributes: str) -> float | None:
    """Length asked for by a tag's attributes; None if they are not a break's."""
    values = {found[1].lower(): found[2] or found[3] or found[4] or "" for found in _ATTRIBUTE.finditer(attributes)}
    if _ATTRIBUTE.sub("", attributes).strip() or values.keys() - {"time", "strength"}:
        return None
    if "time" in values:
        time = _TIME.fullmatch(values["time"].strip())
        return None if time is None else float(time[1]) * (0.001 if time[2].lower() == "ms" else 1.0)
    return _STRENGTHS_S.get(values.get("strength", "medium").lower())
