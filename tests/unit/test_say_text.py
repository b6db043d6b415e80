from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from worker.cli.command import CommandError
from worker.cli.manuscript import Document, Manuscript, Stream, Utf8, manuscript

WORDS = "Grüße \U0001f642 naïve\n"


async def read(text: Manuscript) -> str:
    return "".join([piece async for piece in text])


def test_text_is_the_same_however_its_bytes_are_cut() -> None:
    utf8 = Utf8("it")
    data = WORDS.encode()
    assert "".join(utf8.text(data[at : at + 1]) for at in range(len(data))) + utf8.text(b"", final=True) == WORDS


def test_a_byte_order_mark_is_no_text() -> None:
    utf8 = Utf8("it")
    data = "\ufeffa\ufeff".encode()
    assert [utf8.text(data[at : at + 1]) for at in range(len(data))] == ["", "", "", "a", "", "", "\ufeff"]


@pytest.mark.parametrize(
    ("chunks", "place"),
    [
        ([b"caf\xe9 au lait"], 3),
        ([b"ok ", b"caf\xe9"], 6),
        ([b"ok \xf0\x9f", b"\x99x"], 3),
        ([b"\xff\xfea\0"], 0),
        ([b"cut \xc3"], 4),
        ([b"a\xc3", b"\xbc\0"], 3),
    ],
)
def test_what_is_no_text_is_said_with_its_place_and_without_its_content(chunks: list[bytes], place: int) -> None:
    utf8 = Utf8("it")
    with pytest.raises(CommandError, match=rf"it: byte {place} is (not UTF-8|NUL)") as error:
        _ = [utf8.text(chunk, final=chunk is chunks[-1]) for chunk in chunks]
    cause = error.value.__context__
    assert cause is None or error.value.__suppress_context__, "a traceback would quote it"
    assert "caf" not in str(error.value)


async def test_an_argument_is_the_text(tmp_path: Path) -> None:
    text = await manuscript("hello", None)
    assert await read(text) == "hello"
    assert text.chars == 5


async def test_a_long_file_is_checked_whole_and_read_again(tmp_path: Path) -> None:
    (tmp_path / "book").write_bytes(WORDS.encode() * 5000)
    text = await manuscript(None, str(tmp_path / "book"))
    await text.check()
    assert text.chars == len(WORDS) * 5000
    assert await read(text) == WORDS * 5000


async def test_a_file_s_last_byte_is_checked_before_anything_is_said(tmp_path: Path) -> None:
    (tmp_path / "book").write_bytes(b"word " * 20_000 + b"\xe9")
    text = await manuscript(None, str(tmp_path / "book"))
    with pytest.raises(CommandError, match="byte 100000 is not UTF-8"):
        await text.check()


async def test_a_file_is_read_from_where_its_descriptor_stands(tmp_path: Path) -> None:
    (tmp_path / "book").write_bytes(b"one two")
    descriptor = os.open(tmp_path / "book", os.O_RDONLY)
    os.read(descriptor, 4)
    text = Document(descriptor, "standard input")
    await text.check()
    assert await read(text) == "two"
    os.close(descriptor)


@pytest.mark.parametrize("name", ["nowhere", "."])
async def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match=r"No such file|Is a directory") as error:
        await manuscript(None, str(tmp_path / name))
    assert error.value.filename == str(tmp_path / name)


async def test_a_pipe_is_read_as_it_is_written() -> None:
    reading, writing = os.pipe()
    pieces = aiter(Stream(reading, "standard input"))
    for word in (b"one ", b"two ", b"gr\xc3\xbc\xc3"):
        os.write(writing, word)
        assert await anext(pieces) == word.decode(errors="ignore")
    os.write(writing, b"\x9f")
    assert await anext(pieces) == "ß"
    os.close(writing)
    assert [piece async for piece in pieces] == [""]
    assert os.get_blocking(reading), "its other owners would notice"
    os.close(reading)


async def test_waiting_for_a_pipe_can_be_cancelled() -> None:
    reading, writing = os.pipe()
    task = asyncio.ensure_future(read(Stream(reading, "standard input")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert not asyncio.get_running_loop().remove_reader(reading), "nothing is left behind"
    os.close(reading)
    os.close(writing)


async def test_what_cannot_be_waited_for_is_read_at_once() -> None:
    text = await manuscript(None, os.devnull)
    assert text.chars is None
    assert await read(text) == ""
