"""However the model's audio is cut into pushes, what comes out is bit for bit the same; and its times add up."""

from __future__ import annotations

import io
import wave
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.listening import FORMATS, RATES, WIDTHS, heard, pages
from worker.audio.chain import OutputChain
from worker.audio.encoders import Encoding

rates = st.sampled_from(RATES)
formats: st.SearchStrategy[tuple[Encoding, int]] = st.sampled_from(FORMATS)
gains = st.sampled_from([0.0, -7.5, 12.0])


def noise(seed: int, samples: int, quiet: int) -> bytes:
    """Noise after ``quiet`` samples of something below the silence threshold."""
    rng = np.random.default_rng(seed)
    sound = rng.standard_normal(samples) * 5_000
    sound[:quiet] = rng.integers(-20, 20, min(quiet, samples))
    return np.clip(np.rint(sound), -32_768, 32_767).astype("<i2").tobytes()


@settings(max_examples=150, deadline=None)
@given(
    form=formats,
    gain_db=gains,
    trim=st.booleans(),
    seed=st.integers(0, 2**32),
    samples=st.integers(0, 9_000) | st.integers(20_000, 40_000),
    quiet=st.integers(0, 5_000) | st.integers(20_000, 40_000),
    data=st.data(),
)
def test_cuts_do_not_show(
    form: tuple[Encoding, int], gain_db: float, trim: bool, seed: int, samples: int, quiet: int, data: st.DataObject
) -> None:
    encoding, rate = form
    pcm = noise(seed, samples, quiet)
    cuts = sorted({0, samples, *data.draw(st.lists(st.integers(0, samples), max_size=20))})
    whole = OutputChain(encoding, rate, gain_db=gain_db, trim_silence=trim)
    cut = OutputChain(encoding, rate, gain_db=gain_db, trim_silence=trim)
    at_once = whole.push(pcm) + whole.flush()
    payloads = [*(cut.push(pcm[2 * a : 2 * b]) for a, b in pairwise(cuts)), cut.flush()]
    assert cut.pts == whole.pts
    if encoding == "opus":
        # How packets share pages depends on the cuts; what they hold does not.
        assert packets(b"".join(payloads)) == packets(at_once)
    else:
        assert b"".join(payloads) == at_once
        assert all(len(payload) % WIDTHS[encoding] == 0 for payload in payloads)


def packets(stream: bytes) -> list[bytes]:
    return [packet for page in pages(stream) for packet in page.packets]


steps = st.lists(st.tuples(st.integers(0, 6_000), st.sampled_from(["push", "flush", "cut"])), max_size=6)


@settings(max_examples=150, deadline=None)
@given(form=formats, steps=steps, last=st.sampled_from(["finish", "cut"]))
def test_time_runs_through_flushes_and_cancels(
    form: tuple[Encoding, int], steps: list[tuple[int, str]], last: str
) -> None:
    """A decoder gets as many samples as ``pts`` says; an utterance is whole where it was flushed; model time and media
    time keep in step."""
    encoding, rate = form
    chain = OutputChain(encoding, rate)
    stream, model = b"", 0
    for samples, then in steps:
        start, begun = chain.pts, chain.media_ms(0)
        payload = chain.push(noise(1, samples, 0))
        model += samples
        now = chain.media_ms(model)
        if then == "flush":
            payload += chain.flush()
            assert now is not None
            assert now * rate / 1000 <= chain.pts + 1, "all that was given is out"
            assert 0 <= model - chain.model_sample(1000 * chain.pts / rate) < 24_000 / rate
        elif then == "cut":
            payload += chain.cut()
            model = 0
            assert chain.model_sample(1000 * chain.pts / rate) == 0
        assert begun is not None
        assert chain.model_sample(begun) == 0
        if encoding in WIDTHS:
            assert len(payload) - header_of(chain, start) == (chain.pts - start) * WIDTHS[encoding]
        stream += payload
    stream += chain.finish() if last == "finish" else chain.cut(last=True)
    assert chain.finish() + chain.cut(last=True) == b""
    assert len(heard(encoding, rate, stream)) == chain.pts


def header_of(chain: OutputChain, start: int) -> int:
    """Bytes of the header in what came since ``start``."""
    return len(chain.header_bytes) if start == 0 < chain.pts else 0


@settings(max_examples=100, deadline=None)
@given(rate=rates, utterances=st.lists(st.integers(0, 6_000), max_size=6))
def test_utterances_have_the_length_that_their_rate_gives(rate: int, utterances: list[int]) -> None:
    chain = OutputChain("pcm_s16le", rate)
    for number, samples in enumerate(utterances):
        start = chain.pts
        chain.push(noise(number, samples, 0))
        chain.flush()
        # Where it ended in a sound, 5 ms lead to silence.
        off = [chain.pts - start - given * rate / 24_000 for given in (samples, samples + 120)]
        assert min(map(abs, off)) <= 0.5


@settings(max_examples=50, deadline=None)
@given(rate=rates, sizes=st.lists(st.integers(0, 3_000), min_size=1, max_size=5), block=st.integers(1, 5_000))
def test_a_wav_stream_reads_back_exactly(rate: int, sizes: list[int], block: int) -> None:
    """Case C21: read in blocks of any size, for instance 4,063 bytes."""
    chain = OutputChain("wav", rate)
    stream = b"".join(chain.push(noise(size, size, 0)) for size in sizes) + chain.flush()
    if not stream:
        assert chain.pts == 0
        return
    source = io.BytesIO(stream)
    gathered = b"".join(iter(lambda: source.read(block), b""))
    with wave.open(io.BytesIO(gathered)) as file:
        assert len(file.readframes(file.getnframes())) == 2 * chain.pts
