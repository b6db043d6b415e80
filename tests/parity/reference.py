"""The oracle: moshi 0.2.13's own ``LMGen`` and text-to-speech state machine on a voice folder, every step on record.

Nothing of moshi is reimplemented or patched: logits, tokens and forced tokens pass through ``LMGen``'s three hooks and
through forward hooks on the depformer's output heads. The driving loop is that of moshi ``models/tts.py``
(``TTSModel.generate``) without conditioners and prefixes; the depformer runs inside the delay too, which no audible
token depends on.

Steps: step ``s`` takes the tokens of step ``s - 1``; codebook ``q`` of audio frame ``f`` is drawn at step
``delay + f + delays[q]``, and before step ``delay + delays[q]`` the model is fed -1 for it.
"""

from __future__ import annotations

import os

os.environ.setdefault("NO_TORCH_COMPILE", "1")  # read while moshi is imported; no_compile covers an earlier import

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from moshi.models.lm import LMGen, LMModel
from moshi.models.loaders import FRAME_RATE, CheckpointInfo
from moshi.models.tts import Entry as MachineEntry
from moshi.models.tts import State, StateMachine, TokenIds
from moshi.utils.compile import no_compile
from sentencepiece import SentencePieceProcessor

from engine.contract import Entry

NEAR_TIE = 1e-4
"""Two best logits closer than this may change places with the order of a sum."""


@dataclass(frozen=True, slots=True)
class TokenOverride:
    """Tokens to take instead of the drawn ones, from step 0 on; later steps are drawn freely.

    Values of ``audio`` at steps inside the delay are ignored, as are the tokens drawn there.
    """

    text: torch.Tensor
    """[T] int64: what the text head is to have chosen, before the state machine."""
    audio: torch.Tensor
    """[T, Q] int64: what the depformer is to have chosen."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One row's record over its own ``T`` steps: up to its last audible frame, or all steps if it found no end.

    Q codebooks, F frames of audio; everything on the CPU.
    """

    delay: int
    """Steps between text and audio, acoustic delays not included."""
    delays: tuple[int, ...]
    """[Q] acoustic delay of each codebook, in steps."""
    end_step: int | None
    """Step at which the machine wanted a word and had none; None if that did not happen within the steps allowed."""
    pop_steps: tuple[int, ...]
    """Step at which the machine took each entry, breaks included."""
    word_steps: tuple[int, ...]
    """The same, words only."""
    text_sampled: torch.Tensor
    """[T] int64: the text head's token."""
    text_fed: torch.Tensor
    """[T] int64: what the machine made of it (both text streams in one number), the next step's input."""
    audio_sampled: torch.Tensor
    """[T, Q] int64: the depformer's tokens, each the input of the next codebook."""
    audio_fed: torch.Tensor
    """[T, Q] int64: the same with -1 inside the delay, the next steps' input."""
    text_logits: torch.Tensor
    """[T, text_card_out] float32, with the padding bonus if one was asked for."""
    audio_logits: torch.Tensor
    """[T, Q, card] float32; [0, Q, card] if not recorded."""
    codes: torch.Tensor
    """[Q, F] int64: the codec's input; F = end_step + final_padding."""

    @property
    def steps(self) -> int:
        return len(self.text_sampled)

    @property
    def audible(self) -> torch.Tensor:
        """[T, Q] bool: which of the depformer's tokens reach the codec and the next steps."""
        step = torch.arange(self.steps)[:, None]
        return step >= self.delay + torch.tensor(self.delays)


def near_ties(logits: torch.Tensor, margin: float = NEAR_TIE) -> torch.Tensor:
    """[..., C] logits to [...] bool: the two best are at most ``margin`` apart."""
    best = logits.topk(2, dim=-1).values
    return best[..., 0] - best[..., 1] <= margin


def count_near_ties(generation: Generation, margin: float = NEAR_TIE) -> int:
    """Near ties among the choices that count: every text token and the audible audio tokens.

    Raises:
        ValueError: the audio logits were not recorded.
    """
    if len(generation.audio_logits) != generation.steps:
        raise ValueError("generate with record_logits=True")
    text = near_ties(generation.text_logits, margin).sum()
    audio = (near_ties(generation.audio_logits, margin) & generation.audible).sum()
    return int(text + audio)


class _Tape:
    """What moshi's hooks see while it runs: records it, runs the machine, applies the overrides."""

    def __init__(
        self,
        model: LMModel,
        machine: StateMachine,
        states: Sequence[State],
        delay: int,
        padding_bonus: float,
        override: Sequence[TokenOverride | None],
        record_logits: bool,
    ) -> None:
        self._machine, self._states, self._delay = machine, states, delay
        self._delays = torch.tensor(model.delays[model.audio_offset :])
        self._padding_bonus = padding_bonus
        self._override = override
        self._record_logits = record_logits
        self.step = 0
        self.text_logits: list[torch.Tensor] = []
        self.text_sampled: list[torch.Tensor] = []
        self.text_fed: list[torch.Tensor] = []
        self.audio_logits: list[list[torch.Tensor]] = [[] for _ in range(model.dep_q)]
        self.audio_sampled: list[torch.Tensor] = []
        self.audio_fed: list[torch.Tensor] = []

    def on_text_logits(self, logits: torch.Tensor) -> None:  # [B, 1, 1, C]
        logits[..., self._machine.token_ids.pad] += self._padding_bonus
        self.text_logits.append(logits[:, 0, 0].float().clone())

    def on_text(self, tokens: torch.Tensor) -> None:  # [B], changed in place
        for row, override in enumerate(self._override):
            if override is not None and self.step < len(override.text):
                tokens[row] = override.text[self.step]
        self.text_sampled.append(tokens.clone())
        for row, state in enumerate(self._states):
            tokens[row] = self._machine.process(self.step, state, int(tokens[row]))[0]
        self.text_fed.append(tokens.clone())

    def on_head(self, codebook: int, logits: torch.Tensor) -> torch.Tensor:  # [B, 1, card]
        """In place: where a row is overridden, its token is the only one left possible."""
        if self._record_logits:
            self.audio_logits[codebook].append(logits[:, 0].float().clone())
        if self.step < self._delay:
            return logits
        for row, override in enumerate(self._override):
            if override is not None and self.step < len(override.audio):
                logits[row] = -torch.inf
                logits[row, 0, override.audio[self.step, codebook]] = 0.0
        return logits

    def on_audio(self, tokens: torch.Tensor) -> None:  # [B, Q], changed in place
        self.audio_sampled.append(tokens.clone())
        tokens[:, self.step < self._delays + self._delay] = self._machine.token_ids.zero
        self.audio_fed.append(tokens.clone())


@contextmanager
def _tapped_heads(model: LMModel, tape: _Tape) -> Iterator[None]:

    def hook(codebook: int) -> torch.utils.hooks.RemovableHandle:
        return model.linears[codebook].register_forward_hook(lambda _head, _args, out: tape.on_head(codebook, out))

    handles = [hook(codebook) for codebook in range(model.dep_q)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class ReferenceVoice:
    """A voice folder in moshi's hands. Not thread-safe; a generation uses torch's threads and a seed of its own."""

    def __init__(self, info: CheckpointInfo, model: LMModel, tokenizer: SentencePieceProcessor) -> None:
        text_machine = info.tts_config
        self.model = model
        self.tokenizer = tokenizer
        self.delay = int(text_machine["audio_delay"] * FRAME_RATE)
        self.final_padding = int(text_machine["final_padding"])
        self._ahead = int(text_machine["second_stream_ahead"])
        self._initial_padding = int(text_machine["initial_padding"])
        self._max_padding = int(text_machine["max_padding"])
        self.sampling = info.lm_gen_config

    @classmethod
    def load(cls, folder: Path | str, dtype: torch.dtype = torch.float32) -> ReferenceVoice:
        """Every weight is cast to ``dtype``, those of the norms too, as moshi does."""
        folder = Path(folder)
        # from_hf_repo is what takes tts_config and the like out of config.json; with paths it asks for no repository.
        info = CheckpointInfo.from_hf_repo(
            "",
            moshi_weights=folder / "model.safetensors",
            mimi_weights=folder / "codec.safetensors",
            tokenizer=folder / "tokenizer.model",
            config_path=folder / "config.json",
        )
        return cls(info, info.get_moshi(dtype=dtype), info.get_text_tokenizer())

    def entries(self, text: str) -> list[Entry]:
        """White-space words of already normalised text, each encoded alone."""
        return [Entry(tuple(self.tokenizer.encode(word))) for word in text.split()]

    @torch.no_grad()
    def generate(
        self,
        entries_list: Sequence[Sequence[Entry]],
        *,
        temperature: float | None = None,
        temperature_text: float | None = None,
        top_k: int | None = None,
        top_k_text: int | None = None,
        seed: int = 0,
        greedy: bool = False,
        padding_bonus: float = 0.0,
        max_padding: int | None = None,
        override: Sequence[TokenOverride | None] | None = None,
        record_logits: bool = True,
        max_steps: int = 400,
    ) -> list[Generation]:
        """Speaks the rows as one batch, one ``Generation`` a row; the voice's own values stand in for None.

        Greedy takes each arg-max. Torch's global generator is left as it was. A row's tokens under sampling depend on
        the batch around it (one generator serves all rows).
        """
        machine = StateMachine(
            TokenIds(self.model.text_card + 1),
            self._ahead,
            self._max_padding if max_padding is None else max_padding,
            self._initial_padding,
        )
        states = [machine.new_state([MachineEntry(list(e.tokens), "", e.padding) for e in row]) for row in entries_list]
        tape = _Tape(
            self.model,
            machine,
            states,
            self.delay,
            padding_bonus,
            override if override is not None else [None] * len(states),
            record_logits,
        )
        sampling = self.sampling
        generator = LMGen(
            self.model,
            use_sampling=not greedy,
            temp=sampling["temp"] if temperature is None else temperature,
            temp_text=sampling["temp_text"] if temperature_text is None else temperature_text,
            top_k=sampling["top_k"] if top_k is None else top_k,
            top_k_text=sampling["top_k_text"] if top_k_text is None else top_k_text,
            on_text_logits_hook=tape.on_text_logits,
            on_text_hook=tape.on_text,
            on_audio_hook=tape.on_audio,
        )
        with no_compile(), torch.random.fork_rng(devices=[]), _tapped_heads(self.model, tape):
            torch.manual_seed(seed)
            frames = self._run(generator, tape, states, max_steps)
        return [self._generation(row, state, tape, frames[row]) for row, state in enumerate(states)]

    def _run(self, generator: LMGen, tape: _Tape, states: Sequence[State], max_steps: int) -> torch.Tensor:
        """Steps until the last row's tail is out: [B, Q, steps - max(delays)] tokens, acoustic delays taken out."""
        frames = []
        nothing = torch.empty((len(states), 0, 1), dtype=torch.long)
        with generator.streaming(len(states)):
            for step in range(max_steps):
                if step >= max(self._row_steps(state, max_steps) for state in states):
                    break
                tape.step = step
                frame = generator.step(nothing)
                if frame is not None:
                    frames.append(frame[:, self.model.audio_offset :].clone())
        return torch.cat(frames, dim=2)

    def _row_steps(self, state: State, otherwise: int) -> int:
        if state.end_step is None:
            return otherwise
        return state.end_step + self.delay + self.final_padding + max(self.model.delays)

    def _generation(self, row: int, state: State, tape: _Tape, frames: torch.Tensor) -> Generation:
        steps = min(self._row_steps(state, tape.step + 1), tape.step + 1)

        def column(records: Sequence[torch.Tensor]) -> torch.Tensor:
            return torch.stack([record[row] for record in records[:steps]])

        recorded = [column(head) for head in tape.audio_logits if head]
        transcript = {step for _text, step in state.transcript}
        return Generation(
            delay=self.delay,
            delays=tuple(self.model.delays[self.model.audio_offset :]),
            end_step=state.end_step,
            pop_steps=tuple(state.consumption_times),
            word_steps=tuple(step for step in state.consumption_times if step in transcript),
            text_sampled=column(tape.text_sampled),
            text_fed=column(tape.text_fed),
            audio_sampled=column(tape.audio_sampled),
            audio_fed=column(tape.audio_fed),
            text_logits=column(tape.text_logits),
            audio_logits=torch.stack(recorded, 1) if recorded else torch.empty(0, self.model.dep_q, self.model.card),
            codes=frames[:, self.delay : steps - max(self.model.delays)],
        )
