from __future__ import annotations

import asyncio
import os
import select
import stat
import wave
from pathlib import Path

import pytest

from worker.cli.sink import Stream, file_sink
from worker.wav import wav_header

PCM = bytes(range(200)) * 10


async def write_and_fail(path: Path, raw: bool) -> None:
    async with file_sink(path, 8000, raw=raw) as sink:
        await sink.write(PCM)
        raise ZeroDivisionError


async def full(writing: int, task: asyncio.Task[None]) -> None:
    """Returns when the pipe takes no more, or nothing more is written."""
    while not task.done() and select.select([], [writing], [], 0)[1]:  # noqa: ASYNC110 - nothing announces it
        await asyncio.sleep(0)


async def test_a_wav_file_has_exactly_the_samples(tmp_path: Path) -> None:
    async with file_sink(tmp_path / "a.wav", 8000, raw=False) as sink:
        await sink.write(PCM)
        await sink.write(PCM)
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert (file.getframerate(), file.getnframes()) == (8000, 2000)
        assert file.readframes(2001) == PCM + PCM
    assert os.listdir(tmp_path) == ["a.wav"]


async def test_a_raw_file_is_the_samples(tmp_path: Path) -> None:
    async with file_sink(tmp_path / "a.pcm", 8000, raw=True) as sink:
        await sink.write(PCM)
        assert not (tmp_path / "a.pcm").exists(), "not before it is whole"
    assert (tmp_path / "a.pcm").read_bytes() == PCM
    assert os.listdir(tmp_path) == ["a.pcm"]


@pytest.mark.parametrize("raw", [False, True])
async def test_a_failure_leaves_the_old_file_and_no_new_one(tmp_path: Path, raw: bool) -> None:
    (tmp_path / "old").write_bytes(b"old")
    for name in ("old", "new"):
        with pytest.raises(ZeroDivisionError):
            await write_and_fail(tmp_path / name, raw)
    assert os.listdir(tmp_path) == ["old"]
    assert (tmp_path / "old").read_bytes() == b"old"


@pytest.mark.parametrize("raw", [False, True])
async def test_a_file_that_cannot_be_written_is_named_at_once(tmp_path: Path, raw: bool) -> None:
    with pytest.raises(FileNotFoundError) as error:
        async with file_sink(tmp_path / "no" / "a.wav", 8000, raw=raw):
            pass
    assert error.value.filename == str(tmp_path / "no" / "a.wav")


@pytest.mark.parametrize("raw", [False, True])
async def test_a_file_that_is_being_opened_when_we_are_stopped_is_closed(tmp_path: Path, raw: bool) -> None:
    for turns in range(1, 40):
        task = asyncio.create_task(write_and_fail(tmp_path / "new", raw))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert os.listdir(tmp_path) == []


async def test_a_named_pipe_is_streamed_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = asyncio.create_task(asyncio.to_thread((tmp_path / "pipe").read_bytes))
    async with file_sink(tmp_path / "pipe", 8000, raw=False) as sink:
        await sink.write(PCM)
        await sink.write(PCM)
    assert await reading == wav_header(8000) + PCM + PCM
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


async def test_a_device_that_cannot_be_waited_for_is_written_to(tmp_path: Path) -> None:
    async with file_sink(Path(os.devnull), 8000, raw=True) as sink:
        await sink.write(PCM)


async def test_a_full_pipe_makes_the_writer_wait_and_nobody_else() -> None:
    reading, writing = os.pipe()
    whole = PCM * 100
    task = asyncio.create_task(Stream(writing).write(whole))
    heard = b""
    while len(heard) < len(whole):
        await full(writing, task)
        heard += os.read(reading, 4096)
        await asyncio.sleep(0)
    assert heard == whole
    await task
    assert os.get_blocking(writing), "its other owners would notice"
    os.close(reading)
    os.close(writing)


async def test_a_reader_who_leaves_is_a_broken_pipe_even_while_we_wait() -> None:
    reading, writing = os.pipe()
    task = asyncio.create_task(Stream(writing).write(PCM * 100))
    await full(writing, task)
    assert not task.done()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        await task
    os.close(writing)


async def test_waiting_for_a_full_pipe_can_be_cancelled() -> None:
    reading, writing = os.pipe()
    task = asyncio.create_task(Stream(writing).write(PCM * 100))
    await full(writing, task)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert not asyncio.get_running_loop().remove_writer(writing), "nothing is left behind"
    os.close(reading)
    os.close(writing)
