"""Numbers that are no date, time, money or measure: ordinals, fractions, ranges, percentages, versions, counts."""

from __future__ import annotations

import itertools
import re

from engine.frontend.dates import long_decade
from engine.frontend.lexicon import listed
from engine.frontend.numerals import NUMBER, cardinal, fraction, is_number, mixed, number, ordinal, pairs, signed, spell
from engine.frontend.words import Reading, View

_ORDINAL = re.compile(r"(\d{1,3}(?:,\d{3})*|\d+)(?:st|nd|rd|th)s?", re.IGNORECASE)
_FRACTION = re.compile(r"(\d{1,6})/(\d{1,6})")
_RANGE = re.compile(rf"({NUMBER})-({NUMBER})")
_PERCENT = re.compile(rf"([-+]?)({NUMBER})(?:-({NUMBER}))?%")
_SIGNED = re.compile(rf"([-+±~≈<>]|<=|>=|≤|≥)({NUMBER})")
_DOTTED = re.compile(r"\d+(?:\.\d+){2,}")
_VERSION = re.compile(r"(?:v\.?|V(?=\d+\.))(\d+(?:\.\d+)*)")
_RATIO = re.compile(r"(\d{1,4}):(\d{1,4})")
_DIMENSIONS = re.compile(rf"{NUMBER}(?:[x×]{NUMBER})+")
_MULTIPLE = re.compile(rf"({NUMBER})[xX×]")
_SCALED = re.compile(rf"({NUMBER})(k|K|M|mn|bn|Bn|B|tn)")
_MIXED = re.compile(r"(\d+)-(\d+)/(\d+)")
_PLUS = re.compile(rf"({NUMBER})\+")
_SCIENTIFIC = re.compile(rf"([-+]?{NUMBER})[eE]([-+]?\d{{1,4}})")
_HASH = re.compile(r"#(\d+)")
_PLURAL = re.compile(r"(\d{2,4})'?s")
_SCALES = {
    "k": "K",
    "K": "K",
    "M": "million",
    "mn": "million",
    "bn": "billion",
    "Bn": "billion",
    "B": "billion",
    "tn": "trillion",
}
_SIGNS = {
    "-": "minus",
    "+": "plus",
    "±": "plus or minus",
    "~": "about",
    "≈": "about",
    "<": "less than",
    ">": "greater than",
    "<=": "at most",
    "≤": "at most",
    ">=": "at least",
    "≥": "at least",
}
_FIXED = {
    "24/7": "twenty four seven",
    "24x7": "twenty four seven",
    "9/11": "nine eleven",
    "007": "double oh seven",
    "7-Eleven": "seven eleven",
    "3D": "three D",
}
_BETWEEN = {"x": "times", "X": "times", "\u00d7": "times", "/": "divided by", "\u00f7": "divided by"}
_CODED = listed(
    "order account ticket reference ref tracking confirmation invoice case policy claim card serial zip postcode "
    "booking reservation number passcode password isbn routing badge license licence passport member customer "
    "shipment parcel transaction receipt"
)
_SHORT_CODED = listed("code pin id otp extension ext cvv")
_PLACED = listed("apt apartment seat row gate unit room suite terminal platform class bus building block door size")
_STATES = listed(
    "al ak az ar ca ct dc fl ga ia il ks ky md mn mo ms mt nc nd ne nh nj nm nv ny ri sc sd tn tx ut va vt wa wi wv wy"
)
_LINKS = listed("is was number no in id code with # are")
_PAIRED = listed("room flight route highway interstate suite apartment apt bus gate hwy boeing area building")
_STREETS = listed("st street ave avenue rd road blvd boulevard dr drive lane ln court ct way place pl")
_SECTIONED = listed("section sections version chapter clause article paragraph step release")


def read(view: View) -> Reading | None:
    if view.core in _FIXED:
        return Reading(_FIXED[view.core])
    if view.core in _BETWEEN and view.context.last[-1:].isdigit() and view.next[:1].isdigit():
        return Reading(_BETWEEN[view.core])
    return _fraction(view) or _compound(view) or _bare(view)


def _fraction(view: View) -> Reading | None:
    core = view.core
    if core.isdigit() and (part := _FRACTION.fullmatch(view.next)) and 0 < int(part[1]) < int(part[2]) <= 100:
        return Reading(mixed(core, int(part[1]), int(part[2])), taken=2)
    if (joined := _MIXED.fullmatch(core)) and 0 < int(joined[2]) < int(joined[3]) <= 100:
        return Reading(mixed(joined[1], int(joined[2]), int(joined[3])))
    found = _FRACTION.fullmatch(core)
    if found is None:
        return None
    above, below = int(found[1]), int(found[2])
    if above == below:
        return Reading(f"{cardinal(above)} {cardinal(below)}")
    if view.context.last == "bp" or (above >= 70 and 30 <= below < above):
        return Reading(f"{_blood_pressure(above)} over {_blood_pressure(below)}")
    if below in (10, 100) and 1 < above < below:
        return Reading(f"{cardinal(above)} out of {cardinal(below)}")
    if 0 < above < below and (below <= 20 or below in (32, 64)):
        return Reading(fraction(above, below))
    return Reading(f"{cardinal(above)} over {cardinal(below)}")


def _blood_pressure(value: int) -> str:
    return pairs(value) if 100 < value < 1000 else cardinal(value)


def _compound(view: View) -> Reading | None:
    """One word with a number and a sign or suffix to it."""
    core = view.core
    if found := _ORDINAL.fullmatch(core):
        plural = "s" if core[-1] == "s" else ""
        return Reading(ordinal(int(found[1].replace(",", ""))) + plural) if len(found[1]) < 16 else None
    if percent := _percent(view):
        return percent
    if found := _SIGNED.fullmatch(core):
        return Reading(f"{_SIGNS[found[1]]} {number(found[2])}")
    if found := _HASH.fullmatch(core):
        return Reading(f"number {spell(found[1]) if len(found[1]) > 3 else number(found[1])}")
    if found := _VERSION.fullmatch(core):
        return Reading(f"version {_dotted(found[1], 'point')}")
    if found := _SCIENTIFIC.fullmatch(core):
        return Reading(f"{signed(found[1])} times ten to the {signed(found[2])}")
    if _DOTTED.fullmatch(core):
        return Reading(_dotted_number(view))
    if found := _RANGE.fullmatch(core):
        if found[1] == found[2]:
            return Reading(f"{number(found[1])} {number(found[2])}")
        if _is_grouped_code(found[1], found[2]):
            return Reading(f"{spell(found[1])}, {spell(found[2])}")
        return Reading(f"{number(found[1])} to {number(found[2])}")
    if found := _RATIO.fullmatch(core):
        return Reading(f"{number(found[1])} to {number(found[2])}")
    return _multiple(view)


def _multiple(view: View) -> Reading | None:
    core = view.core
    if _DIMENSIONS.fullmatch(core):
        return Reading(" by ".join(_side(side) for side in re.split("[x×]", core)))
    if found := _MULTIPLE.fullmatch(core):
        return Reading(f"{number(found[1])} times")
    if (found := _SCALED.fullmatch(core)) and view.context.last not in _PLACED:
        return Reading(f"{number(found[1])} {_SCALES[found[2]]}")
    if found := _PLUS.fullmatch(core):
        return Reading(f"{number(found[1])} plus")
    if (found := _PLURAL.fullmatch(core)) and found[1].endswith("0") and len(found[1]) > 2:
        digits = found[1]
        return Reading(long_decade(digits) if len(digits) == 4 else f"{cardinal(int(digits))}s")
    return None


def _side(text: str) -> str:
    return pairs(int(text)) if len(text) == 4 and text.isdigit() else number(text)


def _percent(view: View) -> Reading | None:
    core, taken = view.core, 1
    if view.next == "%":
        core, taken = f"{core}%", 2
    found = _PERCENT.fullmatch(core)
    if found is None:
        return None
    upper = f" to {number(found[3])}" if found[3] else ""
    return Reading(f"{signed(found[1] + found[2])}{upper} percent", taken=taken)


def _dotted_number(view: View) -> str:
    parts = view.core.split(".")
    address = len(parts) == 4 and all(len(part) <= 3 and int(part) < 256 for part in parts)
    if address and view.context.last not in _SECTIONED:
        return " dot ".join(cardinal(int(part)) if len(part) < 3 else spell(part) for part in parts)
    return _dotted(view.core, "point")


def _dotted(text: str, sign: str) -> str:
    return f" {sign} ".join(number(part) for part in text.split("."))


def _bare(view: View) -> Reading | None:
    """A number alone: said as a code after words that announce one, else as a count."""
    core = view.core
    if not is_number(core):
        return None
    if core.isdigit():
        if is_code(view) or (len(core) > 6 and not core.endswith("000")):
            return Reading(_grouped(core))
        if 3 <= len(core) <= 4 and core[0] != "0" and (view.context.last in _PAIRED or _is_house(view)):
            return Reading(pairs(int(core)))
    return Reading(number(core))


def is_code(view: View) -> bool:
    core, last, before = view.core, view.context.last, view.context.before
    if view.context.titled and last in _STATES and len(core) == 5:
        return True
    announced = {last, before} if last in _LINKS else {last}
    if announced & _SHORT_CODED:
        return len(core) >= 3
    ending = last in ("in", "with") and before in ("ending", "ends", "end")
    return len(core) >= 4 and (bool(announced & _CODED) or ending or last in ("ending", "four"))


def _is_house(view: View) -> bool:
    return view.next[:1].isupper() and view.after.lower() in _STREETS


def _is_grouped_code(first: str, second: str) -> bool:
    """Two groups of a code ("12345-678"), no range: a range's ends rise."""
    return first.isdigit() and second.isdigit() and len(first) >= 4 and int(first) > int(second)


def _grouped(digits: str) -> str:
    """Digit by digit, from nine digits on with a short pause after each third or fourth."""
    if len(digits) < 9:
        return spell(digits)
    size = 4 if len(digits) % 4 in (0, 3) else 3
    cuts = [*range(0, len(digits) - 1, size), len(digits)]
    return ", ".join(spell(digits[start:end]) for start, end in itertools.pairwise(cuts))
