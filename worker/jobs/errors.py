"""The batch jobs' error tree.

JobInputError      a book that cannot be read (code)

No message holds a book's text, nor a name from inside it.
"""

from __future__ import annotations

from typing import Literal

InputFault = Literal[
    "unreadable",
    "unsupported",
    "bad_encoding",
    "bad_container",
    "unsafe_path",
    "unsafe_xml",
    "encrypted",
    "too_large",
    "empty",
]


class JobInputError(ValueError):
    """``code`` is stable and for programs; the message is for people."""

    def __init__(self, code: InputFault, reason: str) -> None:
        super().__init__(reason)
        self.code: InputFault = code
