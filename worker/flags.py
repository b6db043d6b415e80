"""The command line as a source of settings: pydantic-settings' flag tree over an argparse parser that raises."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable
from typing import Any, NoReturn, get_args

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, CliPositionalArg, CliSettingsSource

NO_VALUE = "\0"
"""What pydantic-settings reads as None. No argument can contain a NUL, so every text can be said, "null" too."""

SHORT = {"--model.path": "--model"}
"""Flags with a second name. The library keeps the names of sections for itself, but we leave those flags out."""

_TYPES = {"tuple[str,...]": "A,B", "SecretStr": "SECRET", "str": "TEXT", "int": "N", "float": "X"}
_POSITIONAL = get_args(CliPositionalArg[str])[1]


class FlagError(Exception):
    """The command line cannot be parsed."""


def flag_source(model: type[BaseSettings], prog: str) -> CliSettingsSource[Any]:
    """A parser for the model's fields. Call it with ``args=``, then without, for the values that were given.

    Raises FlagError, or SystemExit(0) after ``--help``.
    """
    parser = _Parser(
        prog=prog,
        description=model.__doc__,
        epilog="A setting --section.field is ANTIPHON_SECTION__FIELD in the environment and field under [section] in "
        "the TOML file. A flag wins over the environment, the environment over the file.",
        usage=f"{prog} [options]{''.join(f' [{name}]' for name in _positionals(model))}",
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    return CliSettingsSource(
        model,
        root_parser=parser,
        parse_args_method=_Parser.parse_args,
        add_argument_method=_add_argument,
        formatter_class=_formatter,
    )


def is_positional(info: FieldInfo) -> bool:
    return _POSITIONAL in info.metadata


def _positionals(model: type[BaseSettings]) -> list[str]:
    return [name.upper() for name, info in model.model_fields.items() if is_positional(info)]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (--[^\s=]+)", message)
        close = difflib.get_close_matches(unknown[1], self._option_string_actions, n=1) if unknown else []
        raise FlagError(f"{message}; did you mean {close[0]}?" if close else message)


def _formatter(prog: str) -> argparse.HelpFormatter:
    # rich is wanted for help alone, so nothing else waits for its import.
    from rich_argparse import RichHelpFormatter

    class Formatter(RichHelpFormatter):
        # Brackets in a help text are text.
        help_markup = False
        text_markup = False

    return Formatter(prog, max_help_position=36)


_Container = argparse.ArgumentParser | argparse._ArgumentGroup


def _add_argument(container: _Container, *names: str, **options: Any) -> argparse.Action | None:
    """Leave out the flags that set a whole section from JSON; write defaults and types as one would type them."""
    if options.get("const") == "{}":
        return None
    if isinstance(options.get("help"), str):
        help_text = re.sub(r"\(default: \('?(.*?)'?,?\)\)", r"(default: \1)", options["help"])
        options["help"] = re.sub(rf" ?\(default(: {NO_VALUE}?| factory: \w+)\)", "", help_text)
    if "metavar" in options and not options["metavar"].startswith("{"):
        options["metavar"] = _TYPES.get(options["metavar"], options["metavar"].upper())
    short = (SHORT[name] for name in names if name in SHORT)
    add: Callable[..., argparse.Action] = container.add_argument
    return add(*short, *names, **options)
