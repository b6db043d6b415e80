"""``antiphon serve``: speak for the producers of a NATS server until told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys

from pydantic_settings import CliToggleFlag

from engine.contract import FrameEngine
from worker import logs
from worker.cli.command import Command
from worker.service import Service, load_model, running

log = logging.getLogger(__name__)

SWITCH_S = 0.001


class Serve(Command):
    """Take sessions from a NATS server and speak them.

    SIGTERM or the first Ctrl-C: take no more sessions, let those that are live finish (at most worker.drain_grace_s),
    then leave. A second one: end them and leave now.
    """

    announce: CliToggleFlag[bool] = False
    """Print one line to stdout when ready: the server's URL and the port of the probes."""

    async def cli_cmd(self) -> int:
        logs.configure(self.telemetry)
        asyncio.get_running_loop().set_exception_handler(logs.handle_loop_error)
        stop = _Stop()
        async with running(self, load=self.make_engine) as service:
            _settle_down()
            if self.announce:
                print(f"ready {service.bus_options.servers[0]} {service.probes.port or '-'}", flush=True)
            await stop.first.wait()
            await self._leave(service, stop)
        return 0

    def make_engine(self) -> FrameEngine:
        """On the engine's thread."""
        return load_model(self.model)

    async def _leave(self, service: Service, stop: _Stop) -> None:
        log.info("draining: %d sessions are live; a second signal ends them", service.desk.sessions)
        draining = asyncio.ensure_future(service.drain())
        hurried = asyncio.ensure_future(stop.second.wait())
        await asyncio.wait({draining, hurried}, return_when=asyncio.FIRST_COMPLETED)
        for task in (draining, hurried):
            task.cancel()
        await asyncio.gather(draining, hurried, return_exceptions=True)


def _settle_down() -> None:
    """What was loaded is not looked through at every collection; and the engine's thread, back from a step, waits no
    longer than a millisecond for the interpreter while the event loop is busy (Python's default is five)."""
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_S)


class _Stop:
    """The two stages of leaving, from SIGTERM or SIGINT."""

    def __init__(self) -> None:
        self.first, self.second = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        (self.second if self.first.is_set() else self.first).set()
