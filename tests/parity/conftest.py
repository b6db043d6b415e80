from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch

from tests.parity.spectral_reference import SpectralReference
from tests.speech.yardstick import VOICE

if TYPE_CHECKING:
    from tests.parity.reference import ReferenceVoice


@pytest.fixture(scope="session")
def reference_voice() -> ReferenceVoice:
    """The built-in voice in moshi's hands, float32."""
    pytest.importorskip("moshi")
    from tests.parity.reference import ReferenceVoice

    return ReferenceVoice.load(VOICE)


@pytest.fixture(scope="session")
def spectral_reference() -> SpectralReference:
    """The built-in voice's codec as offline torch, float32."""
    return SpectralReference.load(VOICE)


@pytest.fixture(scope="module")
def one_torch_thread() -> Iterator[None]:
    """A step's products are small: two threads that share two cores with anything else make them ten times slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
