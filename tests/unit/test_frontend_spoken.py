"""Numbers and abbreviations are said as a person would say them.

``data/numbers.json``: a text and how it may be said; more than one way only where people really differ.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.frontend_room import said

_EXAMPLES = json.loads((Path(__file__).parents[1] / "data" / "numbers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("example", _EXAMPLES, ids=[example["text"] for example in _EXAMPLES])
def test_number(example: dict[str, object]) -> None:
    ways = example["spoken"]
    assert isinstance(ways, list)
    assert said(str(example["text"])) in ways


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("Dr. Smith lives on Elm Dr. near St. Mary's.", "Doctor Smith lives on Elm Drive near Saint Mary's."),
        ("Mr. and Mrs. O'Brien vs. Prof. Lee, etc.", "Mister and Missus O'Brien versus Professor Lee, et cetera."),
        ("Use tax law, e.g. U.S. law, i.e. money.", "Use tax law, for example U S law, that is money."),
        ("I live in the U.S. She lives in the U.K. and works.", "I live in the U S. She lives in the U K and works."),
        ("She has a Ph.D. in fig. 3.", "She has a P H D in figure three."),
        ("Acme Inc. said. Acme Corp. The end.", "Acme Incorporated said. Acme Corporation. The end."),
        ("Plan B. Then plan C, grade A, a plan.", "Plan B. Then plan C, grade A, a plan."),
        ("Plan A works, vitamin A, too.", "Plan A works, vitamin A, too."),
        ("The part I like is Part I, the book I read.", "The part I like is Part one, the book I read."),
        ("Ask max. 5 people, then ask Max. He knows.", "Ask maximum five people, then ask Max. He knows."),
        ("Send it c/o Ms. Lee, w/o tax.", "Send it care of Miz Lee, without tax."),
        ("J. R. R. Tolkien wrote it.", "J R R Tolkien wrote it."),
        ("Come in. Then sit.", "Come in. Then sit."),
        ("It is 6 in. long and 5 ft. wide. Good.", "It is six inches long and five feet wide. Good."),
        ("Wed. and Sun. Jan. 5, the sun. He sat.", "Wed. and Sunday January fifth, the sun. He sat."),
    ],
)
def test_abbreviation(text: str, way: str) -> None:
    assert said(text) == way


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("R&D at AT&T; Q&A", "R and D at A T and T; Q and A"),
        ("C++, C# and and/or he/she", "C plus plus, C sharp and and or he or she"),
        ("snake_case and user@host", "snake case and user at host"),
        ("*bold* **B** `code` # Title", "bold B code Title"),
        ('"Hello," she said. (No.) [maybe] {x}', "Hello, she said. No. maybe X"),
        ("Hello,world. One;two: three!Four?Five", "Hello, world. One; two: three! Four? Five"),
        ("a != b, a <= b, x==5", "a is not equal to B, a less than or equal to B, X equals five"),
        ("550e8400-e29b", "five five zero E eight four zero zero, E two nine B"),
        ("TCP/IP over /usr/bin", "T C P I P over slash usr bin"),
        ("f(-5) = x", "F minus five equals X"),
        ("call(x, y) -> z", "call X, Y [3] Z"),
        ("[the docs](https://x.com/a?b=c), ok", "the docs, ok"),
        ("<https://example.org/x>", "example dot org"),
        ("report.pdf and main.py", "report dot P D F and main dot P Y"),
        ("@user_name likes #MeToo", "at user name likes hashtag Me Too"),
    ],
)
def test_symbol(text: str, way: str) -> None:
    assert said(text) == way


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("www.example.com", "example dot com"),
        ("https://example.com/docs", "example dot com slash docs"),
        ("https://example.com/docs?page=2#top", "example dot com"),
        ("Visit example.com.", "Visit example dot com."),
        ("support+test@my-site.io", "support plus test at my dash site dot I O"),
        ("nats://localhost:4222", "localhost port four two two two"),
        ("192.168.0.1:80", "one nine two dot one six eight dot zero dot one port eight zero"),
        ("foo@bar.co.uk", "foo at bar dot co dot U K"),
    ],
)
def test_address(text: str, way: str) -> None:
    assert said(text) == way
