"""On a CUDA device: captured steps, plain steps and the CPU agree, and nothing that a graph reads goes away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from engine.checkpoint import load_checkpoint
from engine.device import CudaDevice
from engine.dsm import DsmEngine
from engine.errors import KernelError
from engine.kernels import TorchKernels
from engine.loading import BUILTIN, load_engine, model_info
from engine.trial import parity, spoken, step_time
from tests.unit.engine_helpers import words
from worker.checkup.device import LOGITS_OFF, SAMPLES_OFF

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
ROWS = 4


@pytest.fixture(scope="module")
def cuda() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


@pytest.fixture(scope="module")
def captured() -> DsmEngine:
    return load_engine(capacity=16, device="cuda")


@pytest.fixture(scope="module")
def plain() -> DsmEngine:
    return load_engine(capacity=ROWS, device="cuda", steps="plain")


@pytest.fixture(autouse=True)
def quiet_device() -> Iterator[None]:
    """A fault on the device belongs to the test that made it."""
    yield
    torch.cuda.synchronize()


def test_everything_is_captured(captured: DsmEngine) -> None:
    assert captured.run_ahead == 1
    assert captured.captured is not None
    assert (captured.captured.graphs, captured.captured.failed) == (6, 0)


def test_the_device_computes_what_the_cpu_computes(plain: DsmEngine) -> None:
    here = load_engine(capacity=ROWS, kernels="torch", precision="float32")
    found = parity(here, plain, ROWS, here.config.warm_up_steps + 16)
    assert max(found.text_logits, found.audio_logits) < LOGITS_OFF
    assert found.samples < SAMPLES_OFF


def test_graphs_say_what_plain_steps_say(captured: DsmEngine, plain: DsmEngine) -> None:
    want, got = (spoken(engine, words(6), ROWS) for engine in (plain, captured))
    assert all(len(sound) > 10_000 for sound in want)
    assert want == got


def test_a_padded_graph_speaks_for_its_rows_alone(captured: DsmEngine) -> None:
    """Three rows in the graph of four: the same length and about the same sound as among four, and again the same."""
    first, again = (spoken(captured, words(4), 3) for _ in range(2))
    assert first == again
    assert all(len(sound) > 10_000 for sound in first)


def test_graphs_read_nothing_that_is_gone(cuda: torch.device) -> None:
    model = load_checkpoint(BUILTIN)
    kernels = TorchKernels(model, ROWS + 1, cuda, row_by_row=False)
    watched = CudaDevice(cuda, check_liveness=True)
    engine = DsmEngine(model, model_info(model), kernels, ROWS, cuda, graphs=watched)
    assert engine.captured is not None
    assert engine.captured.failed == 0
    junk = [torch.full((1 << 20,), torch.nan, device=cuda) for _ in range(64)]  # over whatever was freed
    assert spoken(engine, words(2), ROWS) == spoken(engine, words(2), ROWS)
    assert len(junk) == 64


def test_the_host_takes_little_of_a_step(captured: DsmEngine) -> None:
    for rows in (1, 16):
        time = step_time(captured, rows)
        assert 0.0 < time.host_s < 0.080
        assert 0.0 < time.full_s < 0.080, "slower than it is heard"


def test_the_phases_compute_what_torch_computes(plain: DsmEngine) -> None:
    try:
        native = load_engine(capacity=ROWS, device="cuda", kernels="native", steps="plain")
    except KernelError as error:
        pytest.skip(str(error))
    found = parity(plain, native, ROWS, plain.config.warm_up_steps + 16)
    assert max(found.text_logits, found.audio_logits) < LOGITS_OFF
    assert found.samples < SAMPLES_OFF
