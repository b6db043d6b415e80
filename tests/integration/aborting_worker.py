"""``serve`` with an engine that aborts the process at a step of every session with a certain seed, as a fault in native
code would. Run as a module."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from engine.contract import FrameEngine, SlotFrame, SlotOptions
from engine.dsm import DsmEngine
from worker.cli.main import Entry, main
from worker.cli.serve import Serve

SEED = 666
STEP = 30


class AbortingEngine(DsmEngine):
    doomed: frozenset[int] = frozenset()

    def open(self, slot: int, options: SlotOptions) -> None:
        super().open(slot, options)
        self.doomed = self.doomed | {slot} if options.seed == SEED else self.doomed - {slot}

    def collect(self, ticket: object) -> Sequence[SlotFrame]:
        frames = super().collect(ticket)
        if any(frame.slot in self.doomed and frame.step >= STEP for frame in frames):
            os.abort()
        return frames


class ServeAborting(Serve):
    """As ``serve``."""

    def make_engine(self) -> FrameEngine:
        engine = super().make_engine()
        engine.__class__ = AbortingEngine
        return engine


if __name__ == "__main__":
    sys.exit(main(commands={"serve": Entry(__name__, "ServeAborting", "serve, and abort")}))
