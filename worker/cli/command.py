"""What a command is: settings, fields of its own, and something to do."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine
from typing import Any

from worker.sections import Invocation


class CommandError(Exception):
    """A failure that the user can act on. ``main`` prints its message alone, without a traceback, and exits with 1."""


class Command(Invocation):
    """One subcommand. Its docstring is the head of its help; its fields are flags (``CliPositionalArg``: arguments).

    Settings sections come from all layers, the command's own fields from the command line alone. A section that the
    command has no use for can be hidden from its help: ``model: CliSuppress[ModelSettings] = ...``.
    """

    @abstractmethod
    def cli_cmd(self) -> int | Coroutine[Any, Any, int | None] | None:
        """Do it; the result is the exit code (None: 0). May be a coroutine function.

        Nothing but the command's product goes to stdout. Raises CommandError; OSError is reported the same way.
        """
