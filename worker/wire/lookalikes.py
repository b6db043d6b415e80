"""Names close to one that is not there, cheap enough to be looked up for every bad request of a flood."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

FEW = 16
"""So many names are all shown."""
CLOSE = 5
QUERY_CHARS = 64
TELLING_PARTS = 12
"""Of a name that is looked up: its rarest parts of three letters decide, so that what all names share costs nothing."""
MOST_HOLDERS = 512
"""Names that one look-up goes through."""


class Lookalikes:
    """Names that share the most rare parts of three letters with another (after trigram indexes of databases, e.g.
    PostgreSQL's pg_trgm)."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._holders: defaultdict[str, list[int]] = defaultdict(list)
        """Part -> names that have it."""
        for index, name in enumerate(self._names):
            for part in set(_parts(name)):
                self._holders[part].append(index)

    def of(self, name: str) -> list[str]:
        """At most ``FEW`` names, the likeliest first."""
        if len(self._names) <= FEW:
            return list(self._names)
        known = [part for part in set(_parts(name[:QUERY_CHARS])) if part in self._holders]
        telling = sorted(known, key=lambda part: (len(self._holders[part]), part))[:TELLING_PARTS]
        holders = (index for part in telling for index in self._holders[part])
        shared = Counter(islice(holders, MOST_HOLDERS))
        best = sorted(shared, key=lambda index: (-shared[index], len(self._names[index]), index))[:CLOSE]
        return [self._names[index] for index in best] or list(self._names[:FEW])


def _parts(name: str) -> Iterator[str]:
    framed = f"  {name.lower()} "
    return (framed[at : at + 3] for at in range(len(framed) - 2))
