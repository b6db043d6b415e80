"""The order of a producer's messages: which generation they are of, and whether text is missing before them."""

from __future__ import annotations

from worker.errors import WireError


class Intake:
    """Of one session. ``generation`` counts from 0; ``text_seq`` is the number that the next text must have.

    A take-over raises the generation, and a producer may not have heard of it: every number from ``since`` on means it.
    """

    def __init__(self, generation: int = 0, since: int = 0) -> None:
        self.generation, self.since = generation, since
        self.text_seq = 0
        self._gap_told = False

    def is_current(self, generation: int | None) -> bool:
        """An older generation's message is ignored. Raises WireError (text_gap) for a cancel that was lost."""
        if generation is not None and generation > self.generation:
            raise WireError("text_gap", "a later generation than the current one", detail={"gen": self.generation})
        return generation is None or generation >= self.since

    def in_order(self, seq: int | None) -> bool:
        """Raises WireError (text_gap) at a gap's first sign, and is False until it is mended."""
        if seq is None or seq <= self.text_seq:
            return True
        if self._gap_told:
            return False
        self._gap_told = True
        raise WireError("text_gap", "text was lost before this message", detail={"expected": self.text_seq})

    def is_next(self, seq: int | None) -> bool:
        """Of a text; one that was taken already is ignored. Raises as ``in_order`` does."""
        return (seq is None or seq >= self.text_seq) and self.in_order(seq)

    def take(self) -> None:
        """The next text is taken."""
        self.text_seq += 1
        self._gap_told = False

    def begin_next(self, ended: int | None = None) -> None:
        """A cancel: the next generation's texts are numbered from 0. ``ended``: as the producer called the old one."""
        self.since = (self.generation if ended is None else ended) + 1
        self.generation += 1
        self.text_seq = 0
        self._gap_told = False
