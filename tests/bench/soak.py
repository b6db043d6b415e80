"""Twenty minutes of one session: does the worker's memory grow, and does the voice get worse?

Speaks the sentences of ``tests/speech/sentences.txt`` in shuffled order through a real worker at ``pace: fast``, then
hears it with a recogniser and counts word errors minute by minute. Some minutes:

    python -m tests.bench.soak --minutes 20 --output soak.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from tests.speech.scoring import WordErrors, words
from tests.speech.yardstick import read_sentences
from worker.measure.load import RATE
from worker.measure.machine import this_machine
from worker.measure.memory import Growth
from worker.measure.report import machine_dict, soak_dict, soak_lines
from worker.measure.rig import rigged
from worker.measure.soak import Soak
from worker.settings import load

PIECE_S, LEEWAY_S, QUIET_S = 25.0, 3.0, 0.1
"""A piece for the recogniser, which hears 30 s at a time, ends in the quietest tenth of a second near 25 s."""
FULL_SCALE = 32_768.0
Samples = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class HeardWord:
    word: str
    minute: int


def pieces(samples: Samples, rate: int = RATE) -> Iterator[tuple[int, int]]:
    """Bounds of pieces that are cut where it is quiet; together they are the whole."""
    start = 0
    while len(samples) - start > (PIECE_S + LEEWAY_S) * rate:
        low, high = (start + round((PIECE_S + side * LEEWAY_S) * rate) for side in (-1, 1))
        window = round(QUIET_S * rate)
        energy = np.square(samples[low:high]).cumsum(dtype=np.float64)
        quietest = int(np.argmin(energy[window:] - energy[:-window]))
        end = low + quietest + window // 2
        yield start, end
        start = end
    yield start, len(samples)


def hear(samples: Samples, transcribe: Callable[[Samples, int], str], rate: int = RATE) -> list[HeardWord]:
    """Words with the minute in which they were said, by their place in their piece."""
    heard: list[HeardWord] = []
    for start, end in pieces(samples, rate):
        found = words(transcribe(samples[start:end], rate))
        for index, word in enumerate(found):
            at = start + (end - start) * index / len(found)
            heard.append(HeardWord(word, int(at / rate / 60)))
    return heard


def errors_by_minute(said: Sequence[str], heard: Sequence[HeardWord]) -> list[WordErrors]:
    """Aligns all that was heard with the beginning of what was given to be said (more may have been given), and counts
    each error in the minute of the word heard there, or before it if none was."""
    minutes = 1 + max((word.minute for word in heard), default=0)
    errors, expected = [0] * minutes, [0] * minutes
    for said_word, heard_index, wrong in aligned(said, [word.word for word in heard]):
        minute = heard[min(heard_index, len(heard) - 1)].minute if heard else 0
        expected[minute] += said_word
        errors[minute] += wrong
    return [WordErrors(wrong, count) for wrong, count in zip(errors, expected, strict=True)]


def aligned(said: Sequence[str], heard: Sequence[str]) -> Iterator[tuple[bool, int, bool]]:
    """Steps of a cheapest alignment: (a word of ``said`` is used up, index in ``heard``, it is an error).

    The end of ``said`` that nothing was heard of costs nothing.
    """
    moves = [bytearray(len(said) + 1) for _ in range(len(heard) + 1)]
    above = list(range(len(said) + 1))
    moves[0][1:] = bytes([DELETED]) * len(said)
    for i, word in enumerate(heard, 1):
        row, move = [i], moves[i]
        move[0] = INSERTED
        for j, wanted in enumerate(said, 1):
            costs = (above[j - 1] + (word != wanted), above[j] + 1, row[j - 1] + 1)
            cost = min(costs)
            move[j] = costs.index(cost)
            row.append(cost)
        above = row
    i, j = len(heard), min(range(len(above)), key=lambda end: (above[end], -end))
    path: list[tuple[bool, int, bool]] = []
    while i or j:
        move_here = moves[i][j]
        i, j = i - (move_here != DELETED), j - (move_here != INSERTED)
        wrong = move_here != MATCHED or heard[i] != said[j]
        path.append((move_here != INSERTED, i, wrong))
    yield from reversed(path)


MATCHED, INSERTED, DELETED = range(3)


async def speak(minutes: float, seed: int, audio: BinaryIO) -> tuple[Soak, Growth, str]:
    """The samples go to ``audio`` as little-endian int16; the result is the soak, its verdict, and the text given."""
    given: list[str] = []
    async with rigged(load(), read_sentences(), own=True, seed=seed) as rig:
        soak = rig.soak(minutes)
        soak.on_text = given.append
        soak.on_audio = lambda pcm: _write(audio, pcm)
        await rig.guarded(soak.run())
    return soak, soak.samples.judge(), "".join(given)


def _write(audio: BinaryIO, pcm: bytes) -> None:
    audio.write(pcm)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="of audio (default 20)")
    parser.add_argument("--seed", type=int, default=0, help="of the speech and of the order of the sentences")
    parser.add_argument("--threads", type=int, default=2, help="of the recogniser (default 2)")
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    options = parser.parse_args(arguments)
    from tests.speech.recogniser import Recogniser

    with tempfile.TemporaryFile() as audio:
        soak, growth, text = asyncio.run(speak(options.minutes, options.seed, audio))
        audio.seek(0)
        samples = np.frombuffer(audio.read(), "<i2").astype(np.float32) / np.float32(FULL_SCALE)
    print(*soak_lines(soak, growth), sep="\n", flush=True)
    heard = hear(samples, Recogniser(options.threads).transcribe)
    by_minute = errors_by_minute(words(text), heard)
    for minute, errors in enumerate(by_minute, 1):
        print(f"minute {minute:2d}: {errors.errors} of {errors.words} words wrong")
    total = sum(by_minute, WordErrors(0, 0))
    print(f"in all: {100 * total.rate:.1f} % of {total.words} words")
    figures = {"machine": machine_dict(this_machine()), **soak_dict(soak, growth)}
    figures["word_errors_by_minute"] = [(errors.errors, errors.words) for errors in by_minute]
    if options.output is not None:
        options.output.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0 if growth.flat else 1


if __name__ == "__main__":
    sys.exit(main())
