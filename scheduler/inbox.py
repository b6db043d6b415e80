"""The way in: commands from any thread to the one that owns the engine."""

from __future__ import annotations

import threading
from collections import Counter, deque

from scheduler.clock import Clock
from scheduler.errors import InboxFull
from scheduler.messages import Command

SHARE = 8
LEAST_SHARE = 64


class Inbox:
    """A bounded queue that never blocks whoever submits; one thread drains it.

    One session may fill an eighth of it (64 commands at least): one that floods us fails alone, and not those as well
    whose commands would find no room.
    """

    def __init__(self, clock: Clock, capacity: int) -> None:
        self._clock = clock
        self._capacity = capacity
        self._share = max(capacity // SHARE, LEAST_SHARE)
        self._lock = threading.Lock()
        self._commands: deque[tuple[Command, float]] = deque()
        self._counts: Counter[str] = Counter()  # by session
        self._arrived = threading.Event()

    def submit(self, command: Command) -> None:
        """Raises ``InboxFull``; the command is then not taken."""
        with self._lock:
            if len(self._commands) >= self._capacity:
                raise InboxFull(self._capacity)
            if self._counts[command.session] >= self._share:
                raise InboxFull(self._share)
            self._counts[command.session] += 1
            self._commands.append((command, self._clock.now()))
        self._arrived.set()

    def wake(self) -> None:
        """End a ``wait`` without a command."""
        self._arrived.set()

    def wait(self, until: float) -> None:
        """Block until a command is there, ``wake`` was called, or the time has come."""
        self._clock.wait(self._arrived, until)

    def drain(self) -> deque[tuple[Command, float]]:
        """All commands so far, in order, each with the time at which it was submitted."""
        self._arrived.clear()  # before the swap: a command that comes in between sets it again
        if not self._commands:
            return deque()
        with self._lock:
            taken, self._commands = self._commands, deque()
            self._counts.clear()
        return taken
