"""G.711, as a telephone line has it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tests.listening import Wave, heard
from worker.audio.chain import OutputChain
from worker.audio.g711 import IDLE_CODES, Law, codes

FRAME = 1_920
EVERY_SAMPLE = np.arange(-32_768, 32_768)
LAWS: list[Law] = ["mulaw", "alaw"]

both = pytest.mark.parametrize("law", LAWS)


def coded(law: Law, samples: Wave) -> bytes:
    return codes(law)[samples.astype(np.int16).view(np.uint16)].tobytes()


def decoded(law: Law, payload: bytes) -> Wave:
    return heard(law, 8_000, payload) * 32_768


def pcm(samples: Wave) -> bytes:
    return np.rint(samples).astype("<i2").tobytes()


@both
def test_every_sample_comes_back_as_near_as_the_law_allows(law: Law) -> None:
    """Half a step: 1/32 of the value, at least 4 (mu-law) or 16 (A-law) of int16; what is louder is clipped."""
    back = decoded(law, coded(law, EVERY_SAMPLE))
    loudest = {"mulaw": 32_124, "alaw": 32_256}[law]
    assert back.max() == loudest
    assert back.min() == -loudest
    allowed = np.maximum((np.abs(EVERY_SAMPLE) + 132) / 32, 4 if law == "mulaw" else 16)
    error = np.abs(np.clip(EVERY_SAMPLE, -loudest, loudest) - back)
    assert (error <= allowed + 3).all(), "3: int16 is finer than the 14 and 13 bits of G.711"
    assert (np.diff(back) >= 0).all(), "louder never decodes softer"


@both
def test_the_codes_are_those_of_another_implementation(law: Law) -> None:
    """All but a few on the border between two codes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        audioop = pytest.importorskip("audioop")
    encode = audioop.lin2ulaw if law == "mulaw" else audioop.lin2alaw
    theirs = np.frombuffer(encode(EVERY_SAMPLE.astype("<i2").tobytes(), 2), np.uint8)
    ours = np.frombuffer(coded(law, EVERY_SAMPLE), np.uint8)
    assert np.mean(theirs != ours) < 0.01
    assert np.abs(decoded(law, theirs.tobytes()) - decoded(law, ours.tobytes())).max() <= 1_024


@both
def test_case_c23_silence_and_padding_are_the_idle_code(law: Law) -> None:
    """elevenlabs/packages#809: zero bytes would be a loud pop."""
    chain = OutputChain(law, 8_000)
    silence = chain.push(pcm(np.zeros(FRAME))) + chain.flush()
    assert IDLE_CODES[law] == {"mulaw": b"\xff", "alaw": b"\xd5"}[law]
    assert silence == IDLE_CODES[law] * 640
    tone = 8_000 * np.sin(2 * np.pi * 400 * np.arange(1_000) / 24_000) * np.linspace(1, 0, 1_000)
    spoken = chain.push(pcm(tone)) + chain.flush()
    assert len(spoken) == 480, "333 samples and a whole number of 20 ms frames"
    assert spoken[334:] == IDLE_CODES[law] * 146
    assert np.abs(decoded(law, spoken[330:])).max() < 100
    assert chain.flush() == b""
    assert chain.pts == 640 + 480


@both
def test_a_cancelled_utterance_is_whole_frames_too(law: Law) -> None:
    chain = OutputChain(law, 8_000)
    said = chain.push(pcm(8_000 * np.sin(2 * np.pi * 200 * np.arange(FRAME) / 24_000)))
    rest = chain.cut()
    assert len(said) % 160 != 0
    assert len(said + rest) % 160 == 0
    assert rest.endswith(IDLE_CODES[law])


@both
def test_the_end_of_the_session_is_a_whole_frame(law: Law) -> None:
    chain = OutputChain(law, 8_000)
    whole = chain.push(pcm(np.zeros(301))) + chain.finish()
    assert whole == IDLE_CODES[law] * 160
    assert chain.finish() == b""
    assert OutputChain(law, 8_000).finish() == b"", "no audio, no frame"


@both
def test_case_c23_full_scale_and_gain_clip_and_never_wrap(law: Law) -> None:
    loud = np.clip(40_000 * np.sin(2 * np.pi * 150 * np.arange(12_000) / 24_000), -32_768, 32_767)
    chain = OutputChain(law, 8_000, gain_db=12.0)
    back = decoded(law, chain.push(pcm(loud)) + chain.flush())
    assert np.abs(np.diff(back)).max() < 40_000
    assert back.max() > 32_000
    assert back.min() < -32_000
    middle = slice(800, 3_200)
    original = np.interp(np.arange(4_000) / 8_000, np.arange(12_000) / 24_000, loud)[middle]
    sure = np.abs(original) > 8_000
    assert (np.sign(back[: len(original) + 800][middle][sure]) == np.sign(original[sure])).all()
