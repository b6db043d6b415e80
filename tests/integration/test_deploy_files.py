"""What deploy/ ships is accepted by the real server and by the worker's settings."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.town import PASSWORDS, SETUPS, set_passwords
from worker.embedded import find_binary
from worker.settings import load

FOLDER = Path(__file__).parents[2] / "deploy"
NATS = FOLDER / "nats"


@pytest.fixture(autouse=True)
def _passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    set_passwords(monkeypatch)


def checked(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(find_binary()), "-t", "-c", str(path)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.conf")), ids=lambda path: path.name)
def test_the_server_accepts_the_configuration(path: Path) -> None:
    done = checked(path)
    assert done.returncode == 0, done.stderr


def test_a_live_audio_server_does_not_stall_fast_producers() -> None:
    text = (NATS / "nats-server.conf").read_text()
    assert "no_fast_producer_stall: true" in text


@pytest.mark.parametrize("setup", SETUPS)
def test_the_tenants_servers_are_live_audio_servers(setup: str) -> None:
    assert 'include "nats-server.conf"' in (NATS / f"tenants-{setup}.conf").read_text()


@pytest.mark.parametrize("setup", SETUPS)
def test_nobody_is_trusted_with_the_subjects_that_others_name(setup: str) -> None:
    """``allow_responses`` would let whoever asks choose where the worker speaks."""
    lines = (NATS / f"tenants-{setup}.conf").read_text().splitlines()
    assert not [line for line in lines if "allow_responses" in line and not line.strip().startswith("#")]


@pytest.mark.parametrize("setup", SETUPS)
def test_no_password_is_shipped(setup: str) -> None:
    text = (NATS / f"tenants-{setup}.conf").read_text()
    named = re.findall(r"password: (\S+)", text)
    assert sorted(named) == sorted(f"$ANTIPHON_{user.upper()}_PASSWORD" for user in PASSWORDS)


@pytest.mark.parametrize("setup", SETUPS)
def test_the_workers_settings_fit_the_server(setup: str) -> None:
    settings = load((), {"ANTIPHON_NATS__PASSWORD": "secret"}, NATS / f"worker-{setup}.toml")
    assert settings.nats.user == "worker"
    assert settings.nats.accounts_per_tenant is (setup == "accounts")
    assert set(settings.worker.tenants) == set(PASSWORDS) - {"worker"}
    assert settings.limits.of("acme").sessions != settings.limits.of("globex").sessions
    text = (NATS / f"tenants-{setup}.conf").read_text()
    assert f'"{settings.nats.inbox_prefix}.>"' in text
    if setup == "one-account":
        for tenant in settings.worker.tenants:
            (inbox,) = settings.nats.inboxes(tenant)
            assert text.count(f'"{inbox}>"') == 2, "the worker may speak there, the tenant may listen"


@pytest.mark.parametrize("kind", ["open", "info", "in", "out"])
def test_an_account_cannot_import_anothers_subjects(kind: str, tmp_path: Path) -> None:
    """Whoever may change one account's part of the file can still not reach for another tenant."""
    text = (NATS / "tenants-accounts.conf").read_text().replace('include "nats-server.conf"', "port: -1")
    text, count = re.subn(rf'subject: "tts\.v1\.acme\.{kind}\.', f'subject: "tts.v1.globex.{kind}.', text)
    assert count == 1
    path = tmp_path / "changed.conf"
    path.write_text(text)
    # A check with -t reads the file only; imports are resolved at the start.
    done = subprocess.run(
        [str(find_binary()), "-c", str(path)], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode != 0
    assert "not authorized" in done.stderr
