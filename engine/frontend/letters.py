"""Capitals: initialisms as letters, acronyms as words, shouted prose in lower case."""

from __future__ import annotations

import re

from engine.frontend.lexicon import listed, ordered
from engine.frontend.words import Reading, View, Word

NAMES = {
    letter: name.replace("_", " ")
    for letter, name in zip(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        ordered(
            "ay bee see dee ee eff gee aitch eye jay kay el em en oh pee cue are ess tee you vee double_you ex why zee"
        ),
        strict=True,
    )
}
"""How the built-in voice says letters: it hears these words far better than "F B I" (43 of 72 against 15 of 72)."""

_ACRONYMS = listed(
    "NASA NATO UNESCO UNICEF OPEC FIFA UEFA NAFTA NASDAQ SWAT LASER RADAR SONAR SCUBA AIDS COVID SARS MERS FEMA "
    "OSHA NOAA DARPA NIMBY YOLO FOMO SNAFU POTUS SCOTUS FLOTUS GIF JPEG RAM ROM PIN SIM LAN WAN GUI JSON YAML "
    "TOML ASCII CUDA IKEA LEGO ZIP CAPTCHA WYSIWYG HIPAA EBITDA ASEAN INTERPOL EUROPOL MENSA TASER UNIX LINUX "
    "BASIC COBOL SAAS PAAS IAAS IMAX MIDI NUMA SATA TESOL TOEFL AMEX FEDEX MOMA BAFTA NASCAR PETA MADD OPEX CAPEX "
    "WASP SPAM MOOC NATS RAID REST SOAP AJAX CRUD DOS BIOS MIPS PEMDAS ROFL LOL DOGE"
)
_INITIALISMS = listed(
    "UCLA UNLV NCAA AARP ASPCA USAF USDA USAA UAE ICAO OECD IEEE ADHD LGBTQ ACLU ICBM AFAIK AWS API APIS IBM IOU "
    "IOUS IPO ISO IRA IRS ISP IUD AKA DIY EPA ETA EU FAQ FAQS GOP HOA ICU IQ EQ LED LEDS OCD OJ PA PO POW QA RIP "
    "SUV TBA UFO UFOS UI UK UN UPI URI USA UX VA VOA AI AR AA AAA ABA AMA APR ATM ADA AIG AOL CEO CIO CFO CTO COO "
    "CIA DOA DOE DUI EKG ER ESP EV FAA FBI FDA FIO GE GI HBO HR HQ ID IDS IV LA LAPD LSAT MBA NAACP NBA NFL NHL "
    "NSA NYU OS PC PE PR QR RN RPM RSVP RV SEO SOS TA TV TVS UV VIP VIPS VR XL CD CDS DVD DVDS DNA RNA EUR USD "
    "GBP AUD CAD INR CNY CHF JPY IPA IDE IDES"
)
_CONTEXTUAL = listed("US IT WHO AM PM")
"""Initialisms that are ordinary words when shouted."""
_SHORT_WORDS = listed(
    "ab ad ah am an as at ax be by do eh go ha he hi hm ho if in is it me my no of oh ok on or ow ox so to uh um "
    "up us we ye yo act add age ago aid aim air all and ant any ape arm art ash ask ate bad bag ban bar bat bay "
    "bed bee beg bet bid big bin bit bow box boy bus but buy bye can cap car cat cow cry cup cut dad dam day den "
    "did die dig dim dog dot dry due ear eat egg end eve eye fan far fat fee few fig fit fix fly fog for fox fun "
    "fur gap gas get god got gum gun gut guy had has hat her hey hid him hip his hit hot how hug huh hut ice ill "
    "ink inn its jam jar jaw jet job jog joy key kid kit lab lap law lay leg let lid lie lip log lot low mad man "
    "map mat may men met mix mom mud mug nap net new nod nor not now nut oak odd off oil old one our out owe own "
    "pan pat pay pen pet pie pig pit pop pot put ran raw red rid row rub rug run sad sat saw say sea see set sew "
    "she shy sin sip sir sit six sky son sum sun tap tax tea ten the tie tin tip toe ton too top toy try two use "
    "van war was way web wed wet who why win won yes yet you zoo"
)
_ONSETS = listed(
    "b bl br c ch chr cl cr d dr dw f fl fr g gh gl gn gr h j k kn kl kr l m n p ph phr pl pr ps qu r rh s sc sch "
    "scr sh shr sk sl sm sn sp sph spl spr squ st str sw t th thr tr tw v w wh wr y z"
)
_CODAS = listed(
    "b bs c ck cks ct cts d ds f ff ffs ft fts g gh ght ghts gs h k ks l ld lds lf lk ll lls lm lp lps ls lt lth "
    "lts m mb mbs mp mps ms mpt n nc nch nd nds ng ngs ngth nk nks nn ns nt nth nts p ph ps pt pts r rb rc rch rd "
    "rds rf rg rk rks rl rld rm rms rn rns rp rr rs rst rt rth rts s sh sk sks sm sms sp ss st sts t tch th ths "
    "ts tt v w wk wl wls wn wns x xt y z zz"
)
_SYLLABLES = re.compile(r"[aeiou]+|y|[^aeiouy]+")
_INTERJECTION = re.compile(r"h?m+|hmph|sh+|ps+t+|br+|gr+|z+|tsk|pf+t+|nth|mhm")
_CAPITALS = re.compile(r"([A-Z]{2,})(s|'s|'S)?")
_DOTTED = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]|Ph\.D|ph\.d")
_SPECIAL = {
    "PhD": "P H D",
    "PhDs": "P H Ds",
    "OK": "okay",
    "TV's": "T V's",
    "NAACP": "N double A C P",
    "AAA": "triple A",
}
_BEFORE_IT = listed("the an our your my their his her")
_AFTER_IT = listed("department team support staff manager guy desk services infrastructure budget security people")
_BEFORE_LETTER = listed(
    "plan grade vitamin class option type section part hepatitis side group block model gate appendix exhibit "
    "letter an level line row zone terminal platform wing unit building category point"
)


def spell_out(letters: str) -> str:
    return " ".join(letters.upper())


def word_or_letters(run: str) -> str:
    """A run of letters outside running text (in an address, a code): a word if it can be one."""
    if run.isupper() and len(run) > 1:
        word = run in _ACRONYMS or (len(run) > 3 and run not in _INITIALISMS and _sayable(run))
        return run.lower() if word else spell_out(run)
    if len(run) == 1 or not re.search("[aeiouyAEIOUY]", run):
        return spell_out(run)
    return run


def read(view: View) -> Reading | None:
    core = view.core
    if core in _SPECIAL:
        return Reading(_SPECIAL[core])
    if _DOTTED.fullmatch(core):
        return Reading(spell_out(core.replace(".", "")))
    if len(core) == 1 and core.isalpha():
        return _single(view)
    if capitals := _CAPITALS.fullmatch(core):
        return _capitals(capitals[1], (capitals[2] or "").lower(), view)
    if core.isalpha() and not re.search("[aeiouy]", core.lower()) and not _interjection(core.lower()):
        return Reading(spell_out(core))
    return None


def _capitals(base: str, suffix: str, view: View) -> Reading:
    loud = view.context.shouted or (len(view.words) > 1 and is_shouted(view.words[1]))
    if base in _CONTEXTUAL:
        as_word = not (base == "US" and view.context.last == "the") and (loud or _contextual_word(base, view))
    elif base in _ACRONYMS:
        return Reading(base.lower() + suffix, shouted=view.context.shouted)
    elif base in _INITIALISMS:
        as_word = False
    else:
        as_word = base.lower() in _SHORT_WORDS or (_sayable(base) and (loud or len(base) > 3))
    if as_word:
        return Reading(base.lower() + suffix, shouted=True)
    return Reading(spell_out(base) + suffix, shouted=view.context.shouted)


def _contextual_word(base: str, view: View) -> bool:
    last = view.context.last
    if base == "IT":
        return last not in _BEFORE_IT and view.next.lower() not in _AFTER_IT
    if base == "WHO":
        return last != "the"
    return base == "AM" and last == "i"


def is_shouted(word: Word) -> bool:
    """Whether a word is one of running prose in capitals (and not an initialism or acronym)."""
    core = word.core
    if (
        not re.fullmatch(r"[A-Z]{2,}(?:'[A-Z]+)?", core)
        or core in _ACRONYMS
        or core in _INITIALISMS
        or core in _CONTEXTUAL
    ):
        return False
    return core.lower() in _SHORT_WORDS or "'" in core or (len(core) > 3 and _sayable(core))


def _single(view: View) -> Reading | None:
    """One letter by itself: its name, but for the article and the pronoun."""
    core, context = view.core, view.context
    if core == "A":
        named = context.last in _BEFORE_LETTER or (bool(context.last) and bool(view.words[0].tail))
        return Reading("A" if named else "a", shouted=context.shouted)
    if core in ("a", "I", "i"):
        return None
    return Reading(core.upper())


def _interjection(word: str) -> bool:
    return _INTERJECTION.fullmatch(word) is not None


def _sayable(word: str) -> bool:
    """Whether English phonotactics allow it: legal beginnings and endings, no long runs."""
    runs = _SYLLABLES.findall(word.lower().replace("qu", "kw"))
    vowels = [run for run in runs if run[0] in "aeiouy"]
    if not vowels or any(len(run) > 3 for run in vowels):
        return False
    if runs[0] not in vowels and runs[0] not in _ONSETS and runs[0] != "kw":
        return False
    if runs[-1] not in vowels and runs[-1] not in _CODAS:
        return False
    return all(_medial(run) for run in runs[1:-1] if run not in vowels)


def _medial(run: str) -> bool:
    return any(
        (not run[:cut] or run[:cut] in _CODAS) and (not run[cut:] or run[cut:] in _ONSETS)
        for cut in range(len(run) + 1)
    )


def is_special(core: str) -> bool:
    """Whether a word in mixed case is no ordinary word: "PhD", or capitals with a plural's "s"."""
    return core in _SPECIAL or _CAPITALS.fullmatch(core) is not None
