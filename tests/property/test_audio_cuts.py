"""However the model's audio is cut into pushes, what comes out is bit for bit the same."""

from __future__ import annotations

import io
import wave
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.audio import Encoding, OutputChain

RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)

encodings = st.sampled_from(["pcm_s16le", "pcm_f32le", "wav"])
rates = st.sampled_from(RATES)
gains = st.sampled_from([0.0, -7.5, 12.0])


def noise(seed: int, samples: int, quiet: int) -> bytes:
    """Noise after ``quiet`` samples of something below the silence threshold."""
    rng = np.random.default_rng(seed)
    sound = rng.standard_normal(samples) * 5_000
    sound[:quiet] = rng.integers(-20, 20, min(quiet, samples))
    return np.clip(np.rint(sound), -32_768, 32_767).astype("<i2").tobytes()


@settings(max_examples=150, deadline=None)
@given(
    encoding=encodings,
    rate=rates,
    gain_db=gains,
    trim=st.booleans(),
    seed=st.integers(0, 2**32),
    samples=st.integers(0, 9_000) | st.integers(20_000, 40_000),
    quiet=st.integers(0, 5_000) | st.integers(20_000, 40_000),
    data=st.data(),
)
def test_cuts_do_not_show(
    encoding: Encoding, rate: int, gain_db: float, trim: bool, seed: int, samples: int, quiet: int, data: st.DataObject
) -> None:
    pcm = noise(seed, samples, quiet)
    cuts = sorted({0, samples, *data.draw(st.lists(st.integers(0, samples), max_size=20))})
    whole = OutputChain(encoding, rate, gain_db=gain_db, trim_silence=trim)
    cut = OutputChain(encoding, rate, gain_db=gain_db, trim_silence=trim)
    at_once = whole.push(pcm) + whole.flush()
    payloads = [*(cut.push(pcm[2 * a : 2 * b]) for a, b in pairwise(cuts)), cut.flush()]
    assert b"".join(payloads) == at_once
    assert cut.pts == whole.pts
    assert all(len(payload) % (4 if encoding == "pcm_f32le" else 2) == 0 for payload in payloads)


@settings(max_examples=100, deadline=None)
@given(rate=rates, utterances=st.lists(st.tuples(st.integers(0, 6_000), st.booleans()), max_size=6))
def test_time_runs_through_flushes_and_cancels(rate: int, utterances: list[tuple[int, bool]]) -> None:
    """Each utterance has round(n * ratio) samples where it was flushed; model time and media time keep in step."""
    chain = OutputChain("pcm_s16le", rate)
    model, begun = 0, 0
    for samples, cancelled in utterances:
        before = chain.pts
        payload = chain.push(noise(1, samples, 0))
        model += samples
        assert chain.pts == before + len(payload) // 2
        if cancelled:
            chain.reset()
            model, begun = 0, chain.pts
        else:
            chain.flush()
            assert abs(chain.pts - before - samples * rate / 24_000) <= 0.5
        now = chain.media_ms(model)
        assert now is not None
        assert abs(now - 1000 * chain.pts / rate) < 1e-6
        assert chain.model_sample(now) == model
        assert chain.model_sample(1000 * begun / rate) == 0


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
