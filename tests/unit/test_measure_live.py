"""What a live measurement hears and counts."""

from __future__ import annotations

import pytest

from tests.unit.measure_pool import FRAME, end
from worker.errors import WireError
from worker.measure.live import LiveRun
from worker.measure.live_call import noted, parts_of, words_of
from worker.measure.live_ear import Ear
from worker.measure.live_record import BargeIn, CallRecord, Scene, summarise_live
from worker.measure.live_report import live_dict, live_remarks
from worker.measure.record import Outcome
from worker.measure.stalls import Phase
from worker.wire.events import Audio, Cancelled, NeedText

STALLS = Phase(10, 1.0, 0.0, 0.0, 0.0, 0, True, (), ())


def audio(seq: int, *, gen: int = 0, frame: int | None = None) -> Audio:
    place = seq if frame is None else frame
    return Audio(b"\x00\x40" * FRAME, seq, place * FRAME, gen, "pcm_s16le")


def hear(ear: Ear, *events: Audio | Cancelled | NeedText) -> Ear:
    """One each 80 ms, from 1 s on."""
    for index, event in enumerate(events):
        ear.hear(event, 1.0 + 0.08 * index)
    return ear


CANCELLED = Cancelled(gen=1, spoken="a", unspoken="b")


def test_a_call_without_a_fault() -> None:
    ear = hear(Ear(), audio(0), audio(1), CANCELLED, audio(2, gen=1), audio(3, gen=1))
    ear.hear(end(4), 2.0)
    assert (ear.lost, ear.doubled, ear.stale, ear.misplaced, ear.lost_samples) == (0, 0, 0, 0, 0)
    assert ear.cancelled_at == {1: pytest.approx(1.16)}
    assert ear.utterances[0].last_at == pytest.approx(1.08)
    assert ear.utterances[1].first_at == pytest.approx(1.24)
    assert not ear.heard(2)


def test_a_frame_that_is_lost_is_counted_by_number_and_by_time() -> None:
    ear = hear(Ear(), audio(0), audio(2))
    assert (ear.lost, ear.lost_samples) == (1, FRAME)


def test_a_lost_last_frame_shows_at_the_end() -> None:
    ear = hear(Ear(), audio(0))
    ear.hear(end(2), 2.0)
    assert ear.lost_samples == FRAME


def test_a_frame_that_comes_twice_is_counted_under_the_same_number_and_under_another() -> None:
    assert hear(Ear(), audio(0), audio(0)).doubled == 1
    assert hear(Ear(), audio(0), audio(1, frame=0)).misplaced == 1


def test_a_frame_after_the_acknowledgement_of_its_cancel_is_stale() -> None:
    ear = hear(Ear(), audio(0), CANCELLED, audio(1))
    assert ear.stale == 1
    assert hear(Ear(), audio(0), audio(1), CANCELLED).stale == 0


def test_audio_after_a_stall_is_noted_once() -> None:
    ear = hear(Ear(), audio(0), NeedText(text_seq=1))
    assert ear.starved
    ear.hear(audio(1), 3.0)
    ear.hear(audio(2), 3.1)
    assert ear.resumed_at == [3.0]
    assert ear.utterances[0].player.underrun_count == 0  # nobody had anything to say meanwhile


def test_what_was_played_begins_where_the_utterance_does() -> None:
    ear = hear(Ear(), audio(0), CANCELLED, audio(1, gen=1))
    utterance = ear.utterances[1]  # heard from 1.16 s on, played 60 ms later
    assert utterance.played_ms(1.2) == pytest.approx(80.0)
    assert utterance.played_ms(1.26) == pytest.approx(120.0)
    assert utterance.played_ms(9.0) == pytest.approx(160.0)


async def test_who_waits_learns_of_the_end_and_of_a_failure() -> None:
    ear = Ear()
    ear.hear(end(0), 1.0)
    await ear.until(lambda: ear.end is not None)
    with pytest.raises(EOFError):
        await ear.until(lambda: ear.heard(0))
    failed = Ear()
    failed.fail(WireError("internal", "no"))
    with pytest.raises(WireError):
        await failed.until(lambda: failed.heard(0))


@pytest.mark.parametrize("text", ["One two, three.", " leading and trailing  ", "", "  ", "a\nb"])
def test_words_are_together_the_text(text: str) -> None:
    assert "".join(words_of(text)) == text


def test_words_have_the_space_before_them() -> None:
    assert words_of("One two, three.") == ["One", " two,", " three."]


def test_parts_are_together_the_words_and_none_is_empty() -> None:
    assert parts_of(["a", "b", "c", "d", "e"], 4) == [["a"], ["b"], ["c"], ["d", "e"]]
    assert parts_of(["a", "b"], 4) == [["a"], ["b"]]


def test_a_refusal_is_no_lost_session_and_a_silence_is() -> None:
    refused, silent = CallRecord(Scene.TYPED), CallRecord(Scene.TYPED)
    with noted(refused):
        raise WireError("no_capacity", "full")
    with noted(silent):
        raise TimeoutError
    summary = summarise_live([refused, silent], 2, 1.0)
    assert (summary.refused, summary.lost_sessions) == (1, 1)
    assert summary.codes == {"no_capacity": 1, "TimeoutError": 1}
    assert summary.faults == 1


def test_the_figures_of_several_calls() -> None:
    first = CallRecord(Scene.INTERRUPTED, Outcome.FINISHED, first_audio_s=0.1, ear=hear(Ear(), audio(0), audio(1)))
    first.barge_ins += [BargeIn(0.0, 0.01, 0.2), BargeIn(0.05, 0.06, 0.3)]
    slow = CallRecord(Scene.SLOW_LISTENER, Outcome.FINISHED, ear=hear(Ear(), audio(0), audio(2), audio(2)))
    joined = CallRecord(Scene.JOINED, Outcome.FINISHED, first_audio_s=0.4)
    run = LiveRun(summarise_live([first, slow, joined], 3, 5.0), STALLS)
    told = live_dict(run)
    assert told["calls"] == {
        "typed": 0, "stalled": 0, "interrupted": 1, "slow_listener": 1, "hung_up": 0, "joined": 1
    }  # fmt: skip
    counts = {name: value["count"] for name, value in told.items() if isinstance(value, dict) and "p50" in value}
    assert counts == {
        "first_audio_ms": 1,
        "joined_first_audio_ms": 1,
        "cancel_to_last_frame_ms": 2,
        "cancel_to_cancelled_ms": 2,
        "cancel_to_next_audio_ms": 2,
        "lateness_ms": 2,
        "lateness_beside_a_slow_listener_ms": 1,
    }
    assert run.summary.last_frame is not None
    assert run.summary.last_frame.max == 0.05
    assert (told["lost_frames"], told["doubled_frames"], told["lost_samples"]) == (1, 1, FRAME)
    assert run.summary.faults == 3
    assert "frames lost: 1, doubled: 1, after their cancelled: 0" in "\n".join(live_remarks(run))
