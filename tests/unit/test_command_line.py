from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.parrot import COMMANDS
from worker.cli.main import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*argv: str) -> int:
    return main(argv, COMMANDS)


def start(*argv: str) -> subprocess.Popen[bytes]:
    """The same in a process of its own, with pipes for its output."""
    code = "import sys, worker.cli.main as m, tests.unit.parrot as p; sys.exit(m.main(sys.argv[1:], p.COMMANDS))"
    # Buffered, as for a user: what fails is then the flush at the very end.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen([sys.executable, "-c", code, *argv], stdout=-1, stderr=-1, cwd=ROOT, env=env)


def test_a_command_gets_its_fields_and_the_settings_of_all_layers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_SCHEDULER__NEAR_UNDERRUN_MS", "80")
    assert run("parrot", "hello", "-n", "2") == 0
    assert capsys.readouterr().out == "hello hello 80.0\n"
    assert run("parrot", "null", "--scheduler.near-underrun-ms", "40") == 0
    assert capsys.readouterr().out == "null 40.0\n"


@pytest.mark.parametrize("text", ["null", "None", "", "[1, 2]", "a, b", '{"a": 1}', "50 % off", "-", "ä\U0001f642"])
def test_an_argument_arrives_as_it_was_typed(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("parrot", "--", text) == 0
    assert capsys.readouterr().out == f"{text} 160.0\n"


def test_a_command_s_own_fields_come_from_the_command_line_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANTIPHON_TIMES", "2")
    assert run("parrot") == 2
    assert "ANTIPHON_TIMES (set by the environment): unknown setting" in capsys.readouterr().err
    monkeypatch.delenv("ANTIPHON_TIMES")
    (tmp_path / "antiphon.toml").write_text("times = 2\n", encoding="utf-8")
    assert run("parrot") == 2
    assert "ANTIPHON_TIMES (set by the file antiphon.toml)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["parot"], "antiphon: unknown command 'parot'; did you mean parrot?"),
        (["--nats.url"], "antiphon: unknown command '--nats.url'; see antiphon --help"),
        (["parrot", "--time", "2"], "did you mean --times?"),
        (["parrot", "--times", "0"], "antiphon: --times: Input should be greater than or equal to 1"),
        (["parrot", "--times", "nan"], "antiphon: --times: Input should be a valid integer"),
        (["parrot", "--end", "happily"], "antiphon: --end: Input should be 'well'"),
        (["parrot", "a\udce9"], "antiphon: WORD: is not text"),
        (["parrot", "--worker.pool", "a b"], "antiphon: ANTIPHON_WORKER__POOL (set by the flag --worker.pool)"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_code_2(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("sadly", 1, "antiphon: no seed left\n"),
        ("grouped", 1, "antiphon: a task found no seed\n"),
        ("missing", 1, "antiphon: /nowhere/seeds: No such file or directory\n"),
        ("socket", 1, "antiphon: Broken pipe\n"),
        ("bus", 1, "antiphon: NATS is not available: nobody answers\n"),
        ("interrupt", 130, ""),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(
    end: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("parrot", "--end", end) == code
    assert capsys.readouterr().err == said


def test_a_command_s_result_is_the_exit_code(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run("count", "--to", "2") == 3
    assert capfdbinary.readouterr().out == b"1\n2\n"


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ExceptionGroup):
        run("parrot", "--end", "bug")


def test_the_settings_are_printed_instead_of_running(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("parrot", "hello", "--print-config", "--worker.pool", "night") == 0
    out = capsys.readouterr().out
    assert "hello" not in out
    assert 'pool = "night"' in out
    assert "# the flag --worker.pool" in out


def test_help_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 2
    assert "parrot  repeat a word" in capsys.readouterr().err
    assert run("--help") == 0
    assert "parrot  repeat a word" in capsys.readouterr().out
    with pytest.raises(SystemExit) as left:
        run("parrot", "--help")
    assert left.value.code == 0
    out = capsys.readouterr().out
    assert "antiphon parrot [options] [WORD]" in out
    assert "Repeat a word." in out
    assert "--times" in out
    assert "-n" in out
    assert "[in brackets]" in out
    assert "[section]" in " ".join(out.split())
    assert "--nats.url" in out
    assert "--probes.port" not in out, "a hidden section"
    assert "\0" not in out


def test_a_reader_that_leaves_early_ends_the_command_quietly() -> None:
    """Case C39: `say --raw ... | head -c 1000`."""
    with start("count") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1000).startswith(b"1\n2\n")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_short_output_that_nobody_reads_ends_quietly_too() -> None:
    with start("parrot") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
