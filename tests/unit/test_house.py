"""The structure that ARCHITECTURE.md promises: names, import directions, file sizes, a true module list."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("cuda_ext", "engine", "scheduler", "worker")
"""From the lowest to the highest."""
TORCH_FREE = ("scheduler", "engine/contract.py", "engine/errors.py", "engine/fake.py", "engine/frontend")


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Dotted names that a module imports anywhere but under ``if TYPE_CHECKING``."""
    tree = ast.parse(path.read_text())
    guarded = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.dump(branch.test)
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("room", ROOMS)
def test_no_other_distribution_provides_our_names(room: str) -> None:
    assert set(importlib.metadata.packages_distributions().get(room, ["antiphon"])) == {"antiphon"}
    assert room not in sys.stdlib_module_names


@pytest.mark.parametrize("path", modules(*ROOMS), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    above = ROOMS[ROOMS.index(room) + 1 :]
    offending = [name for name in imported(path) if name.split(".")[0] in above]
    assert not offending


@pytest.mark.parametrize(
    ("place", "forbidden"),
    [
        *((place, ("torch",)) for place in TORCH_FREE),
        ("engine", ("nats", "asyncio")),
        ("scheduler", ("nats", "asyncio")),
    ],
)
def test_what_a_room_does_not_know(place: str, forbidden: tuple[str, ...]) -> None:
    paths = [ROOT / place] if place.endswith(".py") else modules(place)
    assert paths
    for path in paths:
        assert not [name for name in imported(path) if name.split(".")[0] in forbidden], path


@pytest.mark.parametrize("path", modules(*ROOMS, "tests"), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_small_and_packages_bare(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400
    if path.name == "__init__.py":
        body = ast.parse(text).body
        assert len(body) == 1, "a package's __init__ is one docstring"
        assert isinstance(body[0], ast.Expr)


def test_every_module_is_in_the_module_list() -> None:
    """By its name or its folder's."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    listed = set(re.findall(r"`([\w/.]+?)/?`", text))
    for path in modules(*ROOMS):
        parts = path.relative_to(ROOT).with_suffix("").parts[1:]
        names = {"/".join(parts), *("/".join(parts[:end]) for end in range(1, len(parts)))}
        assert path.name == "__init__.py" or names & listed, path
