"""Amounts of money: symbol and number read together, cents, ranges, scales, rates."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.frontend.lexicon import listed
from engine.frontend.numerals import NUMBER, cardinal, number
from engine.frontend.words import Reading, View


@dataclass(frozen=True, slots=True)
class _Currency:
    one: str
    many: str
    cent: str = "cent"
    cents: str = "cents"


_DOLLAR = _Currency("dollar", "dollars")
_CURRENCIES = {
    "$": _DOLLAR,
    "€": _Currency("euro", "euros"),
    "£": _Currency("pound", "pounds", "penny", "pence"),
    "¥": _Currency("yen", "yen"),
    "₹": _Currency("rupee", "rupees", "paisa", "paise"),
    "₩": _Currency("won", "won"),
    "₽": _Currency("ruble", "rubles", "kopeck", "kopecks"),
    "₿": _Currency("bitcoin", "bitcoins"),
    "US$": _Currency("U S dollar", "U S dollars"),
    "CA$": _Currency("Canadian dollar", "Canadian dollars"),
    "C$": _Currency("Canadian dollar", "Canadian dollars"),
    "AU$": _Currency("Australian dollar", "Australian dollars"),
    "A$": _Currency("Australian dollar", "Australian dollars"),
    "NZ$": _Currency("New Zealand dollar", "New Zealand dollars"),
    "HK$": _Currency("Hong Kong dollar", "Hong Kong dollars"),
}
_CODES = {
    "USD": _CURRENCIES["US$"],
    "CAD": _CURRENCIES["CA$"],
    "AUD": _CURRENCIES["AU$"],
    "NZD": _CURRENCIES["NZ$"],
    "EUR": _CURRENCIES["€"],
    "GBP": _CURRENCIES["£"],
    "JPY": _CURRENCIES["¥"],
    "INR": _CURRENCIES["₹"],
    "CHF": _Currency("Swiss franc", "Swiss francs", "centime", "centimes"),
    "CNY": _Currency("yuan", "yuan"),
}
_SCALES = {
    "k": "thousand",
    "K": "thousand",
    "m": "million",
    "M": "million",
    "mn": "million",
    "mm": "million",
    "MM": "million",
    "mil": "million",
    "b": "billion",
    "B": "billion",
    "bn": "billion",
    "Bn": "billion",
    "BN": "billion",
    "t": "trillion",
    "T": "trillion",
    "tn": "trillion",
}
_SCALE_WORDS = listed("thousand million billion trillion")
_RATES = {"hr": "hour", "h": "hour", "mo": "month", "yr": "year", "wk": "week", "lb": "pound", "sqft": "square foot"}

_SIGN = "|".join(re.escape(sign) for sign in sorted(_CURRENCIES, key=len, reverse=True))
_SCALE = "|".join(sorted([*_SCALES, *_SCALE_WORDS], key=len, reverse=True))
_PREFIXED = re.compile(
    rf"(?P<minus>-)?(?P<sign>{_SIGN})(?P<inner>-)?(?P<first>{NUMBER})(?:-(?:{_SIGN})?(?P<second>{NUMBER}))?"
    rf"(?:-?(?P<scale>{_SCALE}))?(?P<plus>\+)?(?:/(?P<rate>[A-Za-z]+))?"
)
_SUFFIXED = re.compile(
    rf"(?P<minus>-)?(?P<first>{NUMBER})(?:-(?P<second>{NUMBER}))?(?P<scale>{_SCALE})?(?P<sign>[€£$¥₹₩₽₿¢]|{'|'.join(_CODES)})"
)
_CODED = re.compile(rf"(?P<sign>{'|'.join(_CODES)})(?P<first>{NUMBER})(?P<scale>{_SCALE})?")
_CENTS = _Currency("cent", "cents")


def read(view: View) -> Reading | None:
    for candidate, taken in _candidates(view):
        for pattern in (_PREFIXED, _SUFFIXED, _CODED):
            if found := pattern.fullmatch(candidate):
                return _amount(found.groupdict(), view, taken)
    return None


def _candidates(view: View) -> list[tuple[str, int]]:
    """The word itself; with a code or sign that stands apart from its number, the two joined."""
    core, following = view.core, view.next
    joined: list[tuple[str, int]] = []
    if core in _CODES or core in _CURRENCIES or following in _CODES or following in ("€", "£", "¢"):
        joined.append((core + following, 2))
    return [*joined, (core, 1)]


def _amount(parts: dict[str, str | None], view: View, taken: int) -> Reading:
    sign, first, second = parts["sign"] or "", parts["first"] or "", parts.get("second")
    currency = _CURRENCIES.get(sign) or _CODES.get(sign) or _CENTS
    scale = _SCALES.get(parts["scale"] or "", parts["scale"] or "")
    if not scale and (scale := _scale_apart(view, taken)):
        taken += 1
    attributive = view.context.last in ("a", "an") and len(view.words) > taken and view.words[taken].core[:1].islower()
    words = "minus " if parts.get("minus") or parts.get("inner") else ""
    words += _say(first, second, scale, currency, attributive)
    if parts.get("plus"):
        words += " plus"
    if rate := parts.get("rate"):
        words += f" per {_RATES.get(rate, rate)}"
    return Reading(words, taken=taken)


def _scale_apart(view: View, taken: int) -> str:
    """A scale written as a word of its own: "$2.5 billion", "$3 bn"."""
    if len(view.words) <= taken or view.words[taken - 1].tail:
        return ""
    word = view.words[taken].core
    return word if word in _SCALE_WORDS else _SCALES[word] if word in ("bn", "mn", "tn", "mil") else ""


def _say(first: str, second: str | None, scale: str, currency: _Currency, attributive: bool) -> str:
    if scale or attributive:
        amounts = number(first) + (f" to {number(second)}" if second else "")
        unit = currency.one if attributive else currency.many
        return " ".join(part for part in (amounts, scale, unit) if part)
    if second and "." not in first + second:
        return f"{number(first)} to {_units(second, currency)}"
    return _units(first, currency) + (f" to {_units(second, currency)}" if second else "")


def _units(amount: str, currency: _Currency) -> str:
    whole, _, decimals = amount.replace(",", "").partition(".")
    value = int(whole or "0")
    if len(decimals) > 2 or (decimals and currency.one in ("yen", "won", "bitcoin")):
        return f"{number(amount)} {currency.many}"
    cents = int(decimals.ljust(2, "0")) if decimals else 0
    units = f"{cardinal(value)} {currency.one if value == 1 else currency.many}"
    small = f"{cardinal(cents)} {currency.cent if cents == 1 else currency.cents}"
    if not cents:
        return units
    return f"{units} and {small}" if value else small
