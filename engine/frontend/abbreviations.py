"""Abbreviations written with a full stop (or known without one), and whether that stop also ends the sentence."""

from __future__ import annotations

import re

from engine.frontend.dates import MONTHS, WEEKDAYS
from engine.frontend.lexicon import listed
from engine.frontend.numerals import number
from engine.frontend.words import DOTTED_LETTERS, Kind, Reading, View, Word

_TITLES = {
    "mr": "Mister",
    "mrs": "Missus",
    "ms": "Miz",
    "prof": "Professor",
    "gen": "General",
    "col": "Colonel",
    "capt": "Captain",
    "lt": "Lieutenant",
    "sgt": "Sergeant",
    "cpl": "Corporal",
    "maj": "Major",
    "cmdr": "Commander",
    "rev": "Reverend",
    "hon": "Honorable",
    "gov": "Governor",
    "sen": "Senator",
    "rep": "Representative",
    "pres": "President",
    "supt": "Superintendent",
    "mt": "Mount",
    "ft": "Fort",
    "messrs": "Messers",
    "mme": "Madame",
}
"""Before a name only."""
_ANYWHERE = {
    "jr": "Junior",
    "sr": "Senior",
    "ave": "Avenue",
    "blvd": "Boulevard",
    "rd": "Road",
    "ln": "Lane",
    "hwy": "Highway",
    "pkwy": "Parkway",
    "sq": "Square",
    "apt": "apartment",
    "dept": "department",
    "inc": "Incorporated",
    "ltd": "Limited",
    "corp": "Corporation",
    "co": "Company",
    "bros": "Brothers",
    "assn": "Association",
    "univ": "University",
    "vs": "versus",
    "etc": "et cetera",
    "approx": "approximately",
    "est": "established",
    "misc": "miscellaneous",
    "govt": "government",
    "tel": "telephone",
    "ext": "extension",
    "al": "al",
    "ca": "circa",
    "cf": "compare",
    "min": "minutes",
    "max": "maximum",
    "hr": "hour",
    "hrs": "hours",
    "mins": "minutes",
    "sec": "seconds",
    "secs": "seconds",
    "yr": "year",
    "yrs": "years",
    "lb": "pound",
    "lbs": "pounds",
    "oz": "ounces",
    "pt": "point",
    "incl": "including",
    "excl": "excluding",
    "temp": "temporary",
    "avg": "average",
    "qty": "quantity",
    "attn": "attention",
    "ed": "edition",
    "orig": "original",
    "tbsp": "tablespoons",
    "tsp": "teaspoons",
}
"""Only with the stop, unless in ``_STOPLESS``."""
_STOPLESS = listed("mr mrs ms dr vs etc jr sr ave blvd prof st hwy ltd approx hrs mins lbs tbsp tsp sgt capt lt")
_NUMBERED = {
    "no": ("number", "numbers"),
    "nos": ("numbers", "numbers"),
    "fig": ("figure", "figures"),
    "figs": ("figures", "figures"),
    "vol": ("volume", "volumes"),
    "vols": ("volumes", "volumes"),
    "ch": ("chapter", "chapters"),
    "sec": ("section", "sections"),
    "p": ("page", "pages"),
    "pp": ("pages", "pages"),
    "art": ("article", "articles"),
    "eq": ("equation", "equations"),
    "rm": ("room", "rooms"),
    "apt": ("apartment", "apartments"),
    "ext": ("extension", "extensions"),
    "pt": ("part", "parts"),
}
"""Before a number only."""
_PHRASES = {
    "e.g": "for example",
    "eg": "for example",
    "i.e": "that is",
    "ie": "that is",
    "a.k.a": "also known as",
    "aka": "also known as",
    "n.b": "note",
    "w/o": "without",
    "w/": "with",
    "c/o": "care of",
    "n/a": "not applicable",
    "b/c": "because",
    "b.c": "B C",
    "p.s": "P S",
}
_WORDLIKE = listed("max ed al min temp pt sec")
"""Names and words too: an abbreviation only where the sentence goes on."""
_STREETS = {"st": "Street", "dr": "Drive", "ct": "Court", "pl": "Place"}
_BEFORE_NAME = {"st": "Saint", "dr": "Doctor", "ct": "Court", "pl": "Place"}
_AMBIGUOUS_STOP = frozenset((*_TITLES, *_ANYWHERE, *_NUMBERED, *_STREETS, "e.g", "i.e", "in", *MONTHS, *WEEKDAYS)) - {
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
}
_STARTERS = listed(
    "the a an it he she we they you i this that these those there here his her my our your their its in on at if "
    "when while but and so then what who why how where please thank thanks yes no not do does did is are was were "
    "can could will would should let let's after before for as with meanwhile however also both each every some "
    "many most all another one nobody nothing everyone"
)
_DAY_WORDS = frozenset(("sat", "sun", "wed"))
_DETERMINERS = listed("your the my a our his her their")
_GLUED = re.compile(r"(no|fig|vol|pp|ch|sec|art|eq|p)\.(\d+(?:\.\d+)?)", re.IGNORECASE)


def stop_is_open(word: Word) -> bool:
    """Whether a word's final "." may belong to an abbreviation, so that it does not by itself end the sentence."""
    core = word.core
    return word.tail == "." and (core.lower() in _AMBIGUOUS_STOP or DOTTED_LETTERS.fullmatch(core) is not None)


def is_abbreviation(word: Word) -> bool:
    """Whether a word has to be looked up here although it consists of letters alone."""
    key = word.core.lower()
    if key in _STOPLESS or key in _PHRASES:
        return True
    return (word.stopped and key in _AMBIGUOUS_STOP) or (
        word.tail == "" and key in _NUMBERED and key not in ("no", "art", "p")
    )


def closing(view: View, taken: int = 1) -> str:
    """The punctuation that an abbreviation's stop leaves: "." where a sentence ends there."""
    if len(view.words) <= taken:
        return "."
    follower = view.words[taken].core
    return "." if follower[:1].isupper() and follower.lower() in _STARTERS else ""


def read(view: View) -> Reading | None:
    word, key = view.words[0], view.core.lower()
    if glued := _GLUED.fullmatch(view.core):
        return Reading(f"{_NUMBERED[glued[1].lower()][0]} {number(glued[2])}")
    if key in _PHRASES:
        return Reading(_PHRASES[key], tail="" if word.tail == "." else None)
    stopped = word.stopped
    if not stopped and key not in _STOPLESS and key not in _NUMBERED:
        return None
    follower = view.words[1].core if len(view.words) > 1 else ""
    if key in _NUMBERED and re.match(r"[\d#]|[IVX]+\b", follower):
        return Reading(_NUMBERED[key][0], tail="")
    if not stopped and key not in _STOPLESS:
        return None
    return _named(view, key, follower, stopped)


def _named(view: View, key: str, follower: str, stopped: bool) -> Reading | None:
    name_follows = follower[:1].isupper() and follower.lower() not in _STARTERS
    if key in _STREETS:
        person = not view.context.last or view.context.last in _DETERMINERS
        street = _after_house(view) or not (person or name_follows)
        if not stopped and not name_follows:
            return Reading(_STREETS[key]) if street else None
        return Reading(_STREETS[key], tail=_tail(view, stopped)) if street else Reading(_BEFORE_NAME[key], tail="")
    if key in _TITLES and name_follows:
        return Reading(_TITLES[key], tail="")
    if key in MONTHS and re.match(r"\d", follower):
        return Reading(MONTHS[key], tail="", kind=Kind.MONTH)
    if key in WEEKDAYS and view.words[0].capitalised and (key not in _DAY_WORDS or re.match(r"[A-Z\d]", follower)):
        return Reading(WEEKDAYS[key], tail=_tail(view, stopped))
    if key in _WORDLIKE and (not follower or follower[:1].isupper()):
        return None
    if key in _ANYWHERE or key in ("mr", "mrs", "ms", "prof"):
        return Reading(_ANYWHERE.get(key) or _TITLES[key], tail=_tail(view, stopped))
    return None


def _after_house(view: View) -> bool:
    """Whether "St." or "Dr." follows a street's name that follows a house number or an ordinal."""
    return (
        re.match(r"\d", view.context.before) is not None
        or re.fullmatch(r"\d+(?:st|nd|rd|th)", view.context.last) is not None
    )


def _tail(view: View, stopped: bool) -> str | None:
    return closing(view) if stopped and view.words[0].tail == "." else None


def closes(word: Word) -> bool:
    """Whether a word certainly ends its sentence."""
    return word.tail in (".", "!", "?") and not stop_is_open(word)
