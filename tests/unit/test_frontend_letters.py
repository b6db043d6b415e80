"""Capitals: letters, acronyms and shouting."""

from __future__ import annotations

import pytest

from engine.frontend.normaliser import Normaliser
from tests.frontend_room import pieces_of, said, spoken, stream


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("The FBI called.", "The F B I called."),
        ("Send the PDF to the CEO's desk.", "Send the P D F to the C E O's desk."),
        ("URLs, APIs and PCs", "U R Ls, A P Is and P Cs"),
        ("NASA and NATO met.", "nasa and nato met."),
        ("HELP! STOP.", "help! stop."),
        ("THE FBI AGENTS ARE HERE", "the F B I agents are here"),
        ("HELP US NOW", "help us now"),
        ("the US team met us", "the U S team met us"),
        ("THE US ARMY", "the U S army"),
        ("the IT department, and IT WORKS", "the I T department, and it works"),
        ("Ask the WHO, WHO IS THERE", "Ask the W H O, who is there"),
        ("I AM A MAN", "I am a man"),
        ("html, css and tcp, hmm", "H T M L, C S S and T C P, hmm"),
        ("HTML HTTP ISBN UCLA", "H T M L H T T P I S B N U C L A"),
        ("NAACP, OK, PhD", "N double A C P, okay, P H D"),
        ("US-based X-ray, a T-shirt", "U S based X ray, a T shirt"),
        ("YouTube, iPhone, McDonald's, JavaScript", "YouTube, iPhone, McDonald's, JavaScript"),
        ("JPEGs and LASER", "jpegs and laser"),
        ("x and Y", "X and Y"),
    ],
)
def test_capitals(text: str, way: str) -> None:
    assert said(text) == way


def test_the_built_in_voice_gets_letters_by_their_names() -> None:
    assert spoken(pieces_of(["AI, URLs, W."], stream(normaliser=Normaliser()))) == "ay eye, you are els, double you."
