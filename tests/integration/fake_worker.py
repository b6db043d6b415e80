"""``serve`` with the fake engine, which is ready sooner than a model. Run as a module."""

from __future__ import annotations

import sys

from engine.contract import FrameEngine
from engine.fake import FakeEngine
from worker.cli.main import Entry, main
from worker.cli.serve import Serve


class ServeFake(Serve):
    """As ``serve``."""

    def make_engine(self) -> FrameEngine:
        return FakeEngine(self.model.slots or 4)


if __name__ == "__main__":
    sys.exit(main(commands={"serve": Entry(__name__, "ServeFake", "serve, and fake")}))
