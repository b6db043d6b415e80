"""A torch-free ``FrameEngine`` for tests and simulations: the text machine's rules, and patterns for audio."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from engine.contract import Entry, ModelInfo, SlotFrame, SlotOptions
from engine.errors import UnusableRecord

DEFAULTS = SlotOptions(seed=0, temperature=0.4, top_k=100, temperature_text=0.6, top_k_text=25)


@dataclass(slots=True)
class _Slot:
    options: SlotOptions
    entries: list[Entry] = field(default_factory=list)
    taken: int = 0
    """Entries popped."""
    words_ahead: int = 0
    """Words pushed and not popped."""
    step: int = 0
    wants_at: int = 1
    """From this step on the machine wants an entry (one step of padding comes first)."""
    flushes: deque[int] = field(default_factory=deque)
    """Entries to speak before each flush that is asked for is done."""
    finished: bool = False
    end_step: int | None = None
    """Step at which the machine found nothing more to say; the tail runs from there."""
    asleep: bool = False
    ended: bool = False
    poisoned: bool = False
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class _Ticket:
    slots: tuple[_Slot, ...]
    frames: tuple[SlotFrame, ...]
    text_rows: int
    error: Exception | None


class FakeEngine:
    """Pops a word every ``steps_per_word`` steps, one word of look-ahead kept back like the built-in voice, and brings
    the audio of step ``s`` out at step ``s + delay + acoustic_delay``. Like the spectral codec's, its audio may be
    ``overlap`` samples behind: the first frame is short by them, and a flush or the end brings them.

    ``spend(text_rows, frame_rows)`` is called while a step is collected: advance a fake clock there to give steps a
    cost. Strict where the contract leaves the caller no choice: it asserts that slots are distinct and open, that no
    step is in flight when a slot changes hands, and that no more than ``run_ahead`` + 1 tickets are out.
    """

    def __init__(
        self,
        capacity: int = 4,
        *,
        run_ahead: int = 0,
        delay: int = 5,
        acoustic_delay: int = 1,
        final_padding: int = 3,
        steps_per_word: int = 4,
        overlap: int = 0,
        silent: bool = False,
        spend: Callable[[int, int], None] = lambda text_rows, frame_rows: None,
    ) -> None:
        self._info = ModelInfo(
            name="fake",
            digest=hashlib.blake2b(f"{delay} {acoustic_delay} {steps_per_word}".encode(), digest_size=16).hexdigest(),
            voices=("fake",),
            languages=("en",),
            sample_rate=24_000,
            frame_samples=1_920,
            defaults=DEFAULTS,
            options=frozenset({"seed", "temperature", "top_k", "padding_bonus", "max_padding"}),
        )
        self._slots: list[_Slot | None] = [None] * capacity
        self._run_ahead, self._delay, self._lag = run_ahead, delay, delay + acoustic_delay
        self._tail = delay + acoustic_delay + final_padding
        self._steps_per_word, self._overlap, self._spend = steps_per_word, overlap, spend
        self._silence = bytes(2 * (self._info.frame_samples + overlap)) if silent else b""
        self._error: tuple[Exception, str] | None = None
        self._tickets = 0
        self.stepped: list[tuple[int, ...]] = []
        """Slots of every launch so far that did not raise."""

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def capacity(self) -> int:
        return len(self._slots)

    @property
    def run_ahead(self) -> int:
        return self._run_ahead

    @property
    def open_slots(self) -> list[int]:
        return [index for index, slot in enumerate(self._slots) if slot is not None]

    # -- failures to order -----------------------------------------------------------------------------------------

    def poison(self, slot: int) -> None:
        """The slot's next step finds a value that is not finite."""
        self._slot(slot).poisoned = True

    def raise_once(self, error: Exception, *, in_collect: bool = False) -> None:
        """The next step raises, in ``launch`` or in ``collect``."""
        self._error = (error, "collect" if in_collect else "launch")

    # -- the contract ----------------------------------------------------------------------------------------------

    def lacking(self, options: SlotOptions) -> Sequence[str]:
        return ()

    def fetch(self, voice: str) -> None: ...

    def open(self, slot: int, options: SlotOptions) -> None:
        self._vacate(slot)
        self._slots[slot] = _Slot(options)

    def push(self, slot: int, entries: Sequence[Entry]) -> None:
        state = self._slot(slot)
        assert not state.finished, "text after finish"
        state.entries.extend(entries)
        state.words_ahead += sum(entry.is_word for entry in entries)
        state.asleep = state.asleep and not entries

    def flush(self, slot: int) -> None:
        state = self._slot(slot)
        state.flushes.append(len(state.entries))
        state.asleep = False

    def finish(self, slot: int) -> None:
        state = self._slot(slot)
        state.finished = True
        state.asleep = False

    def close(self, slot: int) -> None:
        self._slot(slot)
        self._vacate(slot)

    def in_delay(self, slot: int) -> bool:
        return self._slot(slot).step < self._delay

    @property
    def sound_reach(self) -> int | None:
        return 0

    def seek(self, slot: int, step: int, speaker: int = 0) -> None:
        state = self._slot(slot)
        state.step, state.wants_at = step, step

    def rebuild(self, slot: int, records: Sequence[bytes], sound: bool) -> Sequence[SlotFrame]:
        frames = [self._retell(slot, record, sound) for record in records]
        text_rows = sum(frame.step <= self._delay for frame in frames)
        self._spend(text_rows, len(frames) - text_rows)
        return frames

    def _retell(self, slot: int, record: bytes, sound: bool) -> SlotFrame:
        frame = self._advance(slot, self._slot(slot))
        if not frame.committed or _record(frame) != record:
            raise UnusableRecord("does not fit the text")
        return replace(frame, record=record, pcm=frame.pcm if sound else bytes(len(frame.pcm)))

    def launch(self, slots: Sequence[int]) -> object:
        assert len(set(slots)) == len(slots) > 0, "slots of a step are distinct, and there is one at least"
        assert self._tickets <= self._run_ahead, f"collect first: {self._tickets} steps are in flight"
        error, place = self._error or (None, "")
        self._error = None
        if error is not None and place == "launch":
            raise error
        states = tuple(self._slot(slot) for slot in slots)
        text_rows = sum(state.step < self._delay for state in states)
        frames = tuple(self._recorded(slot, state) for slot, state in zip(slots, states, strict=True))
        for state in states:
            state.in_flight += 1
        self._tickets += 1
        self.stepped.append(tuple(slots))
        return _Ticket(states, frames, text_rows, error)

    def collect(self, ticket: object) -> Sequence[SlotFrame]:
        assert isinstance(ticket, _Ticket)
        self._tickets -= 1
        for state in ticket.slots:
            state.in_flight -= 1
        self._spend(ticket.text_rows, len(ticket.frames) - ticket.text_rows)
        if ticket.error is not None:
            raise ticket.error
        return ticket.frames

    # -- one slot --------------------------------------------------------------------------------------------------

    def _slot(self, index: int) -> _Slot:
        state = self._slots[index]
        assert state is not None, f"slot {index} is not open"
        return state

    def _vacate(self, index: int) -> None:
        state = self._slots[index]
        assert state is None or state.in_flight == 0, f"slot {index} changes hands with a step in flight"
        self._slots[index] = None

    def _recorded(self, index: int, slot: _Slot) -> SlotFrame:
        frame = self._advance(index, slot)
        recorded = slot.options.recorded and frame.committed
        return replace(frame, record=_record(frame)) if recorded else frame

    def _advance(self, index: int, slot: _Slot) -> SlotFrame:
        if slot.poisoned:
            return SlotFrame(index, False, slot.step, b"", 0, False, failed=True)
        wants = slot.step >= slot.wants_at and slot.end_step is None
        if slot.asleep or slot.ended or (wants and not self._ready(slot)):
            return SlotFrame(index, False, slot.step, b"", 0, False)
        taken = slot.taken
        word = self._pop(slot) if wants else False
        pause = slot.taken > taken and not word
        heard = slot.step - self._lag
        slot.step += 1
        flushed, ended = self._tail_out(slot)
        if heard < 0:
            return SlotFrame(index, True, slot.step, b"", 0, word, flushed, ended, pause=pause)
        start = heard * self._info.frame_samples - self._overlap
        samples = self._info.frame_samples + min(start, 0) + (self._overlap if flushed or ended else 0)
        pcm = self._silence[: 2 * samples] or pattern(slot.options, slot.step, samples)
        return SlotFrame(index, True, slot.step, pcm, max(start, 0), word, flushed, ended, pause=pause)

    def _ready(self, slot: _Slot) -> bool:
        if slot.finished or slot.flushes:
            return True
        return slot.taken < len(slot.entries) and (not slot.entries[slot.taken].is_word or slot.words_ahead > 1)

    def _pop(self, slot: _Slot) -> bool:
        """Take the next entry, or notice that there is none. Returns whether it was a word."""
        if slot.taken == (slot.flushes[0] if slot.flushes else len(slot.entries)):
            slot.end_step = slot.step
            return False
        entry = slot.entries[slot.taken]
        slot.taken += 1
        slot.words_ahead -= entry.is_word
        slot.wants_at = slot.step + entry.padding + (self._steps_per_word if entry.is_word else 1)
        return entry.is_word

    def _tail_out(self, slot: _Slot) -> tuple[bool, bool]:
        """(flushed, ended) with the step just taken."""
        if slot.end_step is None or slot.step < slot.end_step + self._tail:
            return False, False
        slot.end_step = None
        if slot.flushes:
            slot.flushes.popleft()
            slot.asleep = slot.taken == len(slot.entries) and not (slot.finished or slot.flushes)
            return True, False
        slot.ended = True
        return False, True


def _record(frame: SlotFrame) -> bytes:
    return f"{frame.step} {int(frame.word)}".encode()


def pattern(options: SlotOptions, step: int, samples: int) -> bytes:
    """The fake's audio: small noise (0..255) that only (seed, generation, step) decide, ``samples`` int16 long."""
    key = f"{options.seed} {options.generation} {step}".encode()
    noise = hashlib.blake2b(key).digest()
    pcm = bytearray(2 * samples)
    pcm[::2] = (noise * (samples // len(noise) + 1))[:samples]
    return bytes(pcm)
