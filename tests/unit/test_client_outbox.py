from __future__ import annotations

import pytest

from worker.client_outbox import Outbox
from worker.errors import WireError
from worker.wire.requests import Cancel, Finish, Flush, Text


def said(box: Outbox) -> list[str]:
    """What is pending, in short."""
    short = []
    for item in box.pending():
        match item:
            case Text():
                short.append(f"{item.gen}:{item.seq} {item.text}")
            case Flush() | Finish():
                short.append(f"{item.gen}:{item.type}@{item.seq}")
            case Cancel():
                short.append(f"cancel {item.gen}")
    return short


def test_everything_is_pending_in_its_order_until_it_is_confirmed() -> None:
    box = Outbox()
    assert box.oldest is None
    box.text("a")
    box.flush()
    box.text("b")
    box.text("c")
    box.finish()
    assert said(box) == ["0:0 a", "0:flush@1", "0:1 b", "0:2 c", "0:finish@3"]
    assert box.taken(2)
    assert said(box) == ["0:flush@1", "0:2 c", "0:finish@3"]
    assert box.awaits_flushed
    box.flushed(1)
    assert not box.awaits_flushed
    assert box.taken(3)
    assert said(box) == ["0:finish@3"]
    assert isinstance(box.oldest, Finish)


def test_a_worker_cannot_ask_for_what_it_has_confirmed_or_was_never_said() -> None:
    box = Outbox()
    for text in "abc":
        box.text(text)
    assert box.taken(2)
    assert not box.taken(1)
    assert not box.taken(4)
    assert said(box) == ["0:2 c"]


def test_unspoken_text_is_counted_until_the_model_has_run_out() -> None:
    box = Outbox(opening_chars=10)
    assert box.unspoken_chars == 10
    box.text("four")
    box.text("more")
    box.taken(1)
    assert box.unspoken_chars == 18, "taken is not spoken"
    box.spoken(1)
    assert box.unspoken_chars == 4, "what the worker had not seen yet still counts"
    box.flush()
    box.flushed(2)
    assert box.unspoken_chars == 0
    box.text("new")
    box.spoken(2)
    assert box.unspoken_chars == 3


def test_a_cancel_voids_what_was_said_and_stays_until_it_is_acknowledged() -> None:
    box = Outbox()
    box.text("old")
    box.flush()
    cancel = box.cancel(played_ms=80.0, keep=True)
    assert (cancel.gen, cancel.played_ms, cancel.keep) == (0, 80.0, True)
    box.text("new")
    box.cancel(None, keep=True)
    box.text("newest")
    assert said(box) == ["cancel 0", "cancel 1", "2:0 newest"]
    assert box.awaits_cancelled
    assert box.cancelled(1)
    assert not box.cancelled(1), "acknowledged again"
    assert said(box) == ["cancel 1", "2:0 newest"]
    assert box.cancelled(2)
    assert not box.awaits_cancelled
    assert said(box) == ["2:0 newest"]


def test_somebody_else_s_cancel_begins_its_generation_here_too() -> None:
    box = Outbox()
    box.text("old")
    box.finish()
    assert box.cancelled(1)
    assert (box.gen, said(box), box.unspoken_chars) == (1, [], 0)
    assert box.text("new").gen == 1


@pytest.mark.parametrize("text", ["a\0b", "\udc00\udc00", "\ud83dx"])
def test_what_is_no_text_is_refused_and_takes_no_number(text: str) -> None:
    box = Outbox()
    with pytest.raises(WireError, match="bad_request: text: "):
        box.text(text)
    assert box.text("a").seq == 0


def test_a_surrogate_pair_may_be_cut() -> None:
    box = Outbox()
    box.text("\ud83d")
    box.text("\ude42")
    assert said(box) == ["0:0 \ud83d", "0:1 \ude42"]


def test_nothing_comes_after_finish_but_a_cancel_that_keeps_the_session() -> None:
    box = Outbox()
    box.finish()
    with pytest.raises(WireError, match="no text after finish"):
        box.text("a")
    with pytest.raises(WireError, match="no flush after finish"):
        box.flush()
    box.cancel(None, keep=True)
    assert box.text("a").seq == 0
    box.cancel(None, keep=False)
    with pytest.raises(WireError):
        box.text("b")
