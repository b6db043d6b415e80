"""``DsmEngine``: the fused step with its host side, as the scheduler's ``FrameEngine``.

The host side feeds the slots' text rings (any amount of text: what does not fit waits here), keeps the order of text,
flush and finish, and turns a step's report into ``SlotFrame`` records.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch
from torch import Tensor

from engine.casting import UNCAST, Casting, Part, Snapshot
from engine.checkpoint import Checkpoint, MimiCheckpoint
from engine.codec import spectral
from engine.config import SpectralConfig
from engine.contract import Entry, ModelInfo, SlotFrame, SlotOptions
from engine.control import Control
from engine.device import Device
from engine.errors import UnusableRecord
from engine.graphs import Captured, GraphRunner, StaticKernels, spare
from engine.kernels import REBUILD_ROWS, Kernels, TorchKernels
from engine.native import NativeKernels
from engine.native_runner import NativeRunner
from engine.recital import Recital
from engine.records import pack, unpack
from engine.runner import Batch, DirectRunner, Landed, Runner, over
from engine.slots import SlotBuffers
from engine.step import Forced, FusedStep, Report, StepOutput, to_int16
from engine.text import ENTRY_RING, MAX_WORD_TOKENS, TOKEN_RING, Field, TextBuffers
from engine.turns import Turns


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
    recorded: bool = False
    turns: Turns = field(default_factory=Turns)
    in_flight: int = 0
    """Steps launched and not collected."""
    prefixed: Snapshot | None = None
    """The slot as it was launched from the end of its prefix, if that is where the steps in flight have led."""

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
    flight: object
    """The runner's."""

    @property
    def output(self) -> StepOutput:
        """Of a plain step."""
        assert isinstance(self.flight, tuple)
        output = self.flight[1]
        assert isinstance(output, StepOutput)
        return output


class DsmEngine:
    """A DSM model over ``capacity`` slots. One thread owns it (see ``FrameEngine``)."""

    def __init__(
        self,
        model: Checkpoint | MimiCheckpoint,
        info: ModelInfo,
        kernels: Kernels,
        capacity: int,
        device: torch.device,
        casting: Casting | None = None,
        graphs: Device | None = None,
        threads: int = 0,
    ) -> None:
        """casting: None for a model of one voice that takes no options but those of its slots. graphs: what to capture
        the steps on, with the kernels made for one slot more than ``capacity``; None: steps are plain calls. threads:
        that share the rows of a native step, made as one call; 0: its operations are called one by one."""
        self.info = info
        self.capacity = capacity
        self.kernels = kernels
        self.config, self.codec, self.device = model.config, model.codec, device
        self._config, self._codec = model.config, model.codec
        more, numbers = (0, 0) if graphs is None else (1, spare(capacity))
        self._buffers = SlotBuffers.empty(model.config, capacity + more, device, numbers)
        self._step = step = FusedStep(
            model.config, kernels, self._buffers, model.codec.frame_samples, rests=graphs is not None
        )
        self._runner: Runner = DirectRunner(step, kernels, device)
        if isinstance(kernels, NativeKernels) and threads:
            self._runner = NativeRunner(model.config, kernels, self._buffers, model.codec.frame_samples, threads)
        self.captured: Captured | None = None
        if graphs is not None:
            assert isinstance(kernels, StaticKernels), "kernels that can be captured"
            runner = GraphRunner(step, kernels, self._buffers, graphs)
            self._runner, self.captured = runner, runner.capture(model.config.guided)
        self._casting = casting
        self._feeds: dict[int, Feed] = {}

    def lacking(self, options: SlotOptions) -> Sequence[str]:
        return () if self._casting is None else self._casting.lacking(options)

    def fetch(self, voice: str) -> None:
        if self._casting is not None:
            self._casting.fetch(voice)

    def open(self, slot: int, options: SlotOptions) -> None:
        """Raises VoiceNotFound, UnusableVoice or UnsupportedOption, and the slot is not open then."""
        assert 0 <= slot < self.capacity, f"slot {slot} of {self.capacity}"
        feed = Feed(recorded=options.recorded)
        with self._runner.context():
            self._buffers.reset(slot, self._config, options, self._runner.control)
            self.kernels.clear(slot)
            if self._casting is not None:
                feed.part = self._casting.cast(slot, options, self._buffers)
                self._resume(slot, feed)
        self._feeds[slot] = feed

    def push(self, slot: int, entries: Sequence[Entry]) -> None:
        assert all(len(entry.tokens) <= MAX_WORD_TOKENS for entry in entries), (
            f"over {MAX_WORD_TOKENS} tokens in a word"
        )
        feed = self._feeds[slot]
        feed.waiting.extend(feed.turns.marked(entries) if self._config.hears_voices else entries)

    def flush(self, slot: int) -> None:
        self._feeds[slot].waiting.append(Marker.FLUSH)

    def finish(self, slot: int) -> None:
        self._feeds[slot].waiting.append(Marker.FINISH)

    def close(self, slot: int) -> None:
        del self._feeds[slot]
        if self._casting is not None:
            self._casting.release(slot)

    @property
    def run_ahead(self) -> int:
        return self._runner.run_ahead

    def in_delay(self, slot: int) -> bool:
        feed = self._feeds[slot]  # a step in flight may turn out to be a stall; a whole frame is right then, too
        return feed.step + feed.in_flight < self._config.text.delay_steps

    @property
    def sound_reach(self) -> int | None:
        return spectral.reach(self._codec) if isinstance(self._codec, SpectralConfig) else None

    @torch.inference_mode()
    def seek(self, slot: int, step: int, speaker: int = 0) -> None:
        feed = self._feeds[slot]
        self._speak_prefix(slot)
        with self._runner.context():
            self._runner.control.settle()
            self._buffers.leave_out(slot, step)
        feed.step += step
        feed.turns = Turns(speaker)

    @torch.inference_mode()
    def rebuild(self, slot: int, records: Sequence[bytes], sound: bool) -> Sequence[SlotFrame]:
        self._speak_prefix(slot)
        frames: list[SlotFrame] = []
        with self._runner.context():
            rows, new = (part.to(self.device) for part in unpack(records, self._config.codebooks))
            while len(frames) < len(rows):
                at = slice(len(frames), len(frames) + REBUILD_ROWS)
                frames += self._rebuild(slot, rows[at], new[at], sound)
        return [replace(frame, record=record) for frame, record in zip(frames, records, strict=True)]

    def _rebuild(self, slot: int, rows: Tensor, new: Tensor, sound: bool) -> list[SlotFrame]:
        """Steps up to the end of an utterance, where the codec is cleared."""
        feed, exact = self._feeds[slot], int(self._buffers.base[slot]) == 0
        start, reports = feed.step, []
        recital = self._recital(slot)
        for chosen, token in zip(new.tolist(), rows[:, 0].tolist(), strict=True):
            told = recital.step(chosen)
            if told is None:  # perhaps it only waits for what did not fit the rings
                recital.save()
                recital = self._recital(slot)
                told = recital.step(chosen)
            if told is None or (exact and told[1] != token):
                raise UnusableRecord("does not fit the text")
            reports.append(told[0])
            self._note(slot, told[0])
            if over(reports[-1:]):
                break
        recital.save()
        pcm = self._step.reread(slot, rows[: len(reports)], start, sound, feed.part.guided)
        if pcm is None:
            pcm = torch.zeros(len(reports), self._codec.frame_samples, dtype=torch.int16)
        tails = {row: to_int16(self.kernels.codec_tail(slot)).cpu() for row in over(reports)}
        parts = enumerate(zip(reports, pcm.cpu(), strict=True))
        return [self._frame(slot, report, samples, tails.get(row)) for row, (report, samples) in parts]

    def _recital(self, slot: int) -> Recital:
        self._deliver_text(slot)
        self._runner.control.settle()
        return Recital(self._config, self._buffers.text, slot)

    def _speak_prefix(self, slot: int) -> None:
        feed = self._feeds[slot]
        while feed.step < feed.part.frames:
            self.collect(self.launch([slot]))

    @torch.inference_mode()
    def launch(self, slots: Sequence[int], forced: Forced | None = None) -> Ticket:
        with self._runner.context():
            for slot in slots:
                self._deliver_text(slot)
                self._picture(slot)
            full = not all(self.in_delay(slot) for slot in slots)
            guided = tuple(row for row, slot in enumerate(slots) if self._feeds[slot].part.guided)
            flight = self._runner.launch(Batch(tuple(slots), guided, full, forced))
        for slot in slots:
            self._feeds[slot].in_flight += 1
        return Ticket(tuple(slots), flight)

    @torch.inference_mode()
    def collect(self, ticket: object) -> Sequence[SlotFrame]:
        assert isinstance(ticket, Ticket)
        for slot in ticket.slots:
            self._feeds[slot].in_flight -= 1
        with self._runner.context():
            landed = self._runner.collect(ticket.flight)
        frames = [self._landed(slot, row, landed) for row, slot in enumerate(ticket.slots)]
        for frame in frames:
            self._remember(frame)
        return frames

    def _landed(self, slot: int, row: int, landed: Landed) -> SlotFrame:
        report = landed.reports[row]
        self._note(slot, report)
        frame = self._frame(slot, report, landed.pcm[row], landed.tails.get(row))
        if self._feeds[slot].recorded and frame.committed:
            return replace(frame, record=pack(landed.tokens[row].tolist(), bool(report[Report.NEW])))
        return frame

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

    def _frame(self, slot: int, report: list[int], pcm: Tensor, tail: Tensor | None) -> SlotFrame:
        flushed, ended = bool(report[Report.FLUSHED]), bool(report[Report.ENDED])
        spoken = report[Report.STEP] - self._feeds[slot].part.frames
        start = (spoken - 1 - self._config.warm_up_steps) * self._codec.frame_samples - self._codec.overlap
        sound = pcm[-min(start, 0) :] if report[Report.SOUNDING] else pcm[:0]
        if tail is not None:
            sound = torch.cat([sound, tail])
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

    def _picture(self, slot: int) -> None:
        """Copy a slot that the steps so far take to the end of its prefix, for the sessions that follow."""
        feed, kernels = self._feeds[slot], self.kernels
        key = feed.part.prefix
        if self._casting is None or key is None or feed.step + feed.in_flight != feed.part.frames:
            return
        if isinstance(kernels, TorchKernels) and feed.prefixed is None and self._casting.snapshot(key) is None:
            saved = kernels.save(slot, feed.part.guided)
            feed.prefixed = Snapshot(saved, self._buffers.history[slot].clone())

    def _remember(self, frame: SlotFrame) -> None:
        """Keep a picture once the steps in it are known to have gone well."""
        feed = self._feeds[frame.slot]
        if feed.prefixed is None or feed.part.prefix is None or self._casting is None or frame.failed:
            return
        if feed.step >= feed.part.frames:
            self._casting.keep(feed.part.prefix, feed.prefixed)
            feed.prefixed = None

    @property
    def _ahead(self) -> int:
        return self._config.text.second_stream_ahead

    def _deliver_text(self, slot: int) -> None:
        """Move what fits from the host's queue into the slot's rings."""
        feed, buffers, control = self._feeds[slot], self._buffers.text, self._runner.control
        while feed.waiting and not feed.flushing:
            batch = feed.take_batch()
            if batch:
                write_entries(buffers, slot, feed, batch, control)
                continue
            head = feed.waiting[0]
            if isinstance(head, Entry):
                return
            feed.waiting.popleft()
            if head is Marker.FLUSH:
                feed.flushing = True
                control.put(buffers.state, slot, Field.FLUSH_AT, (feed.entries,))
            else:
                control.put(buffers.state, slot, Field.CLOSED, (1,))


def write_entries(buffers: TextBuffers, slot: int, feed: Feed, batch: Sequence[Entry], control: Control) -> None:
    """Put entries that fit into a slot's rings, and count them."""
    words = [entry for entry in batch if entry.is_word]
    tokens = [token for entry in words for token in entry.tokens]
    ends = list(accumulate((len(entry.tokens) for entry in words), initial=feed.tokens))[1:]
    control.put(buffers.entries, slot, feed.entries, [entry.padding * 2 + entry.is_word for entry in batch])
    control.put(buffers.word_begin, slot, feed.words + 1, ends)
    control.put(buffers.tokens, slot, feed.tokens, tokens)
    feed.entries, feed.words, feed.tokens = (
        feed.entries + len(batch),
        feed.words + len(words),
        feed.tokens + len(tokens),
    )
    control.put(buffers.state, slot, Field.ENTRIES_GIVEN, (feed.entries,))
    control.put(buffers.state, slot, Field.WORDS_GIVEN, (feed.words,))
