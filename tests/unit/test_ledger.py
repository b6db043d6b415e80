"""What is kept of a session can be put together again, and kept short."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract import SlotFrame
from worker.errors import JournalDamaged
from worker.ledger import Ledger
from worker.scribe import JournalScribe
from worker.wire import journal as wire

TEXT = st.text(st.characters(exclude_characters="\x00"), max_size=30)
ORDERS = st.lists(st.tuples(st.sampled_from(["text", "flush", "finish"]), TEXT), max_size=5)
NUMBER = st.integers(0, 2**53)
COUNTERS = st.builds(
    wire.Counters,
    seq=NUMBER,
    pts=NUMBER,
    text_seq=NUMBER,
    credit_ms=st.none() | st.floats(-1e6, 1e6),
    usage=st.tuples(NUMBER, NUMBER, NUMBER),
    first_audio_ms=st.none() | st.floats(0, 1e6),
)
DELTAS = st.builds(
    wire.Delta,
    counters=COUNTERS,
    orders=ORDERS.map(tuple),
    records=st.lists(st.binary(min_size=20, max_size=20), max_size=4).map(tuple),
    answered=st.integers(0, 3),
    restart=st.none() | st.builds(wire.Restart, NUMBER, NUMBER, TEXT, TEXT),
    origin=st.none() | st.tuples(NUMBER, NUMBER),
)


def ledger() -> Ledger:
    settled = {"format": {"encoding": "pcm_s16le", "sample_rate": 24_000}}
    opened = wire.Opened("default", "s" * 16, "_INBOX.x", "application/json", settled, "digest", "0.1", 1.0)
    return Ledger(opened, wire.Counters(0, 0, 0, None, (0, 0, 0)))


def scribe(kept: Ledger, reach: int = 100) -> JournalScribe:
    nothing = lambda *_: None  # noqa: E731
    counters = wire.Counters(7, 70, 2, None, (1, 2, 3))
    return JournalScribe(
        kept,
        epoch=0,
        falls=0,
        fell_at_pts=0,
        place=0,
        reach=reach,
        count=lambda: counters,
        suspend=nothing,
        touch=nothing,
        settle=nothing,
        closed=nothing,
    )


@given(deltas=st.lists(DELTAS, max_size=6))
def test_ticks_and_checkpoints_come_back_as_they_were(deltas: list[wire.Delta]) -> None:
    kept = ledger()
    for delta in deltas:
        part = wire.TickPart("default", "s" * 16, 3, delta)
        other = wire.TickPart("b", "s" * 16, 0, delta)
        assert wire.parts_of(wire.encode_tick([other, part]), "default", "s" * 16) == [part]
        kept.apply(delta)
    entry = wire.Checkpoint("owner", 3, 1, 9, kept.dump())
    read = wire.decode_entry(wire.encode_entry(entry))
    assert isinstance(read, wire.Checkpoint)
    assert (read.owner, read.epoch, read.falls, read.fell_at_pts) == ("owner", 3, 1, 9)
    assert Ledger.load(read.state) == kept


@pytest.mark.parametrize(
    "entry",
    [wire.Claim("owner", 4, 17, (wire.Segment("old", 17, 20), wire.Segment("new", 20, wire.HERE))), wire.Closed()],
)
def test_claims_too(entry: wire.Entry) -> None:
    assert wire.decode_entry(wire.encode_entry(entry)) == entry


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"{}", b"\x91\x01", b"\x92\x63\xa6closed", b"\x92\x01\xa3new"])
def test_what_is_no_record_is_said_to_be_none(payload: bytes) -> None:
    with pytest.raises(JournalDamaged):
        wire.decode_entry(payload)
    with pytest.raises(JournalDamaged):
        wire.decode_fence(payload)


def test_a_checkpoint_of_another_form() -> None:
    state = ledger().dump()
    del state["orders"]
    with pytest.raises(JournalDamaged):
        Ledger.load(state)


def test_a_restart_forgets_the_generation_before() -> None:
    kept = ledger()
    counters = wire.Counters(5, 50, 1, None, (4, 1, 3))
    kept.apply(wire.Delta(counters, (("text", "old"), ("flush", "")), (b"1",), answered=1))
    later = dataclasses.replace(counters, seq=8, pts=80)
    restart = wire.Restart(2, 1, "o", "ld")
    kept.apply(wire.Delta(later, (("text", "new"),), (b"2",), restart=restart, origin=(6, 60)))
    assert (kept.number, kept.since, kept.noise, kept.cancelled) == (2, 1, 2, ("o", "ld"))
    assert (kept.orders, kept.records, kept.answered) == ([("text", "new")], [b"2"], 0)
    assert (kept.origin_seq, kept.origin_pts, kept.counters) == (6, 60, later)
    kept.take_over()
    assert (kept.number, kept.noise) == (3, 2)


def frame(step: int) -> SlotFrame:
    return SlotFrame(0, True, step, b"", 0, False, record=bytes([step % 256]))


def test_what_is_out_of_reach_is_left_out_up_to_a_word() -> None:
    """Text of ten letters a word, a word every ten steps, and a flush after the third."""
    kept = ledger()
    writer = scribe(kept, reach=40)
    writer.order("opening", "aaaaaaaaa " * 2)
    writer.order("text", "ccccccccc ")
    writer.order("flush")
    writer.order("text", "ddddddddd " * 4)
    writer.answered()
    for step in range(1, 62):
        word, begins = divmod(step - 1, 10)
        cut = wire.Cut(step - 1, 10 * word, word, 100 * word) if begins == 0 else None
        writer.frame(frame(step), cut)
        writer.take()
    assert kept.first == 40
    assert kept.records == [bytes([step]) for step in range(41, 62)]
    assert (kept.origin_seq, kept.origin_pts) == (4, 400)
    assert kept.before == "aaaaaaaaa " * 2 + "ccccccccc " + "ddddddddd "
    assert kept.orders == [("text", "ddddddddd " * 3)]
    assert (kept.answered, kept.texts_before) == (0, 1)
    assert writer.due


def test_who_spoke_last_is_kept_of_what_is_left_out() -> None:
    kept = ledger()
    writer = scribe(kept, reach=40)
    writer.order("opening", "aaaaaaaaa " * 2)
    writer.order("speaker", "2")
    writer.order("text", "ccccccccc " * 2)
    writer.order("speaker", "1")
    writer.order("text", "ddddddddd " * 3)
    speakers: list[tuple[int, int, tuple[str, str]]] = []
    for step in range(1, 92):
        word, begins = divmod(step - 1, 10)
        writer.frame(frame(step), wire.Cut(step - 1, 10 * word, word, 100 * word) if begins == 0 else None)
        writer.take()
        if not speakers or speakers[-1][:2] != (kept.first, kept.speaker):
            speakers.append((kept.first, kept.speaker, kept.orders[0]))
    assert speakers == [
        (0, 0, ("opening", "aaaaaaaaa " * 2)),
        (20, 0, ("speaker", "2")),
        (40, 2, ("speaker", "1")),
        (60, 1, ("text", "ddddddddd ")),
    ]
    assert Ledger.load(kept.dump()).speaker == 1
    writer.restart(wire.Restart(1, 1, "", ""))
    writer.take()
    assert kept.speaker == 0


@given(seed=st.integers(0, 1000))
def test_the_text_stays_whole_wherever_it_is_cut(seed: int) -> None:
    rng = random.Random(seed)
    kept = ledger()
    text = "".join(rng.choice(["a", " ", "\U0001f600", "\u00e9"]) for _ in range(40))
    halves = text.encode("utf-16-le", "surrogatepass")
    at = sorted(rng.randrange(0, len(halves) // 2) * 2 for _ in range(4))
    bounds = [0, *at, len(halves)]
    pieces = [halves[low:high].decode("utf-16-le", "surrogatepass") for low, high in itertools.pairwise(bounds)]
    kept.orders = [("text", piece) for piece in pieces]
    kept.records = [b"x"] * 100
    kept.cuts = [wire.Cut(30, rng.randint(0, len(text)), 1, 1)]
    assert kept.forget(50)
    rest = "".join(part for _, part in kept.orders)
    joined = (kept.before + rest).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    assert joined == text
    assert len(kept.before) == kept.cuts[0].offset
