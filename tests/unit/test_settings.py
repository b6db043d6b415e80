from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from worker.cli.main import COMMANDS
from worker.layers import fields, variable
from worker.sections import Invocation, NatsSettings
from worker.settings import Settings, SettingsError, compose, load


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(*argv: str, env: dict[str, str] | None = None, toml: str | None = None) -> list[str]:
    file = None
    if toml is not None:
        file = Path("given.toml")
        file.write_text(toml, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load(argv, env or {}, file)
    return str(caught.value).splitlines()


def test_defaults_do_not_depend_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_WORKER__POOL", "night")
    assert Settings().worker.pool == "std"
    assert load().worker.pool == "night"
    settings = load(env={})
    assert (settings.worker.drain_grace_s, settings.scheduler.near_underrun_ms) == (600, 160)
    assert settings.nats.url == ("nats://127.0.0.1:4222",)
    assert not settings.nats.url_is_set


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[worker]\npool = 'file'\ndrain_grace_s = 1\ntext_chars = 5\n", encoding="utf-8")
    env = {"ANTIPHON_WORKER__POOL": "environment", "ANTIPHON_WORKER__DRAIN_GRACE_S": "2"}
    made = compose(Invocation, ["--worker.pool", "flag"], env, file)
    worker = made.settings.worker
    assert (worker.pool, worker.drain_grace_s, worker.text_chars, worker.buffer_chars) == ("flag", 2.0, 5, 200_000)
    origins = [made.origin(("worker", name)) for name in ("pool", "drain_grace_s", "text_chars", "buffer_chars")]
    assert origins == ["the flag --worker.pool", "the environment", f"the file {file}", "default"]


@pytest.mark.parametrize("command", COMMANDS)
def test_model_is_the_short_name_of_its_path_everywhere(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = COMMANDS[command].load()
    rest = ["one"] if command == "listen" else []  # what it cannot do without
    for argv in (["--model", "hf://a/b@c"], ["--model=hf://a/b@c"], ["--model.path", "hf://a/b@c"]):
        assert compose(model, [*argv, *rest], {}).settings.model.path == "hf://a/b@c"
    with pytest.raises(SystemExit):
        compose(model, ["--help"], {})
    shown = capsys.readouterr().out
    assert "--model, --model.path TEXT" in shown
    assert "--model.voices" in shown


def test_kyutais_models_have_kyutais_voices_unless_others_are_named() -> None:
    def place(*argv: str) -> str | None:
        return load(argv, {}).model.voice_place

    assert place("--model", "hf://kyutai/tts-1.6b-en_fr") == "hf://kyutai/tts-voices"
    assert place("--model", "hf://kyutai/tts-1.6b-en_fr", "--model.voices", "here") == "here"
    assert place("--model", "hf://somebody/model") is None
    assert place() is None


def test_the_file_is_the_one_of_the_flag_then_of_the_variable_then_of_the_folder(tmp_path: Path) -> None:
    for name in ("antiphon", "variable", "flag"):
        (tmp_path / f"{name}.toml").write_text(f"[worker]\npool = '{name}'\n", encoding="utf-8")
    env = {"ANTIPHON_CONFIG": "variable.toml"}
    assert load(["--config", "flag.toml"], env).worker.pool == "flag"
    assert load([], env).worker.pool == "variable"
    assert load([], {}).worker.pool == "antiphon"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ANTIPHON_NATZ__URL", "ANTIPHON_NATS__URL"),
        ("ANTIPHON_NATS__ULR", "ANTIPHON_NATS__URL"),
        ("ANTIPHON_WORKER__DRAIN_GRACE", "ANTIPHON_WORKER__DRAIN_GRACE_S"),
        ("ANTIPHON_TELEMETRY_LOG_LEVEL", "ANTIPHON_TELEMETRY__LOG_LEVEL"),
        ("ANTIPHON_NATS__URL__X", "ANTIPHON_NATS__URL"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_one_that_was_meant(name: str, meant: str) -> None:
    lines = refused(env={name: "x"})
    assert lines == [f"{name} (set by the environment): unknown setting; did you mean {meant}?"]


def test_every_unknown_variable_gets_its_line() -> None:
    lines = refused(env={"ANTIPHON_QQQQQQQ": "", "ANTIPHON_NATS": "{}"})
    assert lines[0] == "ANTIPHON_QQQQQQQ (set by the environment): unknown setting"
    assert lines[1].startswith("ANTIPHON_NATS (set by the environment): unknown setting")


def test_the_links_to_a_kubernetes_service_called_antiphon_are_no_settings() -> None:
    env = {
        "ANTIPHON_SERVICE_HOST": "10.0.0.1",
        "ANTIPHON_SERVICE_PORT_HTTP": "9464",
        "ANTIPHON_PORT": "tcp://10.0.0.1:9464",
        "ANTIPHON_PORT_9464_TCP_ADDR": "tcp://10.0.0.1",
        "ANTIPHON_METRICS_PORT_9464_TCP": "tcp://10.0.0.1:9464",
    }
    assert load(env=env).nats == NatsSettings()
    assert refused(env={"ANTIPHON_PROBES_PORT": "80"})[0].startswith("ANTIPHON_PROBES_PORT ")


@pytest.mark.parametrize(
    ("setter", "by"),
    [
        ({"argv": ("--scheduler.near-underrun-ms", "soon")}, "the flag --scheduler.near-underrun-ms"),
        ({"env": {"ANTIPHON_SCHEDULER__NEAR_UNDERRUN_MS": "soon"}}, "the environment"),
        ({"toml": "[scheduler]\nnear_underrun_ms = 'soon'"}, "the file given.toml"),
    ],
)
def test_a_bad_value_names_its_variable_and_who_set_it(setter: dict[str, object], by: str) -> None:
    argv = setter.pop("argv", ())
    lines = refused(*argv, **setter)  # type: ignore[arg-type, misc]
    assert len(lines) == 1
    assert lines[0].startswith(f"ANTIPHON_SCHEDULER__NEAR_UNDERRUN_MS (set by {by}): Input should be a valid number")
    assert lines[0].endswith('; got "soon"')


@pytest.mark.parametrize(
    "env",
    [
        {"ANTIPHON_SCHEDULER__NEAR_UNDERRUN_MS": "nan"},
        {"ANTIPHON_SCHEDULER__NEAR_UNDERRUN_MS": "-1"},
        {"ANTIPHON_SCHEDULER__HEADROOM": "1.5"},
        {"ANTIPHON_WORKER__ID": "a.>"},
        {"ANTIPHON_WORKER__ID": "a\n"},
        {"ANTIPHON_WORKER__TENANTS": "a,b c"},
        {"ANTIPHON_MODEL__DEVICE": "gpu"},
        {"ANTIPHON_MODEL__SLOTS": "0"},
        {"ANTIPHON_PROBES__PORT": "65536"},
        {"ANTIPHON_NATS__URL": "http://h"},
        {"ANTIPHON_NATS__URL": "nats://h:99999"},
        {"ANTIPHON_NATS__URL": ","},
        {"ANTIPHON_NATS__CREDS": "/nowhere/creds"},
        {"ANTIPHON_NATS__EMBEDDED": "maybe"},
        {"ANTIPHON_NATS__DEFAULT_INBOX": "_INBOX"},
        {"ANTIPHON_NATS__TENANT_INBOX": "_INBOX."},
        {"ANTIPHON_NATS__TENANT_INBOX": "_INBOX_{tenant}.>."},
        {"ANTIPHON_TELEMETRY__OTLP_ENDPOINT": "localhost:4317"},
        {"ANTIPHON_TELEMETRY__OTLP_ENDPOINT": "http://:4318"},
    ],
)
def test_values_out_of_range_stop_the_start(env: dict[str, str]) -> None:
    (name,) = env
    assert [line.split()[0] for line in refused(env=env)] == [name]


@pytest.mark.parametrize(
    ("nats", "blamed"),
    [
        ({"user": "u", "password": "p", "token": "t"}, "TOKEN"),
        ({"user": "u"}, "USER"),
        ({"password": "p"}, "PASSWORD"),
        ({"tls_cert": __file__}, "TLS_CERT"),
        ({"tls_key": __file__}, "TLS_KEY"),
    ],
)
def test_settings_that_contradict_each_other_name_one_of_them(nats: dict[str, str], blamed: str) -> None:
    (line,) = refused(env={variable(("nats", name)): value for name, value in nats.items()})
    assert line.startswith(f"ANTIPHON_NATS__{blamed} (set by the environment): ")


def test_what_is_wrong_with_the_file_is_said_of_the_file(tmp_path: Path) -> None:
    assert refused(toml="[natz]\nurl='x'") == [
        "ANTIPHON_NATZ (set by the file given.toml): unknown setting; did you mean ANTIPHON_NATS__URL?"
    ]
    assert refused(toml="[nats]\nurls='x'")[0].startswith("ANTIPHON_NATS__URLS (set by the file given.toml): unknown")
    assert "is a section" in refused(toml="nats = 'x'")[0]
    assert refused(toml="text = 'x'")[0].startswith("ANTIPHON_TEXT (set by the file")
    assert "given.toml: not TOML" in refused(toml="[nats")[0]
    (tmp_path / "latin1.toml").write_bytes(b"[worker]\npool = 'caf\xe9'\n")
    assert "latin1.toml: not TOML" in refused("--config", "latin1.toml")[0]
    assert refused("--config", "gone.toml") == [
        "ANTIPHON_CONFIG (set by the flag --config): gone.toml: No such file or directory"
    ]
    assert "(set by the environment): gone.toml" in refused(env={"ANTIPHON_CONFIG": "gone.toml"})[0]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--natz.url", "x"], "did you mean --nats.url?"),
        (["--nats", "{}"], "unrecognized arguments: --nats {}"),
        (["--worker.poo", "x"], "did you mean --worker.pool?"),
        (["--worker.pool"], "expected one argument"),
        (["stray"], "unrecognized arguments: stray"),
    ],
)
def test_a_bad_command_line_is_refused(argv: list[str], said: str) -> None:
    (line,) = refused(*argv)
    assert line.startswith("command line: ")
    assert said in line


def test_lists_and_switches_read_from_plain_strings() -> None:
    env = {
        "ANTIPHON_NATS__URL": "one:4222, tls://two ,",
        "ANTIPHON_PROBES__PORT": "off",
        "ANTIPHON_NATS__EMBEDDED": "true",
        "ANTIPHON_TELEMETRY__PROMETHEUS": "no",
        "ANTIPHON_TELEMETRY__OTLP_ENDPOINT": "http://collector:4318/",
        "ANTIPHON_WORKER__POOL": "",
    }
    settings = load(["--worker.tenants", "a,b", "--worker.tenants=c", "--telemetry.tenant-label"], env)
    assert settings.nats.url == ("nats://one:4222", "tls://two")
    assert settings.nats.url_is_set
    assert settings.nats.embedded == "on"
    assert settings.worker.tenants == ("a", "b", "c")
    assert settings.worker.pool == "std"
    assert settings.probes.port is None
    assert not settings.telemetry.prometheus
    assert settings.telemetry.tenant_label
    assert settings.telemetry.otlp_endpoint == "http://collector:4318"
    assert load(["--telemetry.otlp-endpoint", "off"], env).telemetry.otlp_endpoint is None
    assert load(["--probes.port", "0"], env).probes.port == 0


def test_secrets_are_in_no_message_and_no_listing() -> None:
    env = {
        "ANTIPHON_NATS__URL": "nats://me:hunter2@host",
        "ANTIPHON_NATS__USER": "me",
        "ANTIPHON_NATS__PASSWORD": "hunter2",
    }
    listing = str(compose(Invocation, [], env))
    assert "hunter2" not in listing
    assert 'password = "****' in listing
    assert '"nats://****@host"' in listing
    env["ANTIPHON_NATS__URL"] = "nats://me:hunter2@host:99999"
    assert "hunter2" not in refused(env=env)[0]
    assert "hunter2" not in "".join(refused(env={"ANTIPHON_NATS__PASSWORD": "hunter2"}))
    assert "hunter2" not in "".join(refused(toml="[nats]\nuser='me'\npassword = ['hunter2']"))


def test_the_listing_is_a_file_that_gives_the_same_settings_again(tmp_path: Path) -> None:
    env = {"ANTIPHON_WORKER__TENANTS": "a,b", "ANTIPHON_TELEMETRY__SERVICE_NAME": 'say "aah" \\ é'}
    made = compose(Invocation, ["--no-telemetry.prometheus"], env)
    file = tmp_path / "printed.toml"
    file.write_text(str(made), encoding="utf-8")
    assert set(tomllib.loads(str(made))) == set(Settings.model_fields)
    again = load([], {}, file)
    assert again.model_dump(exclude={"config", "print_config"}) == made.settings.model_dump(
        exclude={"config", "print_config"}
    )
    assert "prometheus = false" in str(made)
    assert "# the flag --telemetry.prometheus" in str(made)


def test_every_setting_has_a_help_text_and_settings_never_change() -> None:
    for section in Settings.model_fields:
        assert fields(section)
        for name, info in fields(section).items():
            assert info.description, f"{section}.{name}"
    settings = Settings()
    with pytest.raises(ValueError, match="frozen"):
        settings.worker.pool = "x"


def test_a_worker_without_a_name_gets_a_fresh_one() -> None:
    names = {load(env={}).worker.id for _ in range(8)}
    assert len(names) == 8
    assert all(name.isalnum() for name in names)


@pytest.mark.parametrize(
    ("options", "tenant", "prefixes"),
    [
        ({}, "default", ("_INBOX.",)),
        ({}, "acme", ("_INBOX_acme.",)),
        ({"accounts_per_tenant": True}, "acme", ("_INBOX_acme.", "_R_.")),
        ({"tenant_inbox": "replies.{tenant}.", "default_inbox": "r."}, "acme", ("replies.acme.",)),
        ({"tenant_inbox": "replies.{tenant}.", "default_inbox": "r."}, "default", ("r.",)),
    ],
)
def test_whom_the_worker_may_answer(options: dict[str, object], tenant: str, prefixes: tuple[str, ...]) -> None:
    assert NatsSettings.model_validate(options).inboxes(tenant) == prefixes
