"""What each precision of the native kernels costs the voice: ``python -m tests.bench.precision [--json F]``.

Logits, under teacher forcing: each precision is given the tokens that float32 chose, over the first sentences. Reported
are the root mean square difference of the audio logits, the Kullback-Leibler divergence of what is drawn from (nats a
token), and how loud the difference of the sound is against the sound (dB). Words: what a recogniser gets wrong in what
each precision says by itself, same sentences, seeds and noise, so that the figures are paired.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from engine.contract import Entry
from engine.dsm import DsmEngine
from engine.frontend.normaliser import Normaliser
from engine.frontend.stream import TextStream
from engine.frontend.tokenizer import Tokenizer
from engine.loading import BUILTIN, load_engine, tokenizer_file
from engine.native import NativeKernels, Precision
from engine.step import Forced
from tests.speech.recogniser import Recogniser
from tests.speech.scoring import WordErrors, total_errors
from tests.speech.yardstick import read_sentences

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
ROWS = 8
RATE = 24_000


def entries(text: str) -> list[Entry]:
    stream = TextStream(Normaliser(), Tokenizer(tokenizer_file(BUILTIN)))
    return [piece.entry for piece in (*stream.feed(text), *stream.finish())]


def engine_of(precision: Precision, rows: int) -> DsmEngine:
    engine = load_engine(capacity=rows, kernels="native", precision=precision)
    assert isinstance(engine.kernels, NativeKernels)
    engine.kernels.keep_logits = True
    return engine


@dataclass(frozen=True, slots=True)
class Trace:
    """What some rows said, step by step; all rows step together and commit always."""

    tokens: list[torch.Tensor]
    audio: list[torch.Tensor]
    """Logits, [rows, codebooks, card]."""
    pcm: list[torch.Tensor]


def trace(precision: Precision, texts: Sequence[str], steps: int, given: Trace | None = None) -> Trace:
    engine, made = engine_of(precision, len(texts)), Trace([], [], [])
    kernels = engine.kernels
    assert isinstance(kernels, NativeKernels)
    for slot, text in enumerate(texts):
        engine.open(slot, dataclasses.replace(engine.info.defaults, seed=slot))
        engine.push(slot, entries(text * 4))
    for step in range(steps):
        forced = None
        if given is not None:
            forced = Forced(torch.full((len(texts),), -1), given.tokens[step][:, 1:])
        ticket = engine.launch(range(len(texts)), forced)
        made.tokens.append(ticket.output.tokens.clone())
        made.pcm.append(ticket.output.pcm.double())
        assert kernels.logits is not None
        made.audio.append(kernels.logits.double())
        engine.collect(ticket)
    return made


def differences(precision: Precision, want: Trace, texts: Sequence[str], settled: int = 8) -> dict[str, float]:
    """settled: the first step at which all codebooks are drawn."""
    got = trace(precision, texts, len(want.tokens), want)
    same = torch.stack([(x == y).all(dim=1) for x, y in zip(want.tokens, got.tokens, strict=True)])
    paired = same.cumprod(dim=0).bool()[settled - 1 : -1]  # text is not forced: a row counts until it goes its own way
    a, b = torch.stack(want.audio[settled:])[paired], torch.stack(got.audio[settled:])[paired]
    divergence = (a.softmax(-1) * (a.log_softmax(-1) - b.log_softmax(-1))).sum(-1)
    sound, other = torch.stack(want.pcm[settled:])[paired], torch.stack(got.pcm[settled:])[paired]
    noise = float((sound - other).square().mean().clamp(min=1e-12))
    return {
        "paired": round(float(paired.double().mean()), 3),
        "logits_rms": float((a - b).square().mean().sqrt()),
        "divergence_nats": float(divergence.mean()),
        "sound_db": round(10 * float(torch.log10(sound.square().mean() / noise)), 1),
    }


def speak(engine: DsmEngine, texts: Sequence[str], seed: int) -> list[bytes]:
    """int16 a text; row ``i`` is seeded with ``1000 * seed + i``."""
    sound = [b""] * len(texts)
    live = set(range(len(texts)))
    for slot, text in enumerate(texts):
        engine.open(slot, dataclasses.replace(engine.info.defaults, seed=1000 * seed + slot))
        engine.push(slot, entries(text))
        engine.finish(slot)
    while live:
        for frame in engine.collect(engine.launch(sorted(live))):
            sound[frame.slot] += frame.pcm
            if frame.ended:
                live.discard(frame.slot)
                engine.close(frame.slot)
    return sound


def word_errors(precision: Precision, recogniser: Recogniser, texts: Sequence[str], seeds: int) -> list[WordErrors]:
    """One a seed."""
    engine = engine_of(precision, ROWS)
    found = []
    for seed in range(seeds):
        pairs = []
        for start in range(0, len(texts), ROWS):
            batch = texts[start : start + ROWS]
            for text, pcm in zip(batch, speak(engine, batch, 100 * seed + start), strict=True):
                samples = np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)
                pairs.append((text, recogniser.transcribe(samples, RATE)))
        found.append(total_errors(pairs))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sentences", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150, help="of teacher forcing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = read_sentences()[: options.sentences]
    want = trace("float32", texts[:ROWS], options.steps)
    recogniser = Recogniser(1)
    table: dict[str, dict[str, object]] = {}
    for precision in PRECISIONS:
        found = word_errors(precision, recogniser, texts, options.seeds)
        wrong, words = sum(each.errors for each in found), sum(each.words for each in found)
        table[precision] = {
            **differences(precision, want, texts[:ROWS]),
            "word_errors": wrong,
            "words": words,
            "rate": round(wrong / words, 4),
            "by_seed": [each.errors for each in found],
        }
        print(precision, table[precision], flush=True)
    if options.json:
        options.json.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
