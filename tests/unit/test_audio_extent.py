from __future__ import annotations

import numpy as np
import pytest

from tests.listening import FORMATS
from worker.audio.chain import OutputChain
from worker.audio.encoders import Encoding
from worker.audio.extent import samples_in

FRAME_BYTES = 3_840


@pytest.mark.parametrize(("encoding", "rate"), FORMATS)
def test_a_listener_counts_the_samples_that_pts_counts(encoding: Encoding, rate: int) -> None:
    pcm = np.random.default_rng(1).integers(-9_000, 9_000, 9_001).astype("<i2").tobytes()
    chain = OutputChain(encoding, rate)
    calls = [lambda at=at: chain.push(pcm[at : at + FRAME_BYTES]) for at in range(0, len(pcm), FRAME_BYTES)]
    for call in (*calls, chain.flush, calls[0], chain.cut, calls[1], chain.finish):
        start = chain.pts
        payload = call()
        assert samples_in(payload, encoding=encoding, sample_rate=rate, pts=start) == chain.pts - start


@pytest.mark.parametrize("payload", [b"OggS", b"OggX" + bytes(23), b"x" * 100, b"OggS" + bytes(22) + b"\x01\x09ab"])
def test_what_is_no_page_is_an_error(payload: bytes) -> None:
    with pytest.raises(ValueError, match="Ogg page"):
        samples_in(payload, encoding="opus", sample_rate=24_000, pts=0)


def test_an_unknown_encoding_is_an_error() -> None:
    with pytest.raises(ValueError, match="encoding"):
        samples_in(b"xx", encoding="mp3", sample_rate=24_000, pts=0)
