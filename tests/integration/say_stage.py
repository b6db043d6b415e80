"""The command itself, in a process of its own, and a worker for it in another."""

from __future__ import annotations

import os
import subprocess
import sys
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
MAIN = "import sys; from worker.cli.main import main; sys.exit(main())"
PATIENCE_S = 60.0
SEED = "7"


def antiphon(*argv: str, **options: Any) -> subprocess.Popen[bytes]:
    """Started with pipes for its input and output, and without this environment's settings."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANTIPHON_")}
    env["PYTHONPATH"] = str(ROOT)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", MAIN, *argv], env=env, **{**pipes, **options})


@dataclass(frozen=True)
class Done:
    code: int
    out: bytes
    err: str


@dataclass(frozen=True)
class House:
    """A worker with the built-in voice. It has little room for text, so that every longer one is held back."""

    url: str
    folder: Path

    def start(self, command: str, *argv: str, **options: Any) -> subprocess.Popen[bytes]:
        return antiphon(command, "--nats.url", self.url, *argv, **{"cwd": self.folder, **options})

    def run(self, command: str, *argv: str, stdin: bytes = b"", **options: Any) -> Done:
        with self.start(command, *argv, **options) as process:
            out, err = process.communicate(stdin, PATIENCE_S)
        return Done(process.returncode, out or b"", err.decode())

    def say(self, *argv: str, stdin: bytes = b"", **options: Any) -> Done:
        """With a fixed seed."""
        return self.run("say", "--seed", SEED, *argv, stdin=stdin, **options)


@contextmanager
def working() -> Iterator[str]:
    """A worker in a process of its own; the URL of its server."""
    limits = ("--worker.text-chars", "60", "--worker.buffer-chars", "120")
    settings = ("--nats.embedded", "on", "--probes.port", "off", "--telemetry.log-level", "error")
    with antiphon("serve", "--announce", *settings, *limits, stderr=None) as process:
        assert process.stdout is not None
        try:
            words = process.stdout.readline().decode().split()
            assert words[:1] == ["ready"], words
            yield str(words[1])
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)


def frames(path: Path) -> bytes:
    """The samples of a WAV file whose header is right to the byte."""
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)
        count = file.getnframes()
        samples: bytes = file.readframes(count + 1)
    assert len(samples) == 2 * count, "exact frames"
    assert path.stat().st_size == 44 + 2 * count, "and nothing after them"
    return samples


def first(pipe: IO[bytes] | None, count: int) -> bytes:
    """So many bytes, as soon as they are there."""
    assert pipe is not None
    got = b""
    while len(got) < count:
        more = os.read(pipe.fileno(), count - len(got))
        assert more, f"ended after {len(got)} bytes"
        got += more
    return got
