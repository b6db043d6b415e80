"""Numbers through the whole line: a recogniser hears them as a person would say them (must-show 3).

How each is put into words is tested without sound, in the front end's own tests; here it matters that those words
arrive. The recogniser slips in places, so a tenth of them may be missed.
"""

from __future__ import annotations

import pytest

from tests.integration.live import House
from tests.speech.recogniser import Recogniser
from tests.speech.scoring import hears
from tests.speech.test_intelligible import RATE, spoken

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.speech, pytest.mark.timeout(400)]

SPOKEN = {
    "Your balance is $1,204.50 on 3/14/2027 at 4:05 pm.": "one thousand two hundred four dollars fifty cents march "
    "twenty seven five pm",
    "The parcel weighs 12.5 kg and costs $7.": "twelve five seven dollars",
    "Room 214 is on the 3rd floor.": "two hundred fourteen third floor",
    "Sales grew by 15% in 2019.": "fifteen percent twenty nineteen",
    "The train leaves at 10:30.": "ten thirty",
    "It was 98 degrees on July 4th.": "ninety eight july",
    "We need 3,200 chairs by May 2nd.": "three thousand two hundred may",
    "He paid $19.99 for 2 books.": "nineteen dollars ninety nine cents two",
    "Chapter 7 begins on page 120.": "seven one hundred twenty",
}
MISSED = 0.1


async def test_numbers_are_heard_as_they_are_said(home: House, recogniser: Recogniser) -> None:
    takes = await spoken(home, list(SPOKEN), range(len(SPOKEN)))
    transcripts = {text: recogniser.transcribe(take, RATE) for text, take in zip(SPOKEN, takes, strict=True)}
    said = {text: words.split() for text, words in SPOKEN.items()}
    missed = {text: [word for word in said[text] if not hears(word, transcripts[text])] for text in SPOKEN}
    assert sum(map(len, missed.values())) <= MISSED * sum(map(len, said.values())), (missed, transcripts)
    for text in SPOKEN:
        assert len(missed[text]) <= len(said[text]) / 2, (text, transcripts[text])
