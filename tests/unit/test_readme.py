"""The README's promises that a machine can check."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from worker.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()


def test_the_two_commands_stand_before_line_30() -> None:
    head = "\n".join(TEXT.splitlines()[:30])
    assert "make say" in head
    assert "make test" in head


def test_its_commands_and_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z-]+)", TEXT):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for command in re.findall(r"\bantiphon ([a-z]+)\b", TEXT):
        assert command in COMMANDS, command
    assert all(f"antiphon {name}" in TEXT for name in COMMANDS)


def test_its_python_compiles() -> None:
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
