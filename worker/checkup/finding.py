"""One thing that was looked at: whether it works, what was seen, and the remedy."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from worker.sections import Settings


class State(enum.Enum):
    WORKS = "works"
    NOTE = "note"
    """Serving works without it, or not as well."""
    FAILS = "fails"
    """``serve`` would not start, or could not keep the beat."""
    SKIPPED = "skipped"
    """Not wanted by the settings, or nothing to look at after an earlier failure."""


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    state: State
    said: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return {"name": self.name, "state": self.state.value, "said": self.said, "remedy": self.remedy}


def works(name: str, said: str) -> Finding:
    return Finding(name, State.WORKS, said)


def note(name: str, said: str, remedy: str) -> Finding:
    return Finding(name, State.NOTE, said, remedy)


def fails(name: str, said: str, remedy: str) -> Finding:
    return Finding(name, State.FAILS, said, remedy)


def skipped(name: str, said: str) -> Finding:
    return Finding(name, State.SKIPPED, said)


Look = Callable[[Settings], Sequence[Finding] | Awaitable[Sequence[Finding]]]
"""Plain functions may block: they run in a thread."""


@dataclass(frozen=True, slots=True)
class Probe:
    name: str
    look: Look
    remedy: str
    """For a failure that the probe itself has no word for."""

    async def findings(self, settings: Settings) -> Sequence[Finding]:
        """Never raises an Exception: a probe that cannot look is a finding too."""
        try:
            found = await asyncio.to_thread(self.look, settings)
            return await found if isinstance(found, Awaitable) else found
        except Exception as error:  # the root of a probe; what went wrong is its finding
            return [fails(self.name, brief(error), self.remedy)]


def brief(error: BaseException) -> str:
    """The first line of what an exception says, or its kind."""
    lines = str(error).splitlines()
    return lines[0][:300] if lines and lines[0].strip() else type(error).__name__
