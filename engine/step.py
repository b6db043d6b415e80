"""The fused step: one frame of the given slots, start to end on the device, with no host read.

One ``commit`` mask gates every write of state. A slot that is not committed (it stalled, or its numbers are not
finite) computes the same thing again at its next step, with the same random draws.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import torch
from torch import Tensor

from engine import text
from engine.config import NEW_WORD, ZERO, ModelConfig
from engine.depth import Guidance
from engine.kernels import Kernels, TorchKernels
from engine.sampling import Draws
from engine.slots import PREFIX_FRAMES, SlotBuffers
from engine.text import Field


class Report(enum.IntEnum):
    """Columns of a step's report, int64, one row a slot."""

    COMMIT = 0
    WORD = 1
    ENDED = 2
    FLUSHED = 3
    FAILED = 4
    SOUNDING = 5  # the frame's audio is to be sent
    STEP = 6  # steps committed, this one included
    CUR = 7  # the rest: how far the text rings are read
    AHEAD = 8
    ENTRIES_TAKEN = 9
    WORDS_TAKEN = 10
    NEW = 11  # the text head chose a new word
    PAUSE = 12  # a break was taken


@dataclass(frozen=True, slots=True)
class Forced:
    """Tokens to take instead of sampled ones where they are >= 0 (teacher forcing)."""

    text: Tensor
    """int64 [rows]: what the text head is to have chosen, before the text machine."""
    audio: Tensor
    """int64 [rows, generated]"""


@dataclass(frozen=True, slots=True)
class StepOutput:
    report: Tensor
    """int64 [rows, len(Report)]"""
    pcm: Tensor
    """int16 [rows, frame_samples]"""
    text_logits: Tensor
    """float32 [rows, text_card_out], the padding bonus included."""
    tokens: Tensor
    """int64 [rows, 1 + codebooks]: what the model reads at the next step."""


def to_int16(samples: Tensor) -> Tensor:
    """Full scale is 1.0; clips, never wraps."""
    return (samples.clamp(-1.0, 1.0) * 32767.0).round().to(torch.int16)


class FusedStep:
    """The step of one model over one set of buffers; constants of the model are made once."""

    def __init__(
        self,
        config: ModelConfig,
        kernels: Kernels,
        buffers: SlotBuffers,
        frame_samples: int,
        rests: bool = False,
    ) -> None:
        """rests: rows with nothing to do stay as they are (``text.rest``), for a host that runs ahead."""
        device = buffers.history.device
        self._config, self._kernels, self._buffers = config, kernels, buffers
        self._delays = torch.tensor(config.delays, device=device)
        self._silent_until = self._delays[1 : config.generated + 1] + config.text.delay_steps
        initial = [config.text_card] + [config.card] * config.codebooks
        self._initial = torch.tensor(initial, device=device)
        self._age = config.max_delay - self._delays[1 : config.generated + 1]
        self._book = torch.arange(1, config.generated + 1, device=device)
        self._rest = torch.full((1, config.codebooks - config.generated), ZERO, device=device)
        self.tail_steps = self._tail = config.text.delay_steps + config.text.final_padding + config.max_delay
        self.frame_samples = self._frame_samples = frame_samples
        self.token_count = 1 + config.codebooks
        self._rests = rests

    def __call__(
        self, slots: Tensor, full: bool, forced: Forced | None = None, guided: Tensor | None = None
    ) -> StepOutput:
        """slots: int64 [rows]. full: False skips codebooks and codec, for rows that are all inside the text delay.
        guided: int64, the rows that are under guidance."""
        config, buffers = self._config, self._buffers
        position = buffers.position(slots)
        history = buffers.history[slots]
        place = position - buffers.base[slots]
        first = place[:, None] <= self._delays
        tokens = torch.where(first, self._initial, history[:, 0])
        hidden, logits, guidance = self._hidden(tokens, slots, place, first, guided)
        draws, text_draws, bonus = buffers.draws(slots, position)
        logits[:, config.padding_id] += bonus
        sampled = self._kernels.sample_text(logits, text_draws)
        if forced is not None:
            sampled = torch.where(forced.text >= 0, forced.text, sampled)
        machine = self._machine(slots, position, sampled)
        finite = torch.isfinite(hidden).all(dim=1)
        if guidance is not None:
            finite = finite.index_copy(
                0, guidance.rows, finite[guidance.rows] & torch.isfinite(guidance.hidden).all(dim=1)
            )
        commit = machine.commit & finite
        voiced = commit & (position >= config.text.delay_steps)
        if full:
            raw = self._depth(hidden, machine.token, draws, forced, voiced, guidance)
            audio = torch.where(position[:, None] < self._silent_until, ZERO, raw)
        else:
            audio = torch.full((len(slots), config.generated), ZERO, device=slots.device)
        audio = self._prefixed(slots, position, audio)
        row = torch.cat([machine.token[:, None], audio, self._rest.expand(len(slots), -1)], dim=1)
        shifted = torch.cat([row[:, None], history[:, :-1]], dim=1)
        buffers.history[slots] = torch.where(commit[:, None, None], shifted, history)
        pcm, sounding = self._sound(slots, shifted, commit & (position >= config.warm_up_steps), full)
        report = self._settle(slots, machine, commit, finite & sounding[1], position, sounding[0], sampled)
        return StepOutput(report, pcm, logits, row)

    def reread(self, slot: int, rows: Tensor, start: int, sound: bool, guided: bool) -> Tensor | None:
        """The model's part of steps whose tokens are known: keys and values, the codec, the history of tokens.

        rows: int64 [steps, 1 + codebooks], those of the steps from ``start`` on. Returns int16 [steps, frame_samples],
        or None without ``sound``. Where rows are computed in order of their own, all go at once.
        """
        config, buffers, steps = self._config, self._buffers, len(rows)
        device = rows.device
        position = start + torch.arange(steps, device=device)
        slots = torch.full_like(position, slot)
        before = torch.cat([buffers.history[slot].flip(0), rows])  # oldest first
        place = position - buffers.base[slots]
        first = place[:, None] <= self._delays
        tokens = torch.where(first, self._initial, before[-steps - 1 : -1])
        for part in self._parts(steps, int(place[-1])):
            at = torch.arange(part.stop - part.start, device=device) if guided else None
            self._hidden(tokens[part], slots[part], place[part], first[part], at)
        newest_first = torch.stack(
            [before[len(before) - steps - age :][:steps] for age in range(buffers.history.shape[1])], dim=1
        )
        buffers.history[slot] = newest_first[-1]
        if not sound:
            return None
        codes = newest_first[:, self._age, self._book].clamp(min=0)
        audible = position >= config.warm_up_steps
        alone = [slice(step, step + 1) for step in range(steps)]
        parts = [slice(0, steps)] if self._kernels.row_independent else alone
        return torch.cat([to_int16(self._kernels.codec(codes[p], slots[p], audible[p])) for p in parts])

    def _parts(self, steps: int, last: int) -> list[slice]:
        """Steps of one slot that the backbone may take at once: rows that are computed one behind the other see the
        ring as it was in their turn; rows that are computed together do so until it wraps."""
        together = self._kernels.row_independent or last < self._config.context
        return [slice(0, steps)] if together else [slice(step, step + 1) for step in range(steps)]

    def _hidden(
        self, tokens: Tensor, slots: Tensor, position: Tensor, first: Tensor, guided: Tensor | None
    ) -> tuple[Tensor, Tensor, Guidance | None]:
        """Hidden states and text logits of the rows, and what guides some of them: a second row each that has neither
        conditions nor text nor prefix (moshi ``LMGen._step``), in the slot ``capacity`` further on."""
        if guided is None:
            return *self._kernels.backbone(tokens, slots, position), None
        null, at, early = tokens[guided], slots[guided], first[guided]
        length = self._buffers.prefix_length[at]
        masked = (length > 0)[:, None] & (
            position[guided][:, None] <= self._delays + (length + self._config.text.delay_steps)[:, None]
        )
        masked[:, 0] = True
        null = torch.where(masked & ~early, ZERO, null)
        capacity = len(self._buffers.strength)
        hidden, logits = self._kernels.backbone(
            torch.cat([tokens, null]), torch.cat([slots, at + capacity]), torch.cat([position, position[guided]])
        )
        rows = len(slots)
        return hidden[:rows], logits[:rows], Guidance(hidden[rows:], guided, self._buffers.strength[at])

    def _machine(self, slots: Tensor, position: Tensor, sampled: Tensor) -> text.TextStep:
        config, buffers = self._config, self._buffers
        ahead = config.text.second_stream_ahead
        advance = self._kernels.advance_text if isinstance(self._kernels, TorchKernels) else text.advance
        made = advance(buffers.text, slots, sampled, ahead, config.text_card + 1, config.padding_id)
        if self._rests:
            made = text.rest(made, buffers.text.state[slots], self._tail)
        if not config.takes_prefixes:
            return made
        given = buffers.prefix[slots, position.clamp(max=PREFIX_FRAMES - 1), 0]
        return text.hold(made, buffers.text.state[slots], position < buffers.prefix_length[slots], given)

    def _depth(
        self,
        hidden: Tensor,
        token: Tensor,
        draws: Draws,
        forced: Forced | None,
        voiced: Tensor,
        guidance: Guidance | None,
    ) -> Tensor:
        audio = forced.audio if forced else None
        if guidance is None:
            return self._kernels.depth(hidden, token, draws, audio, voiced)
        assert isinstance(self._kernels, TorchKernels), "the native kernels know no guidance"
        return self._kernels.depth(hidden, token, draws, audio, voiced, guidance)

    def _prefixed(self, slots: Tensor, position: Tensor, audio: Tensor) -> Tensor:
        """The audio tokens of a prefix in the place of those drawn."""
        if not self._config.takes_prefixes:
            return audio
        frame = position[:, None] - self._silent_until  # [rows, generated]
        inside = (frame >= 0) & (frame < self._buffers.prefix_length[slots][:, None])
        given = self._buffers.prefix[slots[:, None], frame.clamp(0, PREFIX_FRAMES - 1), self._book]
        return torch.where(inside, given, audio)

    def _sound(
        self, slots: Tensor, shifted: Tensor, audible: Tensor, full: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """int16 samples, and (audible, finite) [rows]."""
        if not full:
            quiet = torch.zeros(len(slots), self._frame_samples, dtype=torch.int16, device=slots.device)
            return quiet, (audible, torch.ones_like(audible))
        codes = shifted[:, self._age, self._book].clamp(min=0)
        samples = self._kernels.codec(codes, slots, audible)
        finite = torch.isfinite(samples).all(dim=1) | ~audible
        return to_int16(samples), (audible, finite)

    def _settle(
        self,
        slots: Tensor,
        machine: text.TextStep,
        commit: Tensor,
        finite: Tensor,
        position: Tensor,
        audible: Tensor,
        sampled: Tensor,
    ) -> Tensor:
        """Write the text machine's next state, finish a flush that is due, and report."""
        state = machine.state
        step, end, closed = state[:, Field.STEP], state[:, Field.END_STEP], state[:, Field.CLOSED]
        done = commit & (end >= 0) & (step >= end + self._tail)
        flushed = done & (closed == 0)
        heard = audible & (position - self._config.warm_up_steps >= state[:, Field.MUTE_UNTIL])
        columns = [commit, machine.word & commit, done & ~flushed, flushed, ~finite, heard]
        reads = (Field.CUR, Field.AHEAD, Field.ENTRIES_TAKEN, Field.WORDS_TAKEN)
        rows = [*(column.long() for column in columns), step, *(state[:, field] for field in reads)]
        old = self._buffers.text.state[slots]
        paused = commit & ~machine.word & (state[:, Field.ENTRIES_TAKEN] > old[:, Field.ENTRIES_TAKEN])
        rows += [(sampled == NEW_WORD).long(), paused.long()]
        report = torch.stack(rows, dim=1)
        state = state.clone()
        state[:, Field.END_STEP] = torch.where(flushed, -1, end)
        state[:, Field.FLUSH_AT] = torch.where(flushed, -1, state[:, Field.FLUSH_AT])
        state[:, Field.MUTE_UNTIL] = torch.where(flushed, step, state[:, Field.MUTE_UNTIL])
        self._buffers.text.state[slots] = torch.where(commit[:, None], state, old)
        return report
