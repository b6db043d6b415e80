"""What real users of speech servers stumbled over, text half: normalisation, deltas, long text.

Each test names its case and the public reports behind it.
"""

from __future__ import annotations

import pytest

from engine.frontend.normaliser import Normaliser
from tests.frontend_room import FLUSH, pieces_of, said, spoken, stream


def test_case_c01_money() -> None:
    """elevenlabs/elevenlabs-docs#896, NickMonrad/kernel-ai-assistant#1487: symbol and cents are read apart."""
    assert said("Owed $1,204.05, refund -$3.50, fee \u20ac0.07, deal $2.5bn, $5-10 each.") == (
        "Owed one thousand two hundred four dollars and five cents, "
        "refund minus three dollars and fifty cents, "
        "fee seven cents, "
        "deal two point five billion dollars, "
        "five to ten dollars each."
    )


_CAPITALS = "IT WAS LATE when NASA, the FBI and the US team met us about AI. HELP!"


def test_case_c03_capitals() -> None:
    """aedocw/epub2tts-kokoro#12, FluidInference/FluidAudio#710: prose is spelled, initialisms are read as words."""
    assert said(_CAPITALS) == "it was late when nasa, the F B I and the U S team met us about A I. help!"


def test_case_c03_letters_as_the_built_in_voice_gets_them() -> None:
    way = spoken(pieces_of([_CAPITALS], stream(normaliser=Normaliser())))
    assert way == "it was late when nasa, the eff bee eye and the you ess team met us about ay eye. help!"


def test_case_c06_addresses() -> None:
    """mbailey/voicemode#241, fazer-ai/agents#787: URLs spelled sign by sign, or silently gone."""
    deltas = ("See https://sh", "op.exam", "ple.com/a?id=77&utm=x or jo.d", "oe@example.org.")
    assert said(*deltas) == "See shop dot example dot com or jo dot doe at example dot org."


def test_case_c06_a_long_address_stays_short() -> None:
    address = "https://shop.example.com/" + "/".join(f"part{index}-of-it" for index in range(100)) + "?q=" + "x" * 5000
    assert said(f"See {address} now.") == "See shop dot example dot com now."


def test_case_c08_unicode() -> None:
    """ken107/read-aloud#425, tgeczy/TGSpeechBox#76, 152334H/tortoise-tts-fast#55: invisible signs break words."""
    unicode = "Pro\u00adnun\u00adciation at 12:00\u202fAM, can\u200bnot, don\u2019t, the \u201990s, cafe\u0301."
    ascii_form = "Pronunciation at 12:00 AM, cannot, don't, the '90s, cafe."
    assert [piece.entry for piece in pieces_of([unicode])] == [piece.entry for piece in pieces_of([ascii_form])]
    assert said(unicode) == "Pronunciation at twelve A M, cannot, don't, the nineties, cafe."


def test_case_c09_angle_brackets() -> None:
    """Mudlet/Mudlet#4689, geometer/FBReaderJ-plugin-tts#3: a "<" makes text vanish."""
    assert said("If x < 5 & y > 2, <Mission failed> &lt;ok&gt;.") == (
        "If X less than five and Y greater than two, less than Mission failed greater than less than ok greater than."
    )


def test_case_c09_a_smuggled_break_is_capped() -> None:
    """ken107/read-aloud#152: a smuggled tag adds an endless pause. Ten seconds are 125 frames."""
    text = stream()
    pieces = pieces_of(['Wait <break time="999999s"/> now. ' + '<break time="10s"/>' * 50 + "Go."], text)
    assert spoken(pieces) == "Wait [125] now. [125] Go."
    assert text.notes.capped_breaks == 50


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("Guys..", "Guys."),
        ("Wait... what?", "Wait, what?"),
        ("***", ""),
        ("\u2014", ""),
        ("  ", ""),
        ("\U0001f642\U0001f642", ""),
        ("", ""),
    ],
)
def test_case_c10_lone_punctuation(text: str, way: str) -> None:
    """coqui-ai/TTS#2385, rhasspy/piper#839, QwenAudio/CosyVoice#710, RHVoice/RHVoice#121: noise, no pause, a spin."""
    assert said(text) == way


def test_case_c12_sentences_that_meet_without_a_space() -> None:
    """pipecat-ai/pipecat#3242: "12345.Let" is read "dot L E T"."""
    deltas = ("Order 12345.", "Let me check.")
    assert said(*deltas) == "Order one two three four five. Let me check."


def test_case_c12_a_name_cut_in_two() -> None:
    """pipecat-ai/pipecat#3203."""
    assert said("exam", "ple.com") == "example dot com"
    assert len({(piece.start, piece.end) for piece in pieces_of(["exam", "ple.com"])}) == 1


@pytest.mark.parametrize("deltas", [("(Say when.", ")"), ("(Say when.", " )"), ("(Say when.", FLUSH, ")")])
def test_case_c12_a_late_bracket_is_silent(deltas: tuple[str | None, ...]) -> None:
    """livekit/agents-js#895: a late ")" becomes an utterance of its own."""
    assert said(*deltas) == "Say when."


def test_case_c14_a_finished_sentence_and_its_flush() -> None:
    """livekit/agents#3798, #4440: only the last word may wait, and only until flush or finish."""
    text = stream()
    assert spoken(text.feed("Yes, it is ready.")) == "Yes, it is"
    assert spoken(text.flush()) == "ready."
    text = stream()
    assert spoken(text.feed("Yes, it is ready.") + text.finish()) == "Yes, it is ready."


def test_case_c16_commas_only() -> None:
    """kyutai-labs/pocket-tts#38, thrashr888/alchemy#11: clauses are skipped."""
    words = [f"clause{'abcdefghij'[index // 10 % 10]}{'abcdefghij'[index % 10]}," for index in range(120)]
    assert said(" ".join(words)) == " ".join(words)


def test_case_c16_a_token_without_spaces() -> None:
    """devnen/Chatterbox-TTS-Server#144: a long token overruns an index. Every character is said, once, in order."""
    text = "0123456789abcdef" * 37 + "0a1b2c3d"
    assert len(text) == 600
    names = dict(
        zip("0123456789", ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"], strict=True)
    )
    expected = [names.get(char, char.upper()) for char in text]
    assert [piece.text.rstrip(",") for piece in pieces_of([text])] == expected


def test_case_c16_a_dash_line() -> None:
    page = "It was dark.\n\n-In the tunnels (oh)-\n\nNobody came."
    assert said(page) == "It was dark. In the tunnels oh [6] Nobody came."
