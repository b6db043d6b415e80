"""Settings: read once at the start from four layers (flag > environment > TOML file > default) and passed down.

A value that cannot be used stops the start, and the message names its variable and who set it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails

from worker.layers import (
    Layer,
    Place,
    Problem,
    SettingsError,
    environment_layer,
    fields,
    file_layer,
    flag_layer,
    name_in,
)
from worker.sections import Invocation, Settings

__all__ = ["Composition", "Invocation", "Settings", "SettingsError", "compose", "load"]

I = TypeVar("I", bound=Invocation)


@dataclass(frozen=True, slots=True)
class Composition(Generic[I]):
    """The settings and where each came from."""

    settings: I
    layers: tuple[Layer, ...]
    """Strongest first."""

    def origin(self, place: Place) -> str:
        return _origin(self.layers, place) or "default"

    def __str__(self) -> str:
        """A TOML file that gives the same settings again (secrets aside), with who set each."""
        return "\n".join(line for section in Settings.model_fields for line in self._lines(section))

    def _lines(self, section: str) -> Iterator[str]:
        yield f"[{section}]"
        for field, value in getattr(self.settings, section).model_dump(mode="json").items():
            entry = f"# {field} =" if value is None else f"{field} = {_masked(value)}"
            yield f"{entry:<48} # {self.origin((section, field))}"
        yield ""


def load(argv: Sequence[str] = (), env: Mapping[str, str] | None = None, toml: Path | None = None) -> Settings:
    """All layers; ``env`` None is the process's environment. Raises SettingsError."""
    return compose(Invocation, argv, env, toml).settings


def compose(
    model: type[I],
    argv: Sequence[str],
    env: Mapping[str, str] | None = None,
    toml: Path | None = None,
    prog: str = "antiphon",
) -> Composition[I]:
    """One command line with the other layers under it. Raises SettingsError, or SystemExit(0) after ``--help``."""
    env = os.environ if env is None else env
    flags = flag_layer(model, argv, prog)
    layers = (flags, environment_layer(env), file_layer(flags, env, toml))
    try:
        settings = model(**_merged(layers))
    except ValidationError as error:
        raise SettingsError(*_problems(model, layers, error)) from None
    return Composition(settings, layers)


def _merged(layers: Sequence[Layer]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in reversed(layers):
        for name, value in layer.values.items():
            merged[name] = {**merged.get(name, {}), **value} if isinstance(value, Mapping) else value
    return merged


def _origin(layers: Sequence[Layer], place: Place) -> str:
    return next((layer.origin(place) for layer in layers if layer.has(place)), "")


def _problems(model: type[Invocation], layers: Sequence[Layer], error: ValidationError) -> Iterator[Problem]:
    """One a place: where a list has a bad item, its length is not worth a second line."""
    seen = set()
    for detail in error.errors(include_url=False):
        place = _place(detail)
        if place not in seen:
            seen.add(place)
            name, reason = name_in(model, place), detail["msg"] + _quoted(place, detail)
            yield Problem(name, reason, _origin(layers, place) if place[0] in Settings.model_fields else "")


def _place(detail: ErrorDetails) -> Place:
    loc = tuple(str(part) for part in detail["loc"])
    blamed = detail.get("ctx", {}).get("field")
    if len(loc) == 1 and isinstance(blamed, str):
        return (*loc, blamed)
    return loc[: 2 if loc[0] in Settings.model_fields else 1]


def _quoted(place: Place, detail: ErrorDetails) -> str:
    """The value, unless it is a secret, a text to be spoken, or no single value."""
    info = fields(place[0]).get(place[-1])
    if info is None or detail["type"] == "conflict" or SecretStr in getattr(info.annotation, "__args__", ()):
        return ""
    return f"; got {_masked(detail['input'])[:80]}"


def _masked(value: object) -> str:
    """As JSON (which is TOML for what we have), without what stands before the ``@`` of a URL."""
    return re.sub(r"(?<=://)[^/@\s\"]*@", "****@", json.dumps(value, ensure_ascii=False, default=str))
