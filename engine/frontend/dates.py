"""Dates, months, years and decades."""

from __future__ import annotations

import re

from engine.frontend.clock import spoken_time
from engine.frontend.lexicon import listed, ordered
from engine.frontend.numerals import cardinal, ordinal, spell, year
from engine.frontend.words import Kind, Reading, View

_MONTH_NAMES = ordered("January February March April May June July August September October November December")
_DAY_NAMES = ordered("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = {key: name for name in _MONTH_NAMES for key in {name.lower(), name[:3].lower()}} | {"sept": "September"}
"""Full names by lower-case name and abbreviation."""
WEEKDAYS = {name[:3].lower(): name for name in _DAY_NAMES} | {
    "tues": "Tuesday",
    "thur": "Thursday",
    "thurs": "Thursday",
}

_ISO = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:T(\d\d:\d\d(?::\d\d)?)(?:\.\d+)?(Z|[+-]\d\d:?\d\d)?)?")
_NUMERIC = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})")
_SHORT = re.compile(r"(\d{1,2})/(\d{1,2})")
_DAY = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?")
_DAYS = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?-(\d{1,2})(?:st|nd|rd|th)?")
_DECADE = re.compile(r"'?(\d0)'?s")
_LONG_DECADE = re.compile(r"(\d{3}0)'?s")
_SHORT_YEAR = re.compile(r"'(\d\d)")
_YEARS_OWN = re.compile(r"(\d{4})'s")
_YEARS = re.compile(r"(\d{4})-(\d{4}|\d{2})")
_NAMED_SPAN = re.compile(r"([A-Z][A-Za-z]{2,4})-([A-Z][A-Za-z]{2,4})")
_ON = listed("on by until till due before after since from through dated between starting")
_BEFORE_YEAR = listed(
    "in since by from until till before after year during around circa early late mid summer spring winter fall "
    "autumn of copyright between through election season vintage born died founded"
)
_BEFORE_DECADE = listed("the her his their my your our early mid late")
_COUNTED = listed(
    "people miles dollars euros pounds years days hours minutes seconds meters metres feet times words units "
    "pieces points steps calories employees users customers children men women cases items pages copies members "
    "votes sheep percent apples tons kilometers kilometres students soldiers homes houses jobs workers residents "
    "passengers"
)
_YEAR_VERBS = listed("was is saw has had will marked brought began and to were")
_TENS = ordered("zeros tens twenties thirties forties fifties sixties seventies eighties nineties")


def read(view: View) -> Reading | None:
    if span := _named_span(view.core):
        return Reading(span)
    return _numeric(view) or _in_words(view) or _decade(view) or _plain_year(view)


def _numeric(view: View) -> Reading | None:
    core = view.core
    if (iso := _ISO.fullmatch(core)) and (date := _date(int(iso[2]), int(iso[3]), year(int(iso[1])))):
        if not iso[4]:
            return Reading(date)
        zone = " U T C" if iso[5] == "Z" else ""
        return Reading(f"{date}, {spoken_time(iso[4])}{zone}")
    if found := _NUMERIC.fullmatch(core):
        first, second = int(found[1]), int(found[3])
        if found[2] != "/" and len(found[4]) == 2:
            return None
        day_first = found[2] == "." or first > 12
        month, day = (second, first) if day_first else (first, second)
        date = _date(month, day, _year_of_date(found[4]))
        return Reading(date) if date else None
    if (short := _SHORT.fullmatch(core)) and view.context.last in _ON and (date := _date(int(short[1]), int(short[2]))):
        return Reading(date)
    return None


def is_span(core: str) -> bool:
    """Of weekdays or months: "Mon-Fri", "Jan-Mar"."""
    return _named_span(core) is not None


def _named_span(core: str) -> str | None:
    span = _NAMED_SPAN.fullmatch(core)
    if span is None:
        return None
    first, last = span[1].lower(), span[2].lower()
    for names in (WEEKDAYS, MONTHS):
        if first in names and last in names:
            return f"{names[first]} to {names[last]}"
    return None


def _date(month: int, day: int, spoken_year: str = "") -> str | None:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return f"{_MONTH_NAMES[month - 1]} {ordinal(day)}" + (f", {spoken_year}" if spoken_year else "")


def _year_of_date(digits: str) -> str:
    if len(digits) == 4:
        return year(int(digits))
    value = int(digits)
    return year(value + (2000 if value < 70 else 1900))


def _in_words(view: View) -> Reading | None:
    """Days beside a month's name, and the name itself."""
    core, context = view.core, view.context
    if core.istitle() and core.lower() in MONTHS and (len(core) != 3 or core == "May" or re.match(r"\d", view.next)):
        return Reading(MONTHS[core.lower()], kind=Kind.MONTH)
    if context.kind is Kind.MONTH:
        if (day := _DAY.fullmatch(core)) and 1 <= int(day[1]) <= 31 and view.next.lower() not in _COUNTED:
            return Reading(ordinal(int(day[1])), kind=Kind.DAY)
        if days := _DAYS.fullmatch(core):
            return Reading(f"{ordinal(int(days[1]))} to {ordinal(int(days[2]))}", kind=Kind.DAY)
    if (day := _DAY.fullmatch(core)) and 1 <= int(day[1]) <= 31 and is_month(view.next):
        article = "" if context.last == "the" else "the "
        return Reading(f"{article}{ordinal(int(day[1]))} of")
    return None


def is_month(core: str) -> bool:
    return core.istitle() and core.lower() in MONTHS


def _decade(view: View) -> Reading | None:
    core = view.core
    if (found := _DECADE.fullmatch(core)) and (
        core[0] == "'" or view.context.last in _BEFORE_DECADE or core[-2] == "'"
    ):
        return Reading(_TENS[int(found[1][0])])
    if found := _LONG_DECADE.fullmatch(core):
        return Reading(long_decade(found[1]))
    if (found := _YEARS_OWN.fullmatch(core)) and _may_be_year(found[1]):
        return Reading(f"{year(int(found[1]))}'s")
    if found := _SHORT_YEAR.fullmatch(core):
        return Reading(f"oh {spell(found[1][1])}" if found[1][0] == "0" else cardinal(int(found[1])))
    if (found := _YEARS.fullmatch(core)) and _may_be_year(found[1]):
        first, second = int(found[1]), int(found[2])
        if len(found[2]) == 4 and not (_may_be_year(found[2]) and first < second):
            return None
        last = year(second) if len(found[2]) == 4 else f"oh {spell(found[2][1])}" if second < 10 else cardinal(second)
        return Reading(f"{year(first)} to {last}")
    return None


def long_decade(digits: str) -> str:
    """As in "nineteen nineties", "two thousands", "twenty tens"."""
    value = int(digits)
    if value % 100 == 0:
        return f"{year(value)}s"
    return f"{cardinal(value // 100)} {_TENS[value % 100 // 10]}"


def _may_be_year(digits: str) -> bool:
    return len(digits) == 4 and digits.isdigit() and 1100 <= int(digits) <= 2099


def _plain_year(view: View) -> Reading | None:
    """A bare number of four digits that the words around it make a year."""
    core, context = view.core, view.context
    if not (core.isdigit() and _may_be_year(core)):
        return None
    following = view.next.lower()
    if context.kind in (Kind.MONTH, Kind.DAY):
        return Reading(year(int(core)))
    if following in _COUNTED:
        return None
    modern = 1900 <= int(core) <= 2099
    paired = context.last in ("and", "to", "or", "through") and _may_be_year(context.before)
    announced = context.last in _BEFORE_YEAR or context.before in ("year", "copyright")
    alone = modern and (not following or context.last in ("the", "a", "this"))
    begins = not context.last and following in _YEAR_VERBS
    listed_before = _may_be_year(context.last) and not following
    return Reading(year(int(core))) if paired or announced or alone or begins or listed_before else None
