"""Where settings come from: the command line, the environment, a TOML file; each read into one layer of plain values.

pydantic-settings' own environment source is not used: it takes no notice of a misspelt section, and its errors do not
say which variable they speak of.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import SettingsError as SourceError

from worker.flags import FlagError, flag_source, is_positional
from worker.sections import Section, Settings

PREFIX = "ANTIPHON_"
FILE_VARIABLE = "ANTIPHON_CONFIG"
DEFAULT_FILE = Path("antiphon.toml")

Place = tuple[str, ...]
"""Where a value stands: ("nats", "url"), or ("config",) for what only a command line can say."""

# Kubernetes and Docker links describe a service called "antiphon" to its neighbours in variables of these shapes.
_SERVICE_HOST = re.compile(r"_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$")
_SERVICE_LINK = re.compile(r"_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$")


@dataclass(frozen=True, slots=True)
class Problem:
    variable: str
    """As an operator knows it: an environment variable, or what only a command line can say."""
    reason: str
    origin: str = ""
    """Who set it, where the name does not say that already."""

    def __str__(self) -> str:
        by = f" (set by {self.origin})" if self.origin else ""
        return f"{self.variable}{by}: {self.reason}"


class SettingsError(Exception):
    """The start cannot go on. One line a problem."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source says: {section: {field: value}} and, from flags, {field: value}."""

    source: str
    values: Mapping[str, Any]
    by_flags: bool = False

    def has(self, place: Place) -> bool:
        values: object = self.values
        for name in place:
            if not isinstance(values, Mapping) or name not in values:
                return False
            values = values[name]
        return True

    def origin(self, place: Place) -> str:
        return f"{self.source} {flag(place)}" if self.by_flags else self.source


def fields(section: str) -> Mapping[str, FieldInfo]:
    """Fields of a section by name; none if there is no such section."""
    info = Settings.model_fields.get(section)
    kind = info.annotation if info else None
    return kind.model_fields if isinstance(kind, type) and issubclass(kind, Section) else {}


def flag(place: Place) -> str:
    return "--" + ".".join(place).replace("_", "-")


def variable(place: Place) -> str:
    return PREFIX + "__".join(place).upper()


def name_in(model: type[Settings], place: Place) -> str:
    """The name by which an operator knows a place: ANTIPHON_NATS__URL, --voice, TEXT."""
    if place[0] in Settings.model_fields:
        return variable(place)
    info = model.model_fields.get(place[0])
    return place[0].upper() if info is not None and is_positional(info) else flag(place)


def flag_layer(model: type[Settings], argv: Sequence[str], prog: str) -> Layer:
    """Raises SettingsError, or SystemExit(0) after ``--help``."""
    try:
        return Layer("the flag", flag_source(model, prog)(args=list(argv))(), by_flags=True)
    except (FlagError, SourceError) as error:
        raise SettingsError(Problem("command line", str(error))) from None


def environment_layer(env: Mapping[str, str]) -> Layer:
    """Empty variables count as unset, since compose files and charts cannot leave one out. Raises SettingsError."""
    values: dict[str, dict[str, str]] = {}
    problems = []
    for name, value in env.items():
        if not name.startswith(PREFIX) or name == FILE_VARIABLE or _is_service_link(name, value):
            continue
        place = tuple(name.removeprefix(PREFIX).lower().split("__"))
        if not _is_known(place):
            problems.append(Problem(name, _hint(place), "the environment"))
        elif value:
            values.setdefault(place[0], {})[place[1]] = value
    if problems:
        raise SettingsError(*problems)
    return Layer("the environment", values)


def file_layer(flags: Layer, env: Mapping[str, str], toml: Path | None) -> Layer:
    """The file that ``--config``, else the caller, else ANTIPHON_CONFIG names, else ./antiphon.toml if it exists.

    Raises SettingsError.
    """
    path, by = _chosen(flags, env, toml)
    if path is None:
        return Layer("no file", {})
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = (error.strerror or "cannot be read") if isinstance(error, OSError) else f"not TOML: {error}"
        raise SettingsError(Problem(FILE_VARIABLE, f"{path}: {reason}", by)) from None
    problems = [Problem(variable(place), reason, f"the file {path}") for place, reason in _strays(values)]
    if problems:
        raise SettingsError(*problems)
    return Layer(f"the file {path}", values)


def _chosen(flags: Layer, env: Mapping[str, str], toml: Path | None) -> tuple[Path | None, str]:
    if flags.has(("config",)):
        return Path(flags.values["config"]), "the flag --config"
    if toml is not None:
        return toml, "the caller"
    if env.get(FILE_VARIABLE):
        return Path(env[FILE_VARIABLE]), "the environment"
    return (DEFAULT_FILE, "") if DEFAULT_FILE.is_file() else (None, "")


def _strays(values: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    for name, section in values.items():
        if not fields(name):
            yield (name,), _hint((name,))
        elif not isinstance(section, dict):
            yield (name,), f"is a section: write [{name}] and its settings below it"
        else:
            yield from (((name, field), _hint((name, field))) for field in section if not _is_known((name, field)))


def _is_known(place: Place) -> bool:
    return len(place) == 2 and place[1] in fields(place[0])


def _hint(place: Place) -> str:
    known = {f"{section}.{field}": (section, field) for section in Settings.model_fields for field in fields(section)}
    close = difflib.get_close_matches(".".join(place), known, n=1, cutoff=0.5)
    return f"unknown setting; did you mean {variable(known[close[0]])}?" if close else "unknown setting"


def _is_service_link(name: str, value: str) -> bool:
    if "__" in name:
        return False
    return bool(_SERVICE_HOST.search(name)) or (bool(_SERVICE_LINK.search(name)) and "://" in value)
