"""Times of day."""

from __future__ import annotations

import re

from engine.frontend.numerals import cardinal
from engine.frontend.words import Reading, View

_MERIDIEM = r"([ap])\.?m"
_TIME = re.compile(rf"(\d{{1,2}}):(\d\d)(?::(\d\d))?(?:\.\d+)?(?:{_MERIDIEM})?", re.IGNORECASE)
_HOUR = re.compile(rf"(\d{{1,2}}){_MERIDIEM}", re.IGNORECASE)
_BARE_HOUR = re.compile(r"\d{1,2}")
_RANGE = re.compile(r"([\d:]+(?:[ap]\.?m)?)-([\d:]+(?:[ap]\.?m)?)", re.IGNORECASE)
_MERIDIEM_WORD = re.compile(_MERIDIEM, re.IGNORECASE)


def read(view: View) -> Reading | None:
    half = _meridiem(view.next)
    if half and (spoken := _point(view.core, half)):
        return Reading(spoken, taken=2)
    if spoken := _point(view.core, ""):
        return Reading(spoken)
    if span := _RANGE.fullmatch(view.core):
        return _span(span[1], span[2], half)
    return None


def spoken_time(text: str) -> str:
    """A time by the 24-hour clock: "14:05", "14:05:30"."""
    found = _TIME.fullmatch(text)
    assert found is not None
    return _say(int(found[1]), int(found[2]), int(found[3] or 0), "")


def _meridiem(core: str) -> str:
    found = _MERIDIEM_WORD.fullmatch(core)
    return found[1].upper() if found else ""


def _point(text: str, half: str) -> str | None:
    """One time, or None if it is none. ``half``: "A" or "P" written as a word of its own after it."""
    if found := _TIME.fullmatch(text):
        hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
        if hour > 24 or minute > 59 or second > 59:
            return None
        return _say(hour, minute, second, half or (found[4] or "").upper())
    if (found := _HOUR.fullmatch(text)) and int(found[1]) <= 12:
        return _say(int(found[1]), 0, 0, found[2].upper())
    if half and _BARE_HOUR.fullmatch(text) and int(text) <= 12:
        return _say(int(text), 0, 0, half)
    return None


def _say(hour: int, minute: int, second: int, half: str) -> str:
    words = [cardinal(hour)]
    if minute:
        words.append(f"oh {cardinal(minute)}" if minute < 10 else cardinal(minute))
    elif not half:
        words = ["midnight"] if hour == 0 else [*words, "o'clock" if hour <= 12 else "hundred"]
    if second:
        words.append(f"and {cardinal(second)} {'second' if second == 1 else 'seconds'}")
    if half:
        words.append(f"{half} M")
    return " ".join(words)


def _span(first: str, second: str, half: str) -> Reading | None:
    """As in "9am-5pm", "9-11:30 am", "14:00-15:30"; bare numbers only if one side shows that they are hours."""
    end = _point(second, half)
    if end is None:
        return None
    start = _point(first, "")
    if start is None and _BARE_HOUR.fullmatch(first):
        start = cardinal(int(first))
    return Reading(f"{start} to {end}", taken=2 if half else 1) if start else None
