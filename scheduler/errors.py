"""The scheduler's error tree. Every error carries the facts that a caller needs as fields.

SchedulerError
└── InboxFull   the step loop has not read its commands for a while (capacity: of all sessions, or of one)
"""

from __future__ import annotations


class SchedulerError(Exception):
    """Root of everything that the scheduler raises to its callers."""


class InboxFull(SchedulerError):
    def __init__(self, capacity: int) -> None:
        super().__init__(f"the step loop's inbox holds {capacity} unread commands and takes no more")
        self.capacity = capacity
