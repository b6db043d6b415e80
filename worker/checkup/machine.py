"""The machine: Python, cores, memory, files, clock, the port of the probes."""

from __future__ import annotations

import asyncio
import importlib.metadata
import socket
import sys
import time
from collections.abc import Sequence

from worker.checkup.finding import Finding, Probe, fails, note, skipped, works
from worker.measure.control import ControlProcess
from worker.measure.machine import available_bytes, cpu_name, quota_cores, usable_cores
from worker.sections import Settings

PYTHON = (3, 11)
FILES_WANTED = 1_024
MEMORY_WANTED = 1024**3
EARLIEST_YEAR = 2025
WATCHED_S = 0.5
BEAT_S = 0.080


def python(settings: Settings) -> Sequence[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON:
        return [fails("python", version, "install Python 3.11 or newer and make the environment with it")]
    try:
        ours = importlib.metadata.version("antiphon")
    except importlib.metadata.PackageNotFoundError:
        return [fails("python", f"{version}; the distribution antiphon is not installed", "pip install antiphon")]
    return [works("python", f"{version}; antiphon {ours}")]


def cores(settings: Settings) -> Sequence[Finding]:
    usable, quota = usable_cores(), quota_cores()
    said = f"{usable} usable, {cpu_name()}" + (f"; quota {quota:g}" if quota is not None else "")
    threads = settings.model.threads
    if threads is not None and threads > min(usable, quota or usable):
        return [
            note(
                "cores",
                f"{said}; model.threads is {threads}",
                "set ANTIPHON_MODEL__THREADS to the cores that are there, or leave it unset: threads that wait for a "
                "core cost more than they bring",
            )
        ]
    if quota is not None and quota < 1:
        return [note("cores", said, "give the container at least one whole core: a quota stops it for most of a beat")]
    return [works("cores", said)]


def memory(settings: Settings) -> Sequence[Finding]:
    available = available_bytes()
    if available is None:
        return [skipped("memory", "this system does not tell")]
    said = f"{available / 1024**3:.1f} GiB available"
    if available < MEMORY_WANTED:
        return [note("memory", said, "free some memory, or lower ANTIPHON_MODEL__SLOTS")]
    return [works("memory", said)]


def files(settings: Settings) -> Sequence[Finding]:
    if sys.platform == "win32":
        return [skipped("open files", "no limit on this system")]
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = f"up to {'any number' if soft == resource.RLIM_INFINITY else soft}"
    if soft != resource.RLIM_INFINITY and soft < FILES_WANTED:
        return [note("open files", said, f"ulimit -n {FILES_WANTED} (a systemd unit: LimitNOFILE={FILES_WANTED})")]
    return [works("open files", said)]


async def clock(settings: Settings) -> Sequence[Finding]:
    async with ControlProcess() as control:
        await asyncio.sleep(WATCHED_S)
        seen = await control.lap()
    said = f"wake-ups late by {1000 * seen.p50_s:.1f} ms (p50), {1000 * seen.max_s:.1f} ms (max)"
    if time.gmtime().tm_year < EARLIEST_YEAR:
        return [note("clock", f"says the year {time.gmtime().tm_year}; {said}", "set it: credentials and TLS need it")]
    if seen.max_s > BEAT_S / 2:
        remedy = "this machine, or its host, is busy: frames may be late; see antiphon bench for how often"
        return [note("clock", said, remedy)]
    return [works("clock", said)]


def probes_port(settings: Settings) -> Sequence[Finding]:
    host, port = settings.probes.host, settings.probes.port
    if port is None:
        return [skipped("probes", "switched off")]
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1)
    except OSError as error:
        return [
            fails(
                "probes",
                f"{host}:{port}: {error.strerror or error}",
                "another worker may be running; choose another with ANTIPHON_PROBES__PORT (0: any free one; off: none)",
            )
        ]
    return [works("probes", f"{host}:{port} is free")]


PROBES = (
    Probe("python", python, "install Python 3.11 or newer"),
    Probe("cores", cores, "this system does not tell its cores; set ANTIPHON_MODEL__THREADS"),
    Probe("memory", memory, "look at the memory that is free"),
    Probe("open files", files, "look at ulimit -n"),
    Probe("clock", clock, "the process that measures wake-ups did not start"),
    Probe("probes", probes_port, "choose another ANTIPHON_PROBES__PORT"),
)
