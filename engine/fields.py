"""One JSON object read field by field: each is taken by name, type and range, and none may be left over."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError, UnsupportedModel

MOST_BYTES = 16 << 20
MOST = 1 << 24
"""No whole number of a configuration is larger; it keeps a damaged one from asking for all memory."""


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        CheckpointError: the file cannot be read, or holds something else.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise CheckpointError(str(path), "is too large for a configuration")
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(str(path), f"cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(str(path), f"is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise CheckpointError(str(path), "is not a JSON object")
    return value


class Fields:
    """The fields of one object; ``at`` is where the object stands in its file (``fuser.``).

    Every ``take_`` method raises CheckpointError for a missing field or a wrong type; None stands for "not given".
    """

    def __init__(self, path: Path, raw: dict[str, Any], at: str = "") -> None:
        self.path, self.at = path, at
        self._raw = dict(raw)

    def name(self, field: str) -> str:
        return f"{self.at}{field}"

    def wrong(self, field: str, wanted: str) -> CheckpointError:
        return CheckpointError(str(self.path), f"field {self.name(field)!r} is not {wanted}")

    def has(self, field: str) -> bool:
        return field in self._raw

    def given(self, field: str) -> bool:
        """Whether the field is there and not null; null is taken."""
        if self._raw.get(field) is None:
            self._raw.pop(field, None)
            return False
        return True

    def take(self, field: str) -> Any:
        """The value as it is; None if there is no such field."""
        return self._raw.pop(field, None)

    def left(self) -> dict[str, Any]:
        """Fields that nobody has taken."""
        return dict(self._raw)

    def whole(self, field: str, default: int | None = None, least: int = 0, most: int = MOST) -> int:
        value = self._given(field, default)
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(field, f"a whole number from {least} to {most}")
        return value

    def number(self, field: str, default: float | None = None, least: float = -1e9, most: float = 1e9) -> float:
        value = self._given(field, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.wrong(field, f"a number from {least:g} to {most:g}")
        if not math.isfinite(value):
            raise self.wrong(field, "a finite number")
        return float(value)

    def flag(self, field: str, default: bool = False) -> bool:
        value = self._given(field, default)
        if not isinstance(value, bool):
            raise self.wrong(field, "true or false")
        return value

    def text(self, field: str, default: str | None = None) -> str:
        value = self._given(field, default)
        if not isinstance(value, str) or "\0" in value:
            raise self.wrong(field, "a string")
        return value

    def file(self, field: str, default: str | None = None) -> str:
        """A file name without a folder, so that a checkpoint reaches no file but its own."""
        value = self.text(field, default)
        if not value or value in (".", "..") or Path(value).name != value:
            raise self.wrong(field, "a plain file name")
        return value

    def choice(self, field: str, default: str | None, choices: Collection[str]) -> str:
        """Raises UnsupportedModel for a string that is none of the choices."""
        value = self.text(field, default)
        if value not in choices:
            raise UnsupportedModel(self.name(field), value)
        return value

    def wholes(self, field: str, default: list[int] | None = None) -> tuple[int, ...]:
        value = self._given(field, default)
        if not isinstance(value, list) or not all(type(item) is int and 0 <= item <= MOST for item in value):
            raise self.wrong(field, "a list of whole numbers")
        return tuple(value)

    def texts(self, field: str, default: list[str] | None = None) -> tuple[str, ...]:
        value = self._given(field, default)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(field, "a list of strings")
        return tuple(value)

    def inner(self, field: str) -> Fields:
        """An object within; empty if there is no such field."""
        value = self.take(field)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.wrong(field, "an object")
        return Fields(self.path, value, f"{self.name(field)}.")

    def fixed(self, field: str, *values: object) -> None:
        """A field that the engine knows but runs with these values only, if it is given at all.

        Raises UnsupportedModel for another value.
        """
        if field in self._raw:
            value = self._raw.pop(field)
            if not any(value == wanted and type(value) is type(wanted) for wanted in values):
                raise UnsupportedModel(self.name(field), value)

    def none(self) -> None:
        """Raises UnsupportedModel for a field that nobody has taken."""
        for field, value in self._raw.items():
            raise UnsupportedModel(self.name(field), value)

    def _given(self, field: str, default: Any) -> Any:
        value = self._raw.pop(field, None)
        if value is None:
            value = default
        if value is None:
            raise CheckpointError(str(self.path), f"field {self.name(field)!r} is missing")
        return value
