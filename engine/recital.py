"""The text machine of one slot in plain integers, for steps whose outcome is known: fifty times as fast as on tensors.

The twin of ``engine/text.py`` ``advance`` and ``engine/step.py`` ``_settle``; the tests of rebuilding hold it against
them, step by step.
"""

from __future__ import annotations

from engine.config import NEW_WORD, ModelConfig
from engine.step import Report
from engine.text import ENTRY_RING, TOKEN_RING, Field, TextBuffers


class Recital:
    """Reads the slot's buffers when it is made; ``save`` writes the state back."""

    def __init__(self, config: ModelConfig, buffers: TextBuffers, slot: int) -> None:
        self._ahead, self._card, self._padding = (
            config.text.second_stream_ahead,
            config.text_card + 1,
            config.padding_id,
        )
        self._warm_up = config.warm_up_steps
        self._tail = config.text.final_padding + config.warm_up_steps
        self._buffers, self._slot = buffers, slot
        self._state: list[int] = buffers.state[slot].tolist()
        self._tokens: list[int] = buffers.tokens[slot].tolist()
        self._begins: list[int] = buffers.word_begin[slot].tolist()
        self._entries: list[int] = buffers.entries[slot].tolist()

    def save(self) -> None:
        state = self._buffers.state
        state[self._slot] = state.new_tensor(self._state)

    def step(self, new: bool) -> tuple[list[int], int] | None:
        """``new``: the text head chose a new word. -> the step's report and its text token; None: it stalls."""
        s = self._state
        closed = s[Field.CLOSED] == 1 or s[Field.FLUSH_AT] >= 0
        want = not (s[Field.CUR] < s[Field.END] or s[Field.FORCED_PADDING] > 0) and (
            s[Field.REMAINING_PADDING] <= 0 or new
        )
        available = s[Field.ENTRIES_TAKEN] < s[Field.ENTRIES_GIVEN]
        entry = self._entries[s[Field.ENTRIES_TAKEN] % ENTRY_RING]
        is_word = available and entry % 2 == 1
        seen = s[Field.WORDS_TAKEN] + self._ahead < s[Field.WORDS_GIVEN]
        ready = closed or (available and (not is_word or seen or not self._ahead))
        if want and not ready:
            return None
        word, finish = want and is_word, want and not available and s[Field.END_STEP] < 0
        if word:
            self._begin(seen)
        paused = want and available and not is_word
        if want and available:
            s[Field.FORCED_PADDING] = entry // 2
            s[Field.ENTRIES_TAKEN] += 1
        if finish:
            s[Field.END_STEP] = s[Field.STEP]
        token = self._token(word or (finish and self._ahead > 0))
        report = self._settled(word)
        report[Report.NEW], report[Report.PAUSE] = int(new), int(paused)
        return report, token

    def _begin(self, seen: bool) -> None:
        """Take the next word; ``seen``: the one to look ahead at is there."""
        s, words = self._state, self._state[Field.WORDS_TAKEN]
        s[Field.CUR], s[Field.END] = self._begins[words % ENTRY_RING], self._begins[(words + 1) % ENTRY_RING]
        if self._ahead and seen:
            peek = words + self._ahead
            if s[Field.AHEAD] >= s[Field.AHEAD_END]:
                s[Field.AHEAD] = self._begins[peek % ENTRY_RING]
            s[Field.AHEAD_END] = self._begins[(peek + 1) % ENTRY_RING]
        s[Field.REMAINING_PADDING] = s[Field.MAX_PADDING]
        s[Field.WORDS_TAKEN] += 1

    def _token(self, new: bool) -> int:
        s = self._state
        if not new:
            for field in (Field.REMAINING_PADDING, Field.FORCED_PADDING):
                s[field] -= s[field] > 0
        main = self._next(Field.CUR, Field.END) if not new or self._ahead else self._padding
        if not self._ahead:
            return NEW_WORD if new else main
        if not new and main == NEW_WORD:
            main, new = self._next(Field.CUR, Field.END), True
        second = -1
        if new:
            second = NEW_WORD
        elif s[Field.AHEAD] < s[Field.AHEAD_END]:
            second = self._next(Field.AHEAD, Field.AHEAD_END)
        return (second + 1) * self._card + main

    def _next(self, at: Field, end: Field) -> int:
        """The next token of a stream; padding if it is out."""
        s = self._state
        if s[at] >= s[end]:
            return self._padding
        s[at] += 1
        return self._tokens[(s[at] - 1) % TOKEN_RING]

    def _settled(self, word: bool) -> list[int]:
        s = self._state
        heard = s[Field.STEP] >= self._warm_up and s[Field.STEP] - self._warm_up >= s[Field.MUTE_UNTIL]
        s[Field.STEP] += 1
        done = s[Field.END_STEP] >= 0 and s[Field.STEP] >= s[Field.END_STEP] + self._tail
        flushed = done and not s[Field.CLOSED]
        report = [0] * len(Report)
        report[Report.COMMIT], report[Report.WORD] = 1, int(word)
        report[Report.ENDED], report[Report.FLUSHED] = int(done and not flushed), int(flushed)
        report[Report.SOUNDING], report[Report.STEP] = int(heard), s[Field.STEP]
        report[Report.CUR], report[Report.AHEAD] = s[Field.CUR], s[Field.AHEAD]
        report[Report.ENTRIES_TAKEN], report[Report.WORDS_TAKEN] = s[Field.ENTRIES_TAKEN], s[Field.WORDS_TAKEN]
        if flushed:
            s[Field.END_STEP] = s[Field.FLUSH_AT] = -1
            s[Field.MUTE_UNTIL] = s[Field.STEP]
        return report
