from __future__ import annotations

import itertools

import pytest

from tests.unit.measure_pool import FRAME, AudioAfter, HearMore, Script, ScriptedPool, end, frames
from worker.client_events import Gap, WorkerGone
from worker.errors import NoResponders, RequestTimeout, WireError, WorkerError
from worker.measure.load import RATE, Load, Plan
from worker.measure.record import Outcome, SessionRecord, Summary, summarise
from worker.wire.events import Error, NeedText
from worker.wire.requests import AudioFormat

SHORT_S = 0.05
"""Long enough for every script: they take no time but what they say."""


async def load(*scripts: Script | WorkerError, plan: Plan | None = None) -> tuple[list[SessionRecord], ScriptedPool]:
    pool = ScriptedPool(list(scripts))
    plan = plan or Plan(sessions=1, seconds=SHORT_S)
    texts, seeds = itertools.cycle(["One text.", "Another."]), itertools.count(7)
    return await Load(pool, plan, texts, seeds).run(), pool


async def first(*scripts: Script | WorkerError) -> SessionRecord:
    records, _ = await load(*scripts)
    return records[0]


def summary(records: list[SessionRecord], sessions: int = 1) -> Summary:
    return summarise(records, sessions, SHORT_S, RATE)


async def test_a_session_is_heard_to_its_end_and_the_next_is_opened() -> None:
    records, pool = await load([*frames(3), end(3)], [*frames(2), end(2)])
    assert [record.outcome for record in records] == [Outcome.FINISHED, Outcome.FINISHED, Outcome.CUT]
    assert [record.first_wave for record in records] == [True, False, False]
    assert [(request.text, request.final, request.seed) for request in pool.requests] == [
        ("One text.", True, 7),
        ("Another.", True, 8),
        ("One text.", True, 9),
    ]
    total = summary(records)
    assert (total.opened, total.messages, total.underruns) == (3, 5, 0)
    assert total.audio_s == pytest.approx(5 * 0.08)
    assert total.clean


async def test_the_first_audio_counts_from_the_open_and_an_empty_message_is_none() -> None:
    record = await first([AudioAfter(0.05, 0, b""), *frames(2, first_s=0.2), end(2)])
    assert record.first_audio_s == pytest.approx(0.2)


async def test_silence_at_the_beginning_is_added_for_who_listens() -> None:
    quiet: Script = [AudioAfter(0.1, 0, bytes(2 * FRAME)), AudioAfter(0.11, 1), end(2)]
    record = await first(quiet)
    assert record.first_audio_s == pytest.approx(0.1)
    assert record.audible_s == pytest.approx(0.1 + 0.08, abs=0.006)
    silent = await first([AudioAfter(0.1, 0, bytes(2 * FRAME)), end(1)])
    assert silent.audible_s is None


async def test_real_time_factor_is_to_the_last_audio() -> None:
    record = await first([*frames(3, first_s=0.1, every_s=0.01), end(3)])
    assert record.rtf == pytest.approx(0.12 / 0.24)


async def test_all_slots_open_in_the_same_instant() -> None:
    records, pool = await load(plan=Plan(sessions=5, seconds=SHORT_S))
    assert len(pool.requests) == 5
    assert all(record.first_wave for record in records)
    assert len({record.opened_at for record in records}) <= 5


async def test_what_still_speaks_at_the_end_is_cancelled_and_counts() -> None:
    records, pool = await load(frames(3))
    assert pool.speeches[0].cancelled
    (record,) = records
    assert (record.outcome, record.code) == (Outcome.CUT, "")
    assert record.first_audio_s == pytest.approx(0.1)
    assert summary(records).clean


async def test_audio_that_is_overdue_at_the_end_is_an_underrun() -> None:
    """A worker that stops must not gain by the end of the measurement."""
    records, _ = await load([AudioAfter(-1.2, 0), AudioAfter(-1.1, 1)])  # and nothing since then
    total = summary(records)
    assert total.underruns == 1
    assert total.worst[0].late_s > 0.8
    assert not total.clean


async def test_a_session_without_any_audio_is_told() -> None:
    records, _ = await load()
    total = summary(records)
    assert total.first_audio is None
    assert total.mute is not None
    assert total.mute.count == 1
    assert total.mute.max >= SHORT_S / 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (WireError("no_capacity", "no worker has room"), "no_capacity"),
        (NoResponders("tts.v1.default.open.std"), "no_responders"),
        (RequestTimeout("tts.v1.default.open.std", 0.3), "timeout"),
    ],
)
async def test_a_refused_open_is_counted_and_no_session(error: WorkerError, code: str) -> None:
    records, _ = await load(error)
    total = summary(records)
    assert (total.opened, total.refused, total.codes) == (0, 1, {code: 1})
    assert total.outcomes["failed"] == 0
    assert not total.clean


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ([*frames(1), Error(code="model_failure", message="x", retryable=True), end(1, "failed")], "model_failure"),
        ([*frames(1), end(1, "limit")], "limit"),
        ([*frames(1), WorkerGone("nothing heard")], "WorkerGone"),
    ],
)
async def test_a_session_that_ends_badly_has_failed(script: Script, code: str) -> None:
    records, _ = await load(script)
    assert (records[0].outcome, records[0].code) == (Outcome.FAILED, code)
    assert not summary(records).clean


async def test_lost_audio_is_found_in_the_middle_and_at_the_end() -> None:
    record = await first([AudioAfter(0.1, 0), Gap(1, 1), AudioAfter(0.2, 2), end(5)])
    assert record.lost_messages == 1
    assert record.player is not None
    assert record.player.lost_samples == 3 * FRAME
    assert record.outcome is Outcome.FINISHED
    assert not summary([record]).clean


async def test_late_audio_is_an_underrun_unless_the_model_had_no_text() -> None:
    late: Script = [AudioAfter(0.1, 0), AudioAfter(0.9, 1), end(2)]
    starved: Script = [AudioAfter(0.1, 0), NeedText(text_seq=1), AudioAfter(0.9, 1), end(2)]
    assert summary([await first(late)]).underruns == 1
    waited = summary([await first(starved)])
    assert (waited.underruns, waited.waits) == (0, 1)


async def test_a_typed_text_is_sent_character_by_character_and_finished() -> None:
    plan = Plan(sessions=1, seconds=5.0, mode="paced", char_ms=1.0)
    script: Script = [HearMore(4), *frames(1), HearMore(9), end(1), WorkerGone("so that nothing follows")]
    pool = ScriptedPool([script])
    load = Load(pool, plan, iter(["One text."]), itertools.count())
    with pytest.raises(ExceptionGroup):  # the texts have run out
        await load.run()
    (speech,) = pool.speeches
    assert speech.sent == "One text."
    assert pool.requests[0].text is None
    assert not pool.requests[0].final
    (record, _) = load.records
    assert record.sent_share is not None
    assert 4 / 9 <= record.sent_share < 1.0
    assert all(at >= speech.opened_at + 0.001 * index for index, at in enumerate(speech.sent_at))


async def test_the_format_is_asked_for_and_its_samples_are_counted() -> None:
    script: Script = [AudioAfter(0.1, 0, b"\x00" * FRAME), end(1)]  # as long as a frame of mu-law at 24 kHz would be
    form = AudioFormat(encoding="mulaw", sample_rate=8_000)
    records, pool = await load(script, plan=Plan(sessions=1, seconds=SHORT_S, format=form))
    assert pool.requests[0].format == form
    assert records[0].player is not None
    assert records[0].player.samples == FRAME
    assert records[0].player.audio_s == pytest.approx(FRAME / 8_000)
