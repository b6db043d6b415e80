from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import CheckpointError
from engine.frontend.tokenizer import Tokenizer
from engine.frontend.words import CHARSET
from tests.frontend_room import TOKENIZER


def test_the_built_in_tokenizer_takes_exactly_the_training_characters() -> None:
    assert TOKENIZER.charset | {" "} == CHARSET


def test_unknown_characters_never_become_tokens() -> None:
    assert 0 not in TOKENIZER.encode("caf\u00e95$")
    assert TOKENIZER.encode("Hello,") == TOKENIZER.encode("hello,")


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "bad.model").write_bytes(b"nonsense")
    for name in ("bad.model", "missing.model"):
        with pytest.raises(CheckpointError):
            Tokenizer(tmp_path / name)
