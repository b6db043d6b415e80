"""The DSM text machine as tensors: which text token each slot feeds next (moshi ``models/tts.py`` StateMachine).

Equal to the reference step for step, with three additions: a slot that wants a word and has none *stalls* (nothing of
it is committed and the same step is tried again later) instead of ending; ``closed`` says that no more text will come;
``flush_at`` makes the slot behave as closed until the text given so far is spoken.

Counters are absolute and address rings modulo their capacity, so a session may be of any length.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.config import NEW_WORD, TextMachineConfig

TOKEN_RING = 2048
ENTRY_RING = 512
"""Power-of-two capacities of the rings of tokens, and of words and entries."""
MAX_WORD_TOKENS = TOKEN_RING // 4


class Field(enum.IntEnum):
    """Columns of the machine's state, one int64 row a slot."""

    CUR = 0  # next token of the word being spoken ..
    END = 1  # .. and where that word ends
    AHEAD = 2  # next token of the look-ahead stream ..
    AHEAD_END = 3  # .. and where it ends
    ENTRIES_TAKEN = 4
    ENTRIES_GIVEN = 5
    WORDS_TAKEN = 6
    WORDS_GIVEN = 7
    REMAINING_PADDING = 8
    FORCED_PADDING = 9
    END_STEP = 10  # step at which the machine asked for a word past the last; -1: not yet
    CLOSED = 11  # 1: no more entries will come
    FLUSH_AT = 12  # entries given when flush was asked for; -1: none
    MAX_PADDING = 13
    STEP = 14  # steps committed
    MUTE_UNTIL = 15  # audio frames before this step's are not sent (set by a flush)


FIELDS = len(Field)


@dataclass(frozen=True, slots=True)
class TextBuffers:
    """Rings of all slots, on the device."""

    state: Tensor
    """int64 [capacity, FIELDS]"""
    tokens: Tensor
    """int64 [capacity, TOKEN_RING]"""
    word_begin: Tensor
    """int64 [capacity, ENTRY_RING]: absolute index of a word's first token; entry w + 1 is where word w ends."""
    entries: Tensor
    """int64 [capacity, ENTRY_RING]: padding * 2 + is_word."""

    @classmethod
    def empty(cls, capacity: int, device: torch.device) -> TextBuffers:
        return cls(*(torch.zeros(capacity, width, dtype=torch.int64, device=device) for width in cls.widths()))

    @staticmethod
    def widths() -> tuple[int, ...]:
        """Of a slot's row in each of the buffers."""
        return (FIELDS, TOKEN_RING, ENTRY_RING, ENTRY_RING)


def initial_state(config: TextMachineConfig, max_padding: int) -> list[int]:
    """The state row of a new generation."""
    row = [0] * FIELDS
    row[Field.REMAINING_PADDING] = row[Field.FORCED_PADDING] = config.initial_padding
    row[Field.END_STEP] = row[Field.FLUSH_AT] = -1
    row[Field.MAX_PADDING] = max_padding
    return row


@dataclass(frozen=True, slots=True)
class TextStep:
    """What the machine made of one step; all [rows]."""

    token: Tensor
    """int64: what the model reads at the next step, ``(second + 1) * card + main``; valid where committed."""
    word: Tensor
    """bool: a word entry was taken."""
    commit: Tensor
    """bool: the slot advances; False: it stalled."""
    state: Tensor
    """int64 [rows, FIELDS]: the next state, unchanged where not committed. STEP is advanced."""


def advance(buffers: TextBuffers, slots: Tensor, sampled: Tensor, ahead: int, card: int, padding_id: int) -> TextStep:
    """slots, sampled: int64 [rows]; ahead: words of look-ahead; card: text_card + 1. Writes nothing."""
    old = buffers.state[slots]
    f = old.unbind(1)
    cur, end, look, look_end = f[Field.CUR], f[Field.END], f[Field.AHEAD], f[Field.AHEAD_END]
    taken, given, words, words_given = f[4], f[5], f[6], f[7]
    remaining, forced, end_step = f[Field.REMAINING_PADDING], f[Field.FORCED_PADDING], f[Field.END_STEP]

    def begin(word: Tensor) -> Tensor:
        return buffers.word_begin[slots, word % ENTRY_RING]

    def token_at(index: Tensor) -> Tensor:
        return buffers.tokens[slots, index % TOKEN_RING]

    # While a flush is pending the host pushes nothing further, so every word given belongs to it.
    closed = (f[Field.CLOSED] == 1) | (f[Field.FLUSH_AT] >= 0)
    want = ~((cur < end) | (forced > 0)) & ((remaining <= 0) | (sampled == NEW_WORD))
    available = taken < given
    entry = buffers.entries[slots, taken % ENTRY_RING]
    is_word = available & (entry % 2 == 1)
    peek = words + ahead
    ready = closed | (available & (~is_word | (peek < words_given) if ahead else available))
    commit = ~want | ready
    want = want & commit
    pop = want & available
    word = pop & is_word
    finish = want & ~available & (end_step < 0)

    cur = torch.where(word, begin(words), cur)
    end = torch.where(word, begin(words + 1), end)
    if ahead:
        seen = word & (peek < words_given)
        look = torch.where(seen & (look >= look_end), begin(peek), look)
        look_end = torch.where(seen, begin(peek + 1), look_end)
    remaining = torch.where(word, f[Field.MAX_PADDING], remaining)
    forced = torch.where(pop, entry // 2, forced)
    end_step = torch.where(finish, f[Field.STEP], end_step)
    new = word | finish if ahead else word
    remaining = remaining - (~new & (remaining > 0)).long()
    forced = forced - (~new & (forced > 0)).long()
    take = (cur < end) & (~new | (ahead > 0))
    main = torch.where(take, token_at(cur), padding_id)
    cur = cur + take.long()
    if ahead:
        # A queued token 0 (<unk>) is taken for new_word by moshi models/tts.py; kept for parity.
        quirk = ~new & (main == NEW_WORD)
        again = quirk & (cur < end)
        main = torch.where(quirk, torch.where(again, token_at(cur), padding_id), main)
        cur = cur + again.long()
        new = new | quirk
        follow = ~new & (look < look_end)
        second = torch.where(new, NEW_WORD, torch.where(follow, token_at(look), -1))
        look = look + follow.long()
        token = (second + 1) * card + main
    else:
        token = torch.where(new, NEW_WORD, main)
    fresh = [cur, end, look, look_end, taken + pop.long(), given, words + word.long(), words_given, remaining, forced]
    fresh += [end_step, *f[Field.CLOSED : Field.STEP], f[Field.STEP] + 1, f[Field.MUTE_UNTIL]]
    state = torch.where(commit[:, None], torch.stack(fresh, dim=1), old)
    return TextStep(token, word & commit, commit, state)


def hold(made: TextStep, old: Tensor, inside: Tensor, token: Tensor) -> TextStep:
    """The same step where ``inside`` [rows] is a prefix's: its text is given, and the machine waits. old: int64 [rows,
    FIELDS], the state before the step; token: int64 [rows]."""
    waiting = old.clone()
    waiting[:, Field.STEP] += 1
    return TextStep(
        torch.where(inside, token, made.token),
        made.word & ~inside,
        made.commit | inside,
        torch.where(inside[:, None], waiting, made.state),
    )


def rest(made: TextStep, old: Tensor, tail_steps: int) -> TextStep:
    """The same step, but nothing happens in a row whose flush was done in its last step and that has got nothing since,
    nor in one that is at its end. A host that runs ahead launches such a step before it hears of the flush; without
    this, padding that is left would let it commit. old: int64 [rows, FIELDS], the state before the step."""
    f = old.unbind(1)
    step, end, closed = f[Field.STEP], f[Field.END_STEP], f[Field.CLOSED]
    nothing = (f[Field.ENTRIES_TAKEN] == f[Field.ENTRIES_GIVEN]) & (closed == 0) & (f[Field.FLUSH_AT] < 0)
    asleep = (step > 0) & (f[Field.MUTE_UNTIL] == step) & nothing
    awake = ~(asleep | ((closed == 1) & (end >= 0) & (step >= end + tail_steps)))
    state = torch.where(awake[:, None], made.state, old)
    return TextStep(made.token, made.word & awake, made.commit & awake, state)
