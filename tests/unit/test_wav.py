from __future__ import annotations

import os
import subprocess
import sys
import wave
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from worker.wav import WavFile, WavStream, wav_header

ROOT = Path(__file__).parents[2]
SENTENCES = [np.arange(start, start + 5_001, dtype="<i2").tobytes() for start in (0, 7_000, -9_000)]

WRITER = """
import sys
from worker.wav import WavStream
out = WavStream(sys.stdout.buffer, 22050)
for _ in range(3):
    out.write(b"\\x01\\x02" * 5001)
    sys.stdout.buffer.flush()
out.finish()
"""


def frames_of(path: Path) -> bytes:
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (22_050, 1, 2)
        data: bytes = file.readframes(file.getnframes())
    return data


def in_a_shell(redirection: str, folder: Path) -> None:
    """Run the writer with its output redirected as a user would."""
    command = f'cd "$1" && exec 3>&1 && PYTHONPATH="$2" "$3" -c "$4" {redirection}'
    subprocess.run(["bash", "-c", command, "bash", folder, ROOT, sys.executable, WRITER], check=True)


def test_a_file_has_exact_sizes(tmp_path: Path) -> None:
    """Case C20."""
    path = tmp_path / "a.wav"
    with WavFile(path, 22_050) as out:
        for sentence in SENTENCES:
            out.write(sentence)
        assert not path.exists(), "nothing to be seen before it is whole"
        assert out.samples == 15_003
    assert frames_of(path) == b"".join(SENTENCES)
    data = path.read_bytes()
    assert int.from_bytes(data[4:8], "little") == len(data) - 8
    assert int.from_bytes(data[40:44], "little") == len(data) - 44
    assert os.listdir(tmp_path) == ["a.wav"]


def test_standard_output_into_a_file_has_exact_sizes(tmp_path: Path) -> None:
    in_a_shell("> b.wav", tmp_path)
    assert frames_of(tmp_path / "b.wav") == b"\x01\x02" * 15_003


def test_a_pipe_gets_one_streaming_header_and_no_trailer(tmp_path: Path) -> None:
    in_a_shell("| cat > c.wav", tmp_path)
    data = (tmp_path / "c.wav").read_bytes()
    assert data == wav_header(22_050) + b"\x01\x02" * 15_003
    assert data[4:8] == data[40:44] == b"\xff" * 4
    assert frames_of(tmp_path / "c.wav") == b"\x01\x02" * 15_003


def test_appending_adds_no_trailer(tmp_path: Path) -> None:
    (tmp_path / "d.raw").write_bytes(b"before")
    in_a_shell(">> d.raw", tmp_path)
    assert (tmp_path / "d.raw").read_bytes() == b"before" + wav_header(22_050) + b"\x01\x02" * 15_003


def test_sizes_are_entered_where_the_stream_began(tmp_path: Path) -> None:
    with (tmp_path / "e.raw").open("w+b") as file:
        file.write(b"before")
        out = WavStream(file, 8_000)
        out.write(b"\x01\x02" * 10)
        out.finish()
        file.write(b"after")
        file.seek(0)
        assert file.read() == b"before" + wav_header(8_000, 20) + b"\x01\x02" * 10 + b"after"


def test_a_failure_leaves_no_file_and_keeps_the_old_one(tmp_path: Path) -> None:
    """Case C39: no stub file."""
    path, old = tmp_path / "a.wav", tmp_path / "old.wav"
    old.write_bytes(b"old")
    for target in (path, old):
        with pytest.raises(AssertionError, match="whole samples"), WavFile(target, 8_000) as out:
            out.write(SENTENCES[0] + b"half a sample")
    assert os.listdir(tmp_path) == ["old.wav"]
    assert old.read_bytes() == b"old"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "a.wav"
    with pytest.raises(FileNotFoundError) as caught, WavFile(path, 8_000):
        pass
    assert caught.value.filename == str(path)


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError), WavFile(tmp_path / "folder", 8_000) as out:
        out.write(SENTENCES[0])
    assert os.listdir(tmp_path) == ["folder"]


def test_the_file_gets_the_permissions_that_any_new_file_gets(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with WavFile(tmp_path / "a.wav", 8_000):
        pass
    assert (tmp_path / "a.wav").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "a.wav").chmod(0o640)
    with WavFile(tmp_path / "a.wav", 8_000):
        pass
    assert (tmp_path / "a.wav").stat().st_mode & 0o777 == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.wav").symlink_to("real.wav")
    with WavFile(tmp_path / "link.wav", 22_050) as out:
        out.write(SENTENCES[0])
    assert (tmp_path / "link.wav").is_symlink()
    assert frames_of(tmp_path / "real.wav") == SENTENCES[0]


def test_a_named_pipe_is_streamed_to(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    received: list[bytes] = []
    reader = Thread(target=lambda: received.append(path.read_bytes()))
    reader.start()
    with WavFile(path, 8_000) as out:
        out.write(SENTENCES[0])
    reader.join()
    assert received == [wav_header(8_000) + SENTENCES[0]]
    assert path.is_fifo()


def test_no_audio_is_an_empty_file(tmp_path: Path) -> None:
    with WavFile(tmp_path / "a.wav", 22_050) as out:
        out.write(b"")
    assert frames_of(tmp_path / "a.wav") == b""


def test_what_the_format_cannot_count_has_unknown_sizes() -> None:
    assert wav_header(8_000, 2**32 - 45)[40:44] == (2**32 - 45).to_bytes(4, "little")
    assert wav_header(8_000, 2**32 - 44 + 2) == wav_header(8_000)
