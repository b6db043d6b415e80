"""The one thread that owns torch: loads the model, warms up, runs the step loop; events come back to the event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence

from engine.contract import FrameEngine
from scheduler.clock import SystemClock
from scheduler.loop import LoopRules, StepLoop
from scheduler.messages import Command, Event

log = logging.getLogger(__name__)

Loader = Callable[[], FrameEngine]


class EngineThread:
    """``start`` returns when the model is loaded and a real frame has come out; ``submit`` is thread-safe."""

    def __init__(self, load: Loader, deliver: Callable[[Sequence[Event]], None], rules: LoopRules) -> None:
        """``deliver`` is called on the event loop that awaits ``start``."""
        self._load, self._deliver, self._rules = load, deliver, rules
        self._clock = SystemClock()
        self._thread: threading.Thread | None = None
        self._step_loop: StepLoop | None = None
        self._engine: FrameEngine | None = None

    async def start(self) -> FrameEngine:
        """Raises what loading raises (``EngineError``, ``BuildError``)."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[FrameEngine] = loop.create_future()
        # A daemon: a step that hangs for good must not keep a process alive that was told to stop.
        self._thread = threading.Thread(target=self._run, args=(loop, ready), name="engine", daemon=True)
        self._thread.start()
        self._engine = await ready
        return self._engine

    @property
    def loop(self) -> StepLoop:
        assert self._step_loop is not None, "not started"
        return self._step_loop

    def submit(self, command: Command) -> None:
        """Raises ``InboxFull``."""
        self.loop.submit(command)

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def failures(self) -> int:
        """Steps in a row that raised."""
        return self.loop.failures

    @property
    def silence_s(self) -> float:
        """Seconds since the step loop last came round; grows while a step hangs."""
        return self._clock.now() - self.loop.heartbeat

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Cancels what is left; events of that are delivered before this returns."""
        if self._step_loop is None or self._thread is None:
            return
        self._step_loop.stop()
        await asyncio.to_thread(self._thread.join, timeout_s)
        if self._thread.is_alive():
            log.error("the engine thread did not stop within %.0f s", timeout_s)

    def _run(self, loop: asyncio.AbstractEventLoop, ready: asyncio.Future[FrameEngine]) -> None:
        def settle(engine: FrameEngine | None, error: BaseException | None) -> None:
            if ready.done():
                return
            if error is not None:
                ready.set_exception(error)
            elif engine is not None:
                ready.set_result(engine)

        try:
            engine = self._load()
            self._step_loop = StepLoop(engine, self._clock, lambda events: self._hand_over(loop, events), self._rules)
            self._step_loop.warm_up()
        except BaseException as error:  # the thread's root: whoever awaits start gets it
            loop.call_soon_threadsafe(settle, None, error)
            return
        loop.call_soon_threadsafe(settle, engine, None)
        try:
            self._step_loop.run()
        except Exception:  # the thread's root: liveness sees a dead thread
            log.exception("the step loop died")

    def _hand_over(self, loop: asyncio.AbstractEventLoop, events: Sequence[Event]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._deliver, events)
