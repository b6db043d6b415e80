"""Python's garbage collector, kept from walking what is there to stay."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def frozen_garbage() -> Iterator[None]:
    """A collection walks all that lives, tens of milliseconds once a model or a client is there; inside, only what is
    new."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
