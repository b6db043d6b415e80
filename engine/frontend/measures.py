"""Numbers with units. The long tail of units is left to ``formulas``."""

from __future__ import annotations

import re

from engine.frontend.lexicon import listed
from engine.frontend.numerals import NUMBER, cardinal, number, signed
from engine.frontend.words import Reading, View

_UNITS = {
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "kmh": ("kilometer per hour", "kilometers per hour"),
    "kph": ("kilometer per hour", "kilometers per hour"),
    "mph": ("mile per hour", "miles per hour"),
    "m/s": ("meter per second", "meters per second"),
    "km": ("kilometer", "kilometers"),
    "m": ("meter", "meters"),
    "cm": ("centimeter", "centimeters"),
    "mm": ("millimeter", "millimeters"),
    "mi": ("mile", "miles"),
    "ft": ("foot", "feet"),
    "in": ("inch", "inches"),
    "yd": ("yard", "yards"),
    "kg": ("kilogram", "kilograms"),
    "g": ("gram", "grams"),
    "mg": ("milligram", "milligrams"),
    "lb": ("pound", "pounds"),
    "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "L": ("liter", "liters"),
    "l": ("liter", "liters"),
    "ml": ("milliliter", "milliliters"),
    "mL": ("milliliter", "milliliters"),
    "gal": ("gallon", "gallons"),
    "KB": ("kilobyte", "kilobytes"),
    "kB": ("kilobyte", "kilobytes"),
    "MB": ("megabyte", "megabytes"),
    "GB": ("gigabyte", "gigabytes"),
    "TB": ("terabyte", "terabytes"),
    "PB": ("petabyte", "petabytes"),
    "kbps": ("kilobit per second", "kilobits per second"),
    "Mbps": ("megabit per second", "megabits per second"),
    "Mb/s": ("megabit per second", "megabits per second"),
    "Gbps": ("gigabit per second", "gigabits per second"),
    "MB/s": ("megabyte per second", "megabytes per second"),
    "GB/s": ("gigabyte per second", "gigabytes per second"),
    "Hz": ("hertz", "hertz"),
    "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"),
    "GHz": ("gigahertz", "gigahertz"),
    "W": ("watt", "watts"),
    "kW": ("kilowatt", "kilowatts"),
    "MW": ("megawatt", "megawatts"),
    "kWh": ("kilowatt hour", "kilowatt hours"),
    "V": ("volt", "volts"),
    "mA": ("milliamp", "milliamps"),
    "mAh": ("milliamp hour", "milliamp hours"),
    "hp": ("horsepower", "horsepower"),
    "dB": ("decibel", "decibels"),
    "cal": ("calorie", "calories"),
    "kcal": ("kilocalorie", "kilocalories"),
    "ms": ("millisecond", "milliseconds"),
    "s": ("second", "seconds"),
    "sec": ("second", "seconds"),
    "secs": ("second", "seconds"),
    "min": ("minute", "minutes"),
    "mins": ("minute", "minutes"),
    "h": ("hour", "hours"),
    "hr": ("hour", "hours"),
    "hrs": ("hour", "hours"),
    "yr": ("year", "years"),
    "yrs": ("year", "years"),
    "mos": ("month", "months"),
    "fps": ("frame per second", "frames per second"),
    "rpm": ("R P M", "R P M"),
    "RPM": ("R P M", "R P M"),
    "dpi": ("D P I", "D P I"),
    "psi": ("P S I", "P S I"),
    "px": ("pixel", "pixels"),
    "MP": ("megapixel", "megapixels"),
    "pt": ("point", "points"),
    "pts": ("point", "points"),
    "°": ("degree", "degrees"),
    "°C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "°N": ("degree north", "degrees north"),
    "°S": ("degree south", "degrees south"),
    "°E": ("degree east", "degrees east"),
    "°W": ("degree west", "degrees west"),
    "sqft": ("square foot", "square feet"),
    "tbsp": ("tablespoon", "tablespoons"),
    "tsp": ("teaspoon", "teaspoons"),
}
_BY_THEMSELVES = listed("km/h mph m/s km cm mm kg GB MB TB KB kWh Mbps Gbps MB/s GB/s Hz kHz MHz GHz")
_POWERS = {"": "", "2": "square ", "3": "cubic "}
_NOT_APART = frozenset(("in", "s", "l", "m", "V", "W", "pt", "pts"))
"""Ambiguous as words of their own, unless a full stop shows that they are abbreviations."""
_QUANTITY = re.compile(rf"([-+]?)({NUMBER})(?:-({NUMBER}))?-?([A-Za-z°][A-Za-z°/]*(?:\^[23])?)")
_COUNT = re.compile(rf"([-+]?)({NUMBER})(?:-({NUMBER}))?")
_DURATION = re.compile(r"(\d{1,2})h(\d{1,2})(?:m|min)?")
_FEET = re.compile(r"(\d+)'(?:(\d+)(?:\"|'')?)?")


def read(view: View) -> Reading | None:
    if (span := _DURATION.fullmatch(view.core)) and int(span[2]) < 60:
        return Reading(f"{_say('', span[1], None, 'h', False)} {_say('', str(int(span[2])), None, 'min', False)}")
    if feet := _FEET.fullmatch(view.core):
        return Reading(f"{cardinal(int(feet[1]))} {'foot ' + cardinal(int(feet[2])) if feet[2] else 'feet'}")
    if view.core in _BY_THEMSELVES:
        return Reading(_UNITS[view.core][1])
    return _glued(view) or _apart(view)


def _glued(view: View) -> Reading | None:
    found = _QUANTITY.fullmatch(view.core)
    if found is None or _names(found[4]) is None:
        return None
    attributive = view.core[-len(found[4]) - 1] == "-"
    return Reading(_say(found[1], found[2], found[3], found[4], attributive))


def _apart(view: View) -> Reading | None:
    """The unit as the next word: "5 kg", "6 in." """
    unit, found = view.next, _COUNT.fullmatch(view.core)
    if found is None or _names(unit) is None:
        return None
    if unit == "in" and view.context.last in ("ft", "feet", "foot"):
        return Reading(_say(found[1], found[2], found[3], unit, False), taken=2)
    if unit in _NOT_APART and not view.words[1].stopped:
        return None
    return Reading(_say(found[1], found[2], found[3], unit, False), taken=2)


def _names(unit: str) -> tuple[str, str] | None:
    """Singular and plural of a unit, a square or cubic one too; None if it is none."""
    base, _, power = unit.partition("^")
    if base not in _UNITS or power not in _POWERS:
        return None
    one, many = _UNITS[base]
    return _POWERS[power] + one, _POWERS[power] + many


def _say(sign: str, first: str, second: str | None, unit: str, attributive: bool) -> str:
    names = _names(unit)
    assert names is not None
    one, many = names
    amount = signed(sign + first) + (f" to {number(second)}" if second else "")
    return f"{amount} {one if attributive or (first == '1' and not second) else many}"
