"""The idle process beside the load, from our side: start it, end its phases, end it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from worker.measure.stalls import Phase

ROOT = Path(__file__).parents[2]
ANSWER_S = 30.0
LINE_BYTES = 4 * 1024 * 1024


class ControlProcess:
    """Ends with this process, however that ends: its standard input is then at its end."""

    def __init__(self) -> None:
        self._child: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    async def __aenter__(self) -> Self:
        self._child = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "worker.measure.stalls"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES,
            env=child_environment(),
        )
        await self.lap()  # it is up, and its own start is no part of any phase
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()
            await self._child.wait()

    async def lap(self) -> Phase:
        """The phase since the last call. Raises OSError if the process is gone."""
        assert self._child is not None
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(b"\n")
        async with asyncio.timeout(ANSWER_S):
            line = await self._child.stdout.readline()
        if not line:
            raise ChildProcessError("the process that measures the machine's stalls has ended")
        return Phase.parse(line)


def child_environment() -> dict[str, str]:
    """Ours, with this package on the path wherever the child is started."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}
