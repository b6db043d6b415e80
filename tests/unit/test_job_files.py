"""Finished files, each encoded and decoded again for real: lengths, tags, chapters and cover, and whole or absent."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.codeccontext import VideoCodecContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worker.audio.levels import Int16
from worker.jobs.bound import Chapter, bind
from worker.jobs.files import SAMPLE_RATE, AudioRefused, Encoding, Tags, write_file
from worker.jobs.silences import Layout, Silences, layout, spaced

LOSSLESS = (Encoding.FLAC, Encoding.WAV)
LENGTHS = (1, 47, 600, 1_919, 1_920, 24_001)
TAGS = Tags(title="One: the door", album="A book", artist="A voice", track=3, language="en")


def noise(samples: int, seed: int = 1) -> Int16:
    return np.random.default_rng(seed).integers(-9_000, 9_000, samples).astype(np.int16)


def decoded(path: Path) -> Int16:
    """[T], as FFmpeg's decoder gives it, at the decoder's own rate."""
    with av.open(str(path)) as container:
        resampler = av.AudioResampler("s16", "mono", None)
        frames = [frame for given in container.decode(audio=0) for frame in resampler.resample(given)]
        arrays = [frame.to_ndarray()[0] for frame in frames]
    return np.concatenate(arrays).astype(np.int16) if arrays else np.zeros(0, np.int16)


def stated(path: Path) -> int:
    """The length in the file's header, in samples at 24 kHz."""
    with av.open(str(path)) as container:
        stream = container.streams.audio[0]
        assert stream.duration is not None
        assert stream.time_base is not None
        return round(stream.duration * stream.time_base * SAMPLE_RATE)


def metadata(path: Path) -> dict[str, str]:
    with av.open(str(path)) as container:
        found = container.metadata | container.streams.audio[0].metadata
    return {name.lower(): value for name, value in found.items()}


def check_length(path: Path, encoding: Encoding, samples: int) -> None:
    came = len(decoded(path))
    match encoding:
        case Encoding.OPUS:
            assert came == 2 * samples
        case Encoding.MP3:
            over = samples % 576
            assert came == samples + (47 - over if 0 < over < 47 else 0)
        case Encoding.M4B:
            assert stated(path) == samples
            assert 0 <= came - samples < 1_024
        case _:
            assert came == samples


@pytest.mark.parametrize("encoding", Encoding)
def test_a_decoder_gives_as_many_samples_as_went_in(tmp_path: Path, encoding: Encoding) -> None:
    for samples in LENGTHS:
        path = tmp_path / f"{samples}.audio"
        made = write_file(path, [noise(samples)], encoding, TAGS)
        assert (made.name, made.encoding, made.samples) == (path.name, encoding, samples)
        assert (made.bytes, made.sha256) == (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        check_length(path, encoding, samples)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 9_000), min_size=1, max_size=6).filter(any), st.sampled_from(Encoding))
def test_the_blocks_sizes_do_not_matter(tmp_path: Path, sizes: list[int], encoding: Encoding) -> None:
    whole = noise(sum(sizes))
    in_blocks = write_file(tmp_path / "blocks", np.split(whole, np.cumsum(sizes)[:-1]), encoding)
    at_once = write_file(tmp_path / "whole", [whole], encoding)
    assert in_blocks.samples == sum(sizes)
    check_length(tmp_path / "blocks", encoding, sum(sizes))
    if encoding is Encoding.WAV:
        assert in_blocks.sha256 == at_once.sha256
    if encoding in LOSSLESS:
        assert np.array_equal(decoded(tmp_path / "blocks"), whole)


@pytest.mark.parametrize("encoding", Encoding)
def test_what_is_heard_is_where_it_was_put(tmp_path: Path, encoding: Encoding) -> None:
    """A click's place, so that no encoder's delay is left at the head."""
    click = np.zeros(12_000, np.int16)
    click[6_000] = 30_000
    write_file(tmp_path / "click", [click], encoding)
    came = np.abs(decoded(tmp_path / "click").astype(int))
    at = int(came.argmax()) // (2 if encoding is Encoding.OPUS else 1)
    assert abs(at - 6_000) <= (0 if encoding in LOSSLESS else 2)


@pytest.mark.parametrize("encoding", Encoding)
def test_no_samples_are_an_empty_file_or_a_refusal(tmp_path: Path, encoding: Encoding) -> None:
    path = tmp_path / "empty"
    nothing = [np.zeros(0, np.int16)]
    if encoding in LOSSLESS:
        assert write_file(path, nothing, encoding).samples == 0
        assert len(decoded(path)) == 0
    else:
        with pytest.raises(AudioRefused, match="no samples"):
            write_file(path, nothing, encoding)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("encoding", Encoding)
def test_tags_come_back_and_the_same_input_gives_the_same_bytes(tmp_path: Path, encoding: Encoding) -> None:
    one, other = (write_file(tmp_path / name, [noise(3_000)], encoding, TAGS) for name in ("one", "other"))
    assert one.sha256 == other.sha256
    found = metadata(tmp_path / "one")
    assert {name: found[name] for name in ("title", "album", "artist", "track")} == {
        "title": "One: the door",
        "album": "A book",
        "artist": "A voice",
        "track": "3",
    }
    assert found["language"] == ("eng" if encoding is Encoding.M4B else "en")


def test_a_wav_keeps_room_for_the_sizes_of_a_file_above_4_gib(tmp_path: Path) -> None:
    """EBU Tech 3306: JUNK becomes ds64, and RIFF RF64, once the size is known."""
    write_file(tmp_path / "a.wav", [noise(10)], Encoding.WAV)
    head = (tmp_path / "a.wav").read_bytes()[:16]
    assert (head[:4], head[8:16]) == (b"RIFF", b"WAVEJUNK")


def failing(samples: int) -> Iterator[Int16]:
    yield noise(samples)
    raise RuntimeError("the rendering broke")


@pytest.mark.parametrize("encoding", Encoding)
def test_a_failure_leaves_the_file_that_was_there(tmp_path: Path, encoding: Encoding) -> None:
    path = tmp_path / "chapter"
    path.write_bytes(b"the old one")
    with pytest.raises(RuntimeError, match="the rendering broke"):
        write_file(path, failing(30_000), encoding)
    assert path.read_bytes() == b"the old one"
    assert list(tmp_path.iterdir()) == [path]


_WRITER = """
import sys, numpy as np
from pathlib import Path
from worker.jobs.files import Encoding, write_file
def blocks():
    for _ in range(50):
        yield np.ones(24_000, np.int16)
    print("half", flush=True)
    sys.stdin.read()
write_file(Path(sys.argv[1]), blocks(), Encoding.WAV)
"""


def test_a_killed_writer_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    path = tmp_path / "chapter.wav"
    command = [sys.executable, "-c", _WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"half\n"
        os.kill(writer.pid, signal.SIGKILL)
    assert not path.exists()
    assert [left.suffix for left in tmp_path.iterdir()] == [".part"]
    assert write_file(path, [noise(5)], Encoding.WAV).samples == 5


CHAPTERS = (Chapter("The door", 24_000), Chapter("The stairs", 1), Chapter("The roof", 26_000))
BOOK_SAMPLES = 50_001
BINDINGS = (Encoding.M4B, Encoding.MP3, Encoding.OPUS)


def picture(codec: str, pixels: str) -> bytes:
    context = av.CodecContext.create(codec, "w")
    assert isinstance(context, VideoCodecContext)
    context.width, context.height, context.pix_fmt, context.time_base = 48, 64, pixels, Fraction(1, 25)
    frame = av.VideoFrame.from_ndarray(np.full((64, 48, 3), 90, np.uint8), format="rgb24")
    packets = [*context.encode(frame.reformat(format=pixels)), *context.encode(None)]
    return b"".join(bytes(packet) for packet in packets)


@pytest.fixture(scope="module", params=[("mjpeg", "yuvj420p"), ("png", "rgb24")], ids=["jpeg", "png"])
def cover(request: pytest.FixtureRequest) -> bytes:
    return picture(*request.param)


def cover_in(path: Path) -> bytes:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        return b"".join(bytes(packet) for packet in container.demux(stream) if packet.size)


@pytest.mark.parametrize("encoding", BINDINGS)
def test_a_bound_book_has_its_chapters_cover_and_length(tmp_path: Path, encoding: Encoding, cover: bytes) -> None:
    path = tmp_path / "book"
    made = bind(path, [noise(BOOK_SAMPLES)], CHAPTERS, encoding, TAGS, cover)
    assert made.samples == BOOK_SAMPLES
    check_length(path, encoding, BOOK_SAMPLES)
    assert metadata(path)["album"] == "A book"
    with av.open(str(path)) as container:
        marks = container.chapters()
    assert [mark["metadata"]["title"] for mark in marks] == ["The door", "The stairs", "The roof"]
    starts = [float(mark["start"] * (mark["time_base"] or 0)) * SAMPLE_RATE for mark in marks]
    assert starts == pytest.approx([0, 24_000, 24_001], abs=0 if encoding is Encoding.M4B else SAMPLE_RATE / 1_000)
    assert cover_in(path) == cover


def test_a_book_needs_no_cover(tmp_path: Path) -> None:
    bind(tmp_path / "book", [noise(BOOK_SAMPLES)], CHAPTERS, Encoding.M4B)
    with av.open(str(tmp_path / "book")) as container:
        assert not container.streams.video


@pytest.mark.parametrize(
    ("chapters", "encoding", "cover", "field"),
    [
        (CHAPTERS, Encoding.FLAC, None, "encoding"),
        ((), Encoding.M4B, None, "chapters"),
        ((Chapter("empty", 0), *CHAPTERS), Encoding.M4B, None, "chapters"),
        (CHAPTERS[:2], Encoding.M4B, None, "chapters"),
        ((*CHAPTERS, CHAPTERS[0]), Encoding.MP3, None, "chapters"),
        (CHAPTERS, Encoding.OPUS, b"GIF89a", "cover"),
        (CHAPTERS, Encoding.MP3, b"\x89PNG\r\n\x1a\n and no more", "cover"),
        (CHAPTERS, Encoding.M4B, b"\xff\xd8\xff" + bytes(5 * 1024 * 1024), "cover"),
    ],
)
def test_a_book_that_does_not_fit_is_refused(
    tmp_path: Path, chapters: tuple[Chapter, ...], encoding: Encoding, cover: bytes | None, field: str
) -> None:
    with pytest.raises(AudioRefused) as refused:
        bind(tmp_path / "book", [noise(BOOK_SAMPLES)], chapters, encoding, None, cover)
    assert refused.value.field == field
    assert list(tmp_path.iterdir()) == []


def test_silences_are_where_the_layout_says() -> None:
    silences = Silences(gap_s=0.35, head_s=0.5, tail_s=1.00002)
    segments = [noise(1_000, seed) for seed in range(3)]
    placed = layout([1_000] * 3, silences)
    assert placed == Layout((12_000, 21_400, 30_800), 31_800 + 24_000)
    audio = np.concatenate(list(spaced([np.split(segment, 4) for segment in segments], silences)))
    assert len(audio) == placed.samples
    for start, segment in zip(placed.starts, segments, strict=True):
        assert np.array_equal(audio[start : start + 1_000], segment)
        audio[start : start + 1_000] = 0
    assert not audio.any()


def test_no_segments_are_head_and_tail_alone() -> None:
    silences = Silences(gap_s=1.0, head_s=0.5, tail_s=0.25)
    assert layout([], silences) == Layout((), 18_000)
    assert sum(map(len, spaced([], silences))) == 18_000


@pytest.mark.parametrize("value", [-0.001, 30.5, float("nan"), float("inf")])
def test_a_silence_out_of_bounds_is_refused(value: float) -> None:
    with pytest.raises(AudioRefused, match="head_s"):
        Silences(head_s=value)
