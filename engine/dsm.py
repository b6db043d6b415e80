"""``DsmEngine``: the fused step with its host side, as the scheduler's ``FrameEngine``.

The host side feeds the slots' text rings (any amount of text: what does not fit waits here), keeps the order of text,
flush and finish, and turns a step's report into ``SlotFrame`` records.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch
from torch import Tensor

from engine.casting import UNCAST, Casting, Part, Snapshot
from engine.checkpoint import Checkpoint, MimiCheckpoint
from engine.codec import spectral
from engine.config import SpectralConfig
from engine.contract import Entry, ModelInfo, SlotFrame, SlotOptions
from engine.errors import UnusableRecord
from engine.kernels import REBUILD_ROWS, Kernels, TorchKernels
from engine.recital import Recital
from engine.records import pack, unpack
from engine.slots import SlotBuffers
from engine.step import Forced, FusedStep, Report, StepOutput, to_int16
from engine.text import ENTRY_RING, MAX_WORD_TOKENS, TOKEN_RING, Field, TextBuffers
from engine.turns import is_marked, mark_turn


class Marker(enum.Enum):
    """What may stand between entries in a slot's feed."""

    FLUSH = enum.auto()
    FINISH = enum.auto()


@dataclass(slots=True)
class Feed:
    """Text of one slot on its way to the device. Counters are absolute."""

    waiting: deque[Entry | Marker] = field(default_factory=deque)
    flushing: bool = False
    tokens: int = 0
    words: int = 0
    entries: int = 0
    tokens_read: int = 0
    words_read: int = 0
    entries_read: int = 0
    step: int = 0
    """Steps committed, those of a prefix too."""
    part: Part = UNCAST
    begun: bool = False
    """A word has been pushed."""
    recorded: bool = False

    def fits(self, entry: Entry, more_tokens: int = 0, more_entries: int = 0) -> bool:
        """Whether the rings have room for an entry behind that many tokens and entries that are about to be written."""
        slack = 8  # more than any look-ahead reads behind or before
        return (
            self.tokens + more_tokens + len(entry.tokens) - self.tokens_read <= TOKEN_RING
            and self.words + more_entries - self.words_read < ENTRY_RING - slack
            and self.entries + more_entries - self.entries_read < ENTRY_RING - slack
        )

    def take_batch(self) -> list[Entry]:
        """Entries from the front of the queue that fit, up to the next marker."""
        batch: list[Entry] = []
        tokens = 0
        while self.waiting:
            head = self.waiting[0]
            if not isinstance(head, Entry) or not self.fits(head, tokens, len(batch)):
                break
            batch.append(head)
            tokens += len(head.tokens)
            self.waiting.popleft()
        return batch


@dataclass(frozen=True, slots=True)
class Ticket:
    slots: tuple[int, ...]
    output: StepOutput


class DsmEngine:
    """A DSM model over ``capacity`` slots. One thread owns it (see ``FrameEngine``)."""

    run_ahead = 0

    def __init__(
        self,
        model: Checkpoint | MimiCheckpoint,
        info: ModelInfo,
        kernels: Kernels,
        capacity: int,
        device: torch.device,
        casting: Casting | None = None,
    ) -> None:
        """casting: for a model with conditions."""
        self.info = info
        self.capacity = capacity
        self.kernels = kernels
        self._config, self._codec, self._device = model.config, model.codec, device
        self._buffers = SlotBuffers.empty(model.config, capacity, device)
        self._step = FusedStep(model.config, kernels, self._buffers, model.codec.frame_samples)
        self._casting = casting
        self._feeds: dict[int, Feed] = {}

    def prepare(self, options: SlotOptions) -> None:
        """Check and fetch what a session asks for, before it is opened; from any thread (see ``Casting.prepare``)."""
        if self._casting is not None:
            self._casting.prepare(options)

    def open(self, slot: int, options: SlotOptions) -> None:
        """Raises VoiceNotFound, UnusableVoice or UnsupportedOption, and the slot is not open then."""
        assert 0 <= slot < self.capacity, f"slot {slot} of {self.capacity}"
        self._buffers.reset(slot, self._config, options)
        self.kernels.clear(slot)
        feed = Feed(recorded=options.recorded)
        if self._casting is not None:
            feed.part = self._casting.cast(slot, options, self._buffers)
            self._resume(slot, feed)
        self._feeds[slot] = feed

    def push(self, slot: int, entries: Sequence[Entry]) -> None:
        assert all(len(entry.tokens) <= MAX_WORD_TOKENS for entry in entries), (
            f"over {MAX_WORD_TOKENS} tokens in a word"
        )
        self._feeds[slot].waiting.extend(self._marked(self._feeds[slot], entries))

    def flush(self, slot: int) -> None:
        self._feeds[slot].waiting.append(Marker.FLUSH)

    def finish(self, slot: int) -> None:
        self._feeds[slot].waiting.append(Marker.FINISH)

    def close(self, slot: int) -> None:
        del self._feeds[slot]
        if self._casting is not None:
            self._casting.release(slot)

    def in_delay(self, slot: int) -> bool:
        return self._feeds[slot].step < self._config.text.delay_steps

    @property
    def sound_reach(self) -> int | None:
        return spectral.reach(self._codec) if isinstance(self._codec, SpectralConfig) else None

    @torch.inference_mode()
    def seek(self, slot: int, step: int) -> None:
        feed = self._feeds[slot]
        self._speak_prefix(slot)
        self._buffers.leave_out(slot, step)
        feed.step += step
        feed.begun = True

    @torch.inference_mode()
    def rebuild(self, slot: int, records: Sequence[bytes], sound: bool) -> Sequence[SlotFrame]:
        self._speak_prefix(slot)
        rows, new = (part.to(self._device) for part in unpack(records, self._config.codebooks))
        frames: list[SlotFrame] = []
        while len(frames) < len(rows):
            at = slice(len(frames), len(frames) + REBUILD_ROWS)
            frames += self._rebuild(slot, rows[at], new[at], sound)
        return [replace(frame, record=record) for frame, record in zip(frames, records, strict=True)]

    def _rebuild(self, slot: int, rows: Tensor, new: Tensor, sound: bool) -> list[SlotFrame]:
        """Steps up to the end of an utterance, where the codec is cleared."""
        feed, exact = self._feeds[slot], int(self._buffers.base[slot]) == 0
        start, reports = feed.step, []
        self._deliver_text(slot)
        recital = Recital(self._config, self._buffers.text, slot)
        for chosen, token in zip(new.tolist(), rows[:, 0].tolist(), strict=True):
            told = recital.step(chosen)
            if told is None:  # perhaps it only waits for what did not fit the rings
                recital.save()
                self._deliver_text(slot)
                recital = Recital(self._config, self._buffers.text, slot)
                told = recital.step(chosen)
            if told is None or (exact and told[1] != token):
                raise UnusableRecord("does not fit the text")
            reports.append(told[0])
            self._note(slot, told[0])
            if told[0][Report.FLUSHED] or told[0][Report.ENDED]:
                break
        recital.save()
        pcm = self._step.reread(slot, rows[: len(reports)], start, sound, feed.part.guided)
        if pcm is None:
            pcm = torch.zeros(len(reports), self._codec.frame_samples, dtype=torch.int16)
        return [self._frame(slot, report, samples) for report, samples in zip(reports, pcm.cpu(), strict=True)]

    def _speak_prefix(self, slot: int) -> None:
        feed = self._feeds[slot]
        while feed.step < feed.part.frames:
            self.collect(self.launch([slot]))

    @torch.inference_mode()
    def launch(self, slots: Sequence[int], forced: Forced | None = None) -> Ticket:
        for slot in slots:
            self._deliver_text(slot)
        full = not all(self.in_delay(slot) for slot in slots)
        rows = [row for row, slot in enumerate(slots) if self._feeds[slot].part.guided]
        guided = torch.tensor(rows, device=self._device) if rows else None
        return Ticket(tuple(slots), self._step(torch.tensor(slots, device=self._device), full, forced, guided))

    @torch.inference_mode()
    def collect(self, ticket: object) -> Sequence[SlotFrame]:
        assert isinstance(ticket, Ticket)
        reports, pcm = ticket.output.report.tolist(), ticket.output.pcm.cpu()
        recorded = any(self._feeds[slot].recorded for slot in ticket.slots)
        tokens = ticket.output.tokens.tolist() if recorded else [[]] * len(reports)
        frames = []
        for slot, report, row, samples in zip(ticket.slots, reports, tokens, pcm.unbind(0), strict=True):
            self._note(slot, report)
            frame = self._frame(slot, report, samples)
            if self._feeds[slot].recorded and frame.committed:
                frame = replace(frame, record=pack(row, bool(report[Report.NEW])))
            frames.append(frame)
            self._remember(slot)
        return frames

    def _note(self, slot: int, report: list[int]) -> None:
        """What a step has read of the text."""
        feed = self._feeds[slot]
        feed.step, feed.words_read, feed.entries_read = (
            report[Report.STEP],
            report[Report.WORDS_TAKEN],
            report[Report.ENTRIES_TAKEN],
        )
        feed.tokens_read = min(report[Report.CUR], report[Report.AHEAD]) if self._ahead else report[Report.CUR]
        feed.flushing = feed.flushing and not report[Report.FLUSHED]

    def _frame(self, slot: int, report: list[int], pcm: Tensor) -> SlotFrame:
        flushed, ended = bool(report[Report.FLUSHED]), bool(report[Report.ENDED])
        spoken = report[Report.STEP] - self._feeds[slot].part.frames
        start = (spoken - 1 - self._config.warm_up_steps) * self._codec.frame_samples - self._codec.overlap
        sound = pcm[-min(start, 0) :] if report[Report.SOUNDING] else pcm[:0]
        if flushed or ended:
            tail = self.kernels.codec_tail(slot).cpu()
            sound = torch.cat([sound, to_int16(tail)])
        return SlotFrame(
            slot=slot,
            committed=bool(report[Report.COMMIT]),
            step=max(spoken, 0),
            pcm=sound.numpy().tobytes(),
            model_start=max(start, 0),
            word=bool(report[Report.WORD]),
            pause=bool(report[Report.PAUSE]),
            flushed=flushed,
            ended=ended,
            failed=bool(report[Report.FAILED]),
        )

    def _marked(self, feed: Feed, entries: Sequence[Entry]) -> Iterable[Entry]:
        """The first word of a generation says who speaks, if the model was trained to hear it."""
        for entry in entries:
            if entry.is_word and not feed.begun:
                feed.begun = True
                if self._config.hears_voices and not is_marked(entry):
                    entry = mark_turn(entry, 0)
            yield entry

    def _resume(self, slot: int, feed: Feed) -> None:
        """Put a slot at the end of its prefix if another session has been there."""
        key, kernels = feed.part.prefix, self.kernels
        if self._casting is None or key is None or not isinstance(kernels, TorchKernels):
            return
        snapshot = self._casting.snapshot(key)
        if snapshot is not None:
            kernels.restore(slot, snapshot.kernels)
            self._buffers.history[slot] = snapshot.history
            feed.step = feed.part.frames
            self._buffers.text.state[slot, Field.STEP] = feed.step

    def _remember(self, slot: int) -> None:
        """Keep a slot that has come to the end of its prefix, for the sessions that follow."""
        feed, kernels = self._feeds[slot], self.kernels
        key = feed.part.prefix
        if self._casting is None or key is None or feed.step != feed.part.frames:
            return
        if isinstance(kernels, TorchKernels) and self._casting.snapshot(key) is None:
            snapshot = Snapshot(kernels.save(slot, feed.part.guided), self._buffers.history[slot].clone())
            self._casting.keep(key, snapshot)

    @property
    def _ahead(self) -> int:
        return self._config.text.second_stream_ahead

    def _deliver_text(self, slot: int) -> None:
        """Move what fits from the host's queue into the slot's rings."""
        feed, buffers = self._feeds[slot], self._buffers.text
        while feed.waiting and not feed.flushing:
            batch = feed.take_batch()
            if batch:
                write_entries(buffers, slot, feed, batch)
                continue
            head = feed.waiting[0]
            if isinstance(head, Entry):
                return
            feed.waiting.popleft()
            if head is Marker.FLUSH:
                feed.flushing = True
                buffers.state[slot, Field.FLUSH_AT] = feed.entries
            else:
                buffers.state[slot, Field.CLOSED] = 1


def write_entries(buffers: TextBuffers, slot: int, feed: Feed, batch: Sequence[Entry]) -> None:
    """Put entries that fit into a slot's rings, and count them."""
    words = [entry for entry in batch if entry.is_word]
    tokens = [token for entry in words for token in entry.tokens]
    ends = list(accumulate((len(entry.tokens) for entry in words), initial=feed.tokens))[1:]
    _put(buffers.entries[slot], feed.entries, [entry.padding * 2 + entry.is_word for entry in batch])
    _put(buffers.word_begin[slot], feed.words + 1, ends)
    _put(buffers.tokens[slot], feed.tokens, tokens)
    feed.entries, feed.words, feed.tokens = (
        feed.entries + len(batch),
        feed.words + len(words),
        feed.tokens + len(tokens),
    )
    buffers.state[slot, Field.ENTRIES_GIVEN] = feed.entries
    buffers.state[slot, Field.WORDS_GIVEN] = feed.words


def _put(ring: Tensor, start: int, values: Iterable[int]) -> None:
    """Write values at absolute index ``start`` of a ring."""
    fresh = torch.tensor(list(values), dtype=torch.int64, device=ring.device)
    index = torch.arange(start, start + len(fresh), device=ring.device) % len(ring)
    ring[index] = fresh
