"""The trial of a device, held on the CPU: the same code, with graphs that are plain calls."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from engine.checkpoint import load_checkpoint
from engine.device import Body, HostDevice, Strictness
from engine.dsm import DsmEngine
from engine.graphs import buckets
from engine.kernels import TorchKernels
from engine.loading import BUILTIN, load_engine
from engine.trial import Parity, StepTime, parity, spoken, step_time
from tests.unit.engine_helpers import words
from worker.checkup.device import agreed, captures, paced, tried
from worker.checkup.finding import State
from worker.sections import ModelSettings


@pytest.fixture(scope="module")
def captured() -> DsmEngine:
    return load_engine(capacity=2, steps="graphs")


@pytest.fixture(scope="module")
def plain() -> DsmEngine:
    return load_engine(capacity=2, kernels="torch", steps="plain")


def test_graphs_say_what_plain_steps_say(captured: DsmEngine, plain: DsmEngine) -> None:
    assert (plain.run_ahead, captured.run_ahead) == (0, 1)
    want, got = (spoken(engine, words(1), 2) for engine in (plain, captured))
    assert want == got
    assert len(want[0]) > 1920
    assert want[0] != want[1]


def test_parity_is_exact_with_oneself_and_not_with_another(plain: DsmEngine) -> None:
    other = load_engine(capacity=1, kernels="torch", steps="plain")
    steps = plain.config.warm_up_steps + 1
    assert parity(plain, other, rows=1, steps=steps) == Parity(0.0, 0.0, 0)
    assert isinstance(other.kernels, TorchKernels)
    other.kernels._backbone.text_head[3] += 0.5
    found = parity(plain, other, rows=1, steps=2)
    assert found.text_logits > 0.01


def test_step_times_are_told_apart(captured: DsmEngine) -> None:
    time = step_time(captured, rows=2, repeats=3)
    assert 0.0 < time.text_s < time.full_s
    assert time.host_s > 0.0
    again = step_time(captured, rows=1, repeats=3)  # the slots are free again
    assert again.rows == 1


def test_what_check_makes_of_it(captured: DsmEngine) -> None:
    times = [StepTime(1, 0.002, 0.001, 0.002, 0.0001), StepTime(64, 0.020, 0.004, 0.021, 0.0002)]
    steps, roofline, sessions = paced(captured, times, "NVIDIA H200", slots_that_fit=300)
    assert "1: 2.00, 64: 20.00; host 0.20" in steps.said
    assert "times the floor of H200" in roofline.said
    assert "190 by time" in sessions.said
    assert "300 by memory" in sessions.said
    slow = [dataclasses.replace(time, full_s=0.2) for time in times]
    assert paced(captured, slow, "unknown", None)[-1].state is State.FAILS
    assert len(paced(captured, times, "unknown", None)) == 2
    assert captures(captured).state is State.WORKS
    assert agreed(Parity(1e-4, 1e-4, 3)).state is State.WORKS
    assert agreed(Parity(1e-4, 0.5, 3)).state is State.FAILS
    assert agreed(Parity(1e-4, 1e-4, 3000)).state is State.FAILS


def test_a_capture_that_fails_costs_speed_only(plain: DsmEngine) -> None:
    class Broken(HostDevice):
        def capture(self, body: Body, strictness: Strictness) -> Body:
            raise RuntimeError("operation not permitted when stream is capturing")

    model = load_checkpoint(BUILTIN)
    kernels = TorchKernels(model, 2, plain.device, row_by_row=True)
    broken = DsmEngine(model, plain.info, kernels, 1, plain.device, graphs=Broken())
    found = captures(broken)
    assert found.state is State.NOTE
    assert "2 steps could not be captured" in found.said
    assert step_time(broken, rows=1, repeats=1).full_s > 0.0


def test_buckets() -> None:
    assert buckets(256) == (1, 4, 16, 64, 128, 256)
    assert buckets(100) == (1, 4, 16, 64, 100)
    assert buckets(1) == (1,)


@pytest.mark.long
def test_the_whole_trial() -> None:
    found = tried(ModelSettings(), "cpu", most=1)
    assert [finding.name for finding in found] == ["parity", "graphs", "replay", "steps", "sessions"]
    assert all(finding.state is State.WORKS for finding in found[:4])


def test_a_slot_is_whole_again_after_a_fault(plain: DsmEngine) -> None:
    want = spoken(plain, words(1), 1)
    assert isinstance(plain.kernels, TorchKernels)
    plain.open(0, plain.info.defaults)
    plain.push(0, words(1))
    plain.kernels._kv[:, :, 0] = torch.nan
    assert plain.collect(plain.launch([0]))[0].failed
    plain.close(0)
    assert spoken(plain, words(1), 1) == want
