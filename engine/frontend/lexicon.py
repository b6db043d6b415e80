"""Word lists written as text, so that they stay readable."""

from __future__ import annotations


def listed(text: str) -> frozenset[str]:
    """The white-space words of a text."""
    return frozenset(text.split())


def ordered(text: str) -> tuple[str, ...]:
    """The white-space words of a text, in their order."""
    return tuple(text.split())
