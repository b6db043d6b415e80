"""What the sessions of a measurement say: whole utterances of a voice agent, or the paragraphs of a file."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

UTTERANCES = (
    "Good morning, you have reached the service desk. How may I help you today?",
    "Thank you, I have found your account. Before we go on, may I ask for your date of birth?",
    "The parcel left our depot this morning and should be with you before six in the evening.",
    "I am sorry to hear that. Let me see what went wrong with your order, it will take a moment.",
    "Your appointment is on Thursday at half past nine. Would you like me to send you a reminder?",
    "I can see two payments on your account, and the second one has already been returned to your card.",
    "The line in your street is being repaired, and we expect it to work again before noon.",
    "That is no problem at all. I have moved your booking to the following week, at the same time of day.",
    "Please have your contract at hand. The number that I need is printed at the top of the first page.",
    "One moment, please, I will connect you with a colleague who knows more about this than I do.",
    "We have sent a new password to your mobile phone. It is good for ten minutes and for one attempt.",
    "Is there anything else that I can do for you? If not, I wish you a very pleasant evening.",
    "The engineer rang your bell twice and left a card. Shall I ask him to come back on Monday?",
    "If you would like to keep your old number, please tell us the name of your last provider.",
    "The refund was approved yesterday. As a rule it reaches your bank within three working days.",
    "I understand. In that case I would suggest the smaller tariff, which you can end at any time.",
)


def read_texts(path: Path) -> tuple[str, ...]:
    """The paragraphs of a UTF-8 file, each a session's text. Raises OSError, or ValueError of no text."""
    blocks = path.read_text(encoding="utf-8").replace("\r\n", "\n").split("\n\n")
    texts = tuple(" ".join(block.split()) for block in blocks if block.strip())
    if not texts:
        raise ValueError("holds no text")
    return texts


def in_turn(texts: Sequence[str], seed: int) -> Iterator[str]:
    """Without end: all texts in a shuffled order, then all again in another; the same for the same seed."""
    order = random.Random(seed)
    while True:
        yield from order.sample(texts, len(texts))


def seeds(seed: int) -> Iterator[int]:
    """One a session, so that a measurement can be repeated with the same speech."""
    return itertools.count(seed)
