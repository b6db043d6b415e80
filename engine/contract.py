"""What the scheduler and the worker may know of an engine: plain data, no torch.

Times inside a generation are counted in *steps* (one step = one frame = 80 ms) and *model samples* (24 kHz samples
from the start of the generation's audio). A word that the text machine pops at step ``s`` is heard from model sample
``s * frame_samples`` on: the audio stream trails the text stream by the model's delay, and the engine has taken the
delay out already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the text machine (moshi ``models/tts.py`` ``Entry``): a word, or a break if it has no tokens."""

    tokens: tuple[int, ...]
    """SentencePiece ids of one white-space word with its punctuation; empty for a break."""
    padding: int = 0
    """Steps during which no new word may begin after this entry was taken (a break's length, in frames)."""
    speaker: int = 0
    """Whose turn it is, as an index into the session's voices."""

    @property
    def is_word(self) -> bool:
        return bool(self.tokens)


@dataclass(frozen=True, slots=True)
class SlotOptions:
    """Everything that shapes one generation in one slot. Randomness is a function of (seed, generation, step)."""

    seed: int
    """Unsigned 64-bit."""
    temperature: float
    """Audio softmax temperature; 0 = arg-max."""
    top_k: int
    """Audio candidates kept; 0 = all."""
    temperature_text: float
    top_k_text: int
    padding_bonus: float = 0.0
    """Added to the logit of the text padding token: positive = slower speech."""
    max_padding: int = 8
    """Most padding steps in a row before the next word is forced."""
    generation: int = 0
    recorded: bool = False
    """Whether the frames carry records, from which another engine can rebuild the slot. Shapes nothing."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model is and which options it honours."""

    name: str
    digest: str
    """Hex digest over configuration and weights."""
    voices: tuple[str, ...]
    languages: tuple[str, ...]
    sample_rate: int
    frame_samples: int
    defaults: SlotOptions
    """With seed 0 and generation 0."""
    options: frozenset[str]
    """Names of the ``open`` options (wire contract) that the model honours, e.g. ``seed``, ``temperature``."""
    speakers: int = 1
    """Voices that one session may have."""

    @property
    def frame_ms(self) -> float:
        return 1000.0 * self.frame_samples / self.sample_rate


@dataclass(frozen=True, slots=True)
class SlotFrame:
    """What one step did to one slot."""

    slot: int
    committed: bool
    """False: the slot stalled (it wants a word and none is there); nothing of its state advanced."""
    step: int
    """Steps committed in this generation so far, this one included (so the step just taken is ``step - 1``)."""
    pcm: bytes
    """Little-endian int16 mono at the model's rate; empty while the model is inside its delay."""
    model_start: int
    """Model sample index of the first sample of ``pcm``."""
    word: bool
    """The text machine popped a word entry at this step."""
    flushed: bool = False
    """The tail asked for by ``flush`` is out with this frame; the slot now sleeps until more text."""
    ended: bool = False
    """The generation is complete with this frame."""
    failed: bool = False
    """A value of the row was not finite; the generation cannot go on."""
    record: bytes = b""
    """Of a committed step of a recorded generation: what ``rebuild`` needs of it, opaque."""
    pause: bool = False
    """The text machine popped a break at this step: the word before it is over."""


class FrameEngine(Protocol):
    """Rows (slots) of one model, stepped together. Not thread-safe: one engine thread owns it, but for ``lacking`` and
    ``fetch``.

    ``launch`` starts a fused step and ``collect`` waits for its results; ``run_ahead`` steps may be in flight before
    the oldest must be collected (0 on the CPU, where ``launch`` does the work).
    """

    @property
    def info(self) -> ModelInfo: ...

    @property
    def capacity(self) -> int:
        """Number of slots; valid slot indices are ``range(capacity)``."""
        ...

    @property
    def run_ahead(self) -> int: ...

    def lacking(self, options: SlotOptions) -> Sequence[str]:
        """Check what a session asks for, and name the voices that ``fetch`` should bring first, for ``open`` would wait
        for a disk or a network. From any thread; reads no file.

        Raises VoiceNotFound, UnusableVoice, UnsupportedOption.
        """
        ...

    def fetch(self, voice: str) -> None:
        """Make a voice ready for ``open``. From any thread; blocks for as long as a download takes.

        Raises VoiceNotFound, UnusableVoice.
        """
        ...

    def open(self, slot: int, options: SlotOptions) -> None:
        """Reset a slot to the beginning of a generation. Raises as ``lacking`` and ``fetch``; then it is not open."""
        ...

    def push(self, slot: int, entries: Sequence[Entry]) -> None:
        """Append entries to the slot's text; never blocks, any length."""
        ...

    def flush(self, slot: int) -> None:
        """Speak everything pushed so far including the delayed tail, then report ``flushed`` and sleep."""
        ...

    def finish(self, slot: int) -> None:
        """No more entries will be pushed: speak the rest, then report ``ended``."""
        ...

    def close(self, slot: int) -> None:
        """Forget the slot's generation (end, cancel, failure)."""
        ...

    def in_delay(self, slot: int) -> bool:
        """Whether the slot's next step is a cheap text-only one (no codebooks, no audio)."""
        ...

    @property
    def sound_reach(self) -> int | None:
        """Frames before a frame that its samples depend on, through the codec alone; None: all of the generation."""
        ...

    def seek(self, slot: int, step: int, speaker: int = 0) -> None:
        """Let a slot that was just opened count its steps from ``step`` on, as if so many had been taken. speaker: who
        has spoken last."""
        ...

    def rebuild(self, slot: int, records: Sequence[bytes], sound: bool) -> Sequence[SlotFrame]:
        """Take the steps that these records are of, in order, without sampling or codebooks; blocks until done.

        The text that they spoke has been pushed before, with its flushes and its finish. What follows is what would
        have followed in the slot that was recorded. ``sound``: compute the samples, else they are zeros. A record that
        another step came before must be rebuilt behind that step, or behind a ``seek`` to it; that slot goes on in its
        own way. Raises UnusableRecord, and the slot is to be closed then.
        """
        ...

    def launch(self, slots: Sequence[int]) -> object:
        """Advance the given distinct, open slots by one step; returns a ticket for ``collect``."""
        ...

    def collect(self, ticket: object) -> Sequence[SlotFrame]:
        """Block until that step is done; one ``SlotFrame`` a slot, in the order of ``launch``."""
        ...
