"""The entry point: find the command, load its settings, run it, turn its end into an exit code.

Exit codes: 0 done, 1 failed, 2 the command line or a setting cannot be used, 130 interrupted, 141 nobody reads our
output any more (what a shell reports for a process that SIGPIPE ends).
"""

from __future__ import annotations

import asyncio
import difflib
import importlib
import importlib.metadata
import os
import select
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.errors import EngineError
from worker.cli.command import Command, CommandError
from worker.errors import WorkerError
from worker.settings import SettingsError, compose

EXPECTED = (CommandError, WorkerError, EngineError, OSError)
"""Failures that say what is wrong to whoever started the command."""

FAILED, UNUSABLE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141


@dataclass(frozen=True, slots=True)
class Entry:
    """A command before its module is imported, so that each start pays for one command alone."""

    module: str
    name: str
    summary: str

    def load(self) -> type[Command]:
        command: type[Command] = getattr(importlib.import_module(self.module), self.name)
        return command


COMMANDS: Mapping[str, Entry] = {
    "serve": Entry("worker.cli.serve", "Serve", "speak for the producers of a NATS server"),
    "say": Entry("worker.cli.say", "Say", "speak a text, a file or what is typed"),
    "listen": Entry("worker.cli.listen", "Listen", "hear a session that is being spoken"),
    "voices": Entry("worker.cli.voices", "Voices", "list the voices of a pool"),
    "provision": Entry("worker.cli.provision", "Provision", "make what batch jobs need in JetStream"),
    "check": Entry("worker.cli.check", "Check", "what works on this machine, and what to do about the rest"),
    "bench": Entry("worker.cli.bench", "Bench", "measure many concurrent sessions through NATS"),
}


def main(argv: Sequence[str] | None = None, commands: Mapping[str, Entry] = COMMANDS) -> int:
    try:
        code = _dispatch(sys.argv[1:] if argv is None else argv, commands)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except SettingsError as error:
        return _report(str(error).splitlines(), UNUSABLE)
    except (*EXPECTED, BaseExceptionGroup) as error:
        return _failure(error)
    return code


def _dispatch(argv: Sequence[str], commands: Mapping[str, Entry]) -> int:
    if not argv or argv[0] in {"-h", "--help", "help"}:
        print(_overview(commands), file=sys.stdout if argv else sys.stderr)
        return 0 if argv else UNUSABLE
    if argv[0] == "--version":
        print(f"antiphon {importlib.metadata.version('antiphon')}")
        return 0
    entry = commands.get(argv[0])
    if entry is None:
        return _report([f"unknown command {argv[0]!r}{_hint(argv[0], commands)}"], UNUSABLE)
    return _run(entry.load(), argv[1:], f"antiphon {argv[0]}")


def _run(model: type[Command], argv: Sequence[str], prog: str) -> int:
    composition = compose(model, argv, prog=prog)
    if composition.settings.print_config:
        print(composition)
        return 0
    outcome = composition.settings.cli_cmd()
    return (asyncio.run(outcome) if isinstance(outcome, Coroutine) else outcome) or 0


def _overview(commands: Mapping[str, Entry]) -> str:
    width = max(map(len, commands))
    listed = "\n".join(f"  {name:<{width}}  {entry.summary}" for name, entry in commands.items())
    return f"usage: antiphon COMMAND [options]\n\n{listed}\n\nantiphon COMMAND --help lists a command's options."


def _hint(word: str, commands: Mapping[str, Entry]) -> str:
    close = difflib.get_close_matches(word, commands, n=1)
    return f"; did you mean {close[0]}?" if close else "; see antiphon --help"


def _failure(error: BaseException) -> int:
    """A task group wraps what its tasks raise: one familiar failure in it counts as itself, a strange one as a bug."""
    causes = list(_leaves(error))
    if any(isinstance(cause, BrokenPipeError) for cause in causes) and _nobody_reads():
        # The interpreter flushes stdout once more as it leaves; let that succeed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    if any(isinstance(cause, KeyboardInterrupt) for cause in causes):
        return INTERRUPTED
    if not all(isinstance(cause, EXPECTED) for cause in causes):
        raise error
    return _report(dict.fromkeys(map(_told, causes)), FAILED)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error


def _told(cause: BaseException) -> str:
    if isinstance(cause, OSError) and cause.strerror:
        return f"{cause.filename}: {cause.strerror}" if cause.filename else cause.strerror
    return str(cause) or type(cause).__name__


def _nobody_reads() -> bool:
    """Whether stdout itself is the pipe that broke, not one of the command's sockets."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return False
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _report(lines: Sequence[str] | Mapping[str, None], code: int) -> int:
    for line in lines:
        print(f"antiphon: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
