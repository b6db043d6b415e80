from __future__ import annotations

import asyncio
import sys
import tomllib
from pathlib import Path

import pytest

from worker.measure.stack import StackFailed, configuration, while_alive
from worker.measure.texts import UTTERANCES, in_turn, read_texts
from worker.settings import load

URL = "nats://127.0.0.1:4444"


def worker_settings(*argv: str, **env: str) -> dict[str, dict[str, object]]:
    return tomllib.loads("\n".join(configuration(load(argv, env), URL)))


async def child(code: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=asyncio.subprocess.PIPE)


def test_the_worker_gets_what_was_set_for_the_command_on_the_given_server() -> None:
    made = worker_settings(
        *(
            "--model.slots",
            "3",
            "--worker.tenants",
            "a,b",
            "--no-telemetry.prometheus",
            "--nats.url",
            "nats://elsewhere",
        ),
        ANTIPHON_MODEL__PATH='a "folder"',
        ANTIPHON_MODEL__SLOTS="9",
    )
    assert made["nats"] == {"url": URL, "embedded": "off"}
    assert made["probes"] == {"port": "off"}
    assert made["model"] == {"slots": 3, "path": 'a "folder"'}
    assert made["worker"] == {"tenants": ["a", "b"], "drain_grace_s": 1.0}
    assert made["telemetry"] == {"prometheus": False}


def test_its_file_is_one_that_the_worker_takes(tmp_path: Path) -> None:
    file = tmp_path / "worker.toml"
    file.write_text("\n".join(configuration(load(["--worker.drain-grace-s", "5"], {}), URL)), encoding="utf-8")
    settings = load([], {}, file)
    assert settings.nats.url == (URL,)
    assert settings.probes.port is None
    assert settings.worker.drain_grace_s == 5.0


async def test_work_is_done_while_the_worker_lives() -> None:
    process = await child("input()")

    async def work() -> int:
        return 7

    assert await while_alive(process, lambda: "", work()) == 7
    process.kill()
    await process.wait()


async def test_a_worker_that_dies_ends_the_work_and_is_quoted() -> None:
    process = await child("raise SystemExit(3)")
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(StackFailed, match="ended with status 3: out of slots"):
        await while_alive(process, lambda: "out of slots", work())
    assert cancelled.is_set()


def test_the_paragraphs_of_a_file_are_its_texts(tmp_path: Path) -> None:
    file = tmp_path / "texts"
    file.write_bytes("One\r\ntwo.\r\n\r\n\r\n  Thr\u00e9e. \n\n".encode())
    assert read_texts(file) == ("One two.", "Thr\u00e9e.")
    file.write_text(" \n\n")
    with pytest.raises(ValueError, match="holds no text"):
        read_texts(file)


def test_texts_come_in_turn_each_as_often_as_any_other() -> None:
    first = in_turn(UTTERANCES, 3)
    rounds = [[next(first) for _ in UTTERANCES] for _ in range(2)]
    assert [sorted(one) for one in rounds] == [sorted(UTTERANCES)] * 2
    assert rounds[0] != rounds[1]
    again = in_turn(UTTERANCES, 3)
    assert [next(again) for _ in UTTERANCES] == rounds[0]
