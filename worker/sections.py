"""The settings, section by section: strict models with units in the names and a help text for every field.

A field ``f`` of section ``s`` is ``ANTIPHON_S__F`` in the environment, ``f`` under ``[s]`` in the TOML file and
``--s.f`` (with hyphens) on the command line. Every leaf reads from one plain string, so that no shell has to quote
JSON: lists are separated by commas, ``off`` switches an optional part off.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FilePath,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, CliToggleFlag, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from worker.flags import NO_VALUE

DEFAULT_URL = "nats://127.0.0.1:4222"
KYUTAI, KYUTAI_VOICES = "hf://kyutai/", "hf://kyutai/tts-voices"
"""Models on the Hugging Face hub, and the voices made for them (moshi ``DEFAULT_DSM_TTS_VOICE_REPO``)."""


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _switched(value: object) -> object:
    return None if value == "off" or value is False else value


def _on_or_off(value: object) -> object:
    words = {True: "on", False: "off", "true": "on", "false": "off"}
    return words.get(value, value) if isinstance(value, bool | str) else value


def _home(value: object) -> object:
    return Path(value).expanduser() if isinstance(value, str) and value.startswith("~") else value


def _server(url: str) -> str:
    url = url if "://" in url else f"nats://{url}"
    parts = urlsplit(url)
    if parts.scheme not in {"nats", "tls", "ws", "wss"}:
        raise PydanticCustomError("server_scheme", "a server is nats://, tls://, ws:// or wss:// and a host")
    try:
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise PydanticCustomError("server_address", "a server needs a host and a port between 1 and 65535")
    return url


def _collector(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise PydanticCustomError("collector", "a collector is an http:// or https:// URL")
    return url.rstrip("/")


def _inbox(prefix: str) -> str:
    if not re.fullmatch(r"([^\s.*>{}]+\.)+", prefix.replace("{tenant}", "t")):
        raise PydanticCustomError("inbox", "an inbox prefix is a subject without wildcards that ends with a dot")
    return prefix


def _override(item: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}\.(sessions|chars_per_s|burst_chars)=[^\s=]+", item):
        raise PydanticCustomError(
            "override", "a limit of one tenant is TENANT.sessions=N, chars_per_s=X or burst_chars=N"
        )
    return item


def _by_tenant(value: object) -> object:
    """In a file also as tables: ``[limits.overrides.acme]``."""
    if not isinstance(value, dict):
        return _listed(value)
    tables = [(tenant, table) for tenant, table in value.items() if isinstance(table, dict)]
    return [f"{tenant}.{name}={limit}" for tenant, table in tables for name, limit in table.items()]


def _random_id() -> str:
    return secrets.token_hex(6)


Token = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""One subject token."""
Servers = Annotated[tuple[Annotated[str, AfterValidator(_server)], ...], NoDecode, BeforeValidator(_listed)]
Tokens = Annotated[tuple[Token, ...], NoDecode, BeforeValidator(_listed)]
Overrides = Annotated[tuple[Annotated[str, AfterValidator(_override)], ...], NoDecode, BeforeValidator(_by_tenant)]
ExistingFile = Annotated[FilePath, BeforeValidator(_home)]
Inbox = Annotated[str, AfterValidator(_inbox)]


class Section(BaseModel):
    """Unknown fields, NaN and infinities are refused; a section never changes after the start."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class NatsSettings(Section):
    """Where the servers are, who we are to them, and whom we answer."""

    url: Servers = Field(default=(DEFAULT_URL,), min_length=1, description="servers, separated by commas")
    embedded: Annotated[Literal["auto", "on", "off"], BeforeValidator(_on_or_off)] = Field(
        default="auto",
        description="run a nats-server of our own; auto: if no url is set and none answers at the default one",
    )
    creds: ExistingFile | None = Field(default=None, description="credentials file (JWT and seed)")
    nkey_seed: ExistingFile | None = Field(default=None, description="file with an nkey seed")
    user: str | None = Field(default=None, description="user name")
    password: SecretStr | None = Field(default=None, description="password of the user")
    token: SecretStr | None = Field(default=None, description="authentication token")
    tls_ca: ExistingFile | None = Field(
        default=None, description="certificates that the servers are checked against (PEM)"
    )
    tls_cert: ExistingFile | None = Field(default=None, description="our own certificate (PEM)")
    tls_key: ExistingFile | None = Field(default=None, description="the key of our certificate (PEM)")
    inbox_prefix: Annotated[str, StringConstraints(pattern=r"^[^\s.*>]+(\.[^\s.*>]+)*$")] = Field(
        default="_INBOX", description="where this process's own requests are answered"
    )
    accounts_per_tenant: bool = Field(
        default=False, description="every tenant has an account: replies to _R_. are allowed"
    )
    default_inbox: Inbox = Field(default="_INBOX.", description="inbox prefix of the tenant 'default'")
    tenant_inbox: Inbox = Field(default="_INBOX_{tenant}.", description="inbox prefix of every other tenant")
    pending_bytes: PositiveInt = Field(
        default=262_144, description="frames are shed while more than this waits to be sent"
    )
    leave_within_s: NonNegativeFloat = Field(
        default=5.0, description="a server that is to stop (lame duck) is left within this time, at a random moment"
    )

    @property
    def url_is_set(self) -> bool:
        """Whether anyone chose the servers; otherwise ``url`` is the default."""
        return "url" in self.model_fields_set

    def inboxes(self, tenant: str) -> tuple[str, ...]:
        """Prefixes of the reply subjects that may be answered for a tenant, each with its final dot."""
        own = self.default_inbox if tenant == "default" else self.tenant_inbox.replace("{tenant}", tenant)
        return (own, "_R_.") if self.accounts_per_tenant else (own,)

    @model_validator(mode="after")
    def _one_identity(self) -> Self:
        ways = [name for name in ("creds", "nkey_seed", "user", "token") if getattr(self, name) is not None]
        if len(ways) > 1:
            raise _conflict(ways[1], f"cannot be combined with {ways[0]}")
        if (self.user is None) != (self.password is None):
            raise _conflict("password" if self.user is None else "user", "user and password are set together")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise _conflict("tls_key" if self.tls_cert is None else "tls_cert", "tls_cert and tls_key go together")
        if "{tenant}" not in self.tenant_inbox:
            raise _conflict("tenant_inbox", "must contain {tenant}, or tenants could answer for each other")
        return self


class WorkerSettings(Section):
    """Which sessions this worker takes, and the ``limits`` that it states in ``ready``."""

    id: Token = Field(default_factory=_random_id, description="name of this worker in its subjects; random")
    pool: Token = Field(default="std", description="workers that serve one model")
    tenants: Tokens = Field(default=(), description="serve only these tenants, separated by commas; empty: all")
    drain_grace_s: NonNegativeFloat = Field(default=600.0, description="how long sessions may go on after SIGTERM")
    idle_timeout_s: PositiveFloat = Field(default=600.0, description="longest idle_timeout_s that a session gets")
    max_session_s: PositiveFloat = Field(default=3600.0, description="longest max_session_s that a session gets")
    text_chars: PositiveInt = Field(default=100_000, description="most characters in one message")
    buffer_chars: PositiveInt = Field(
        default=200_000, description="most characters of a session that wait to be spoken"
    )


class QuotaSettings(Section):
    """What one tenant may take of one worker."""

    sessions: Annotated[PositiveInt | None, BeforeValidator(_switched)] = Field(
        default=None,
        description="most sessions of one tenant at once at this worker; off: as many as there is room for",
    )
    chars_per_s: Annotated[PositiveFloat | None, BeforeValidator(_switched)] = Field(
        default=None, description="characters of text that one tenant may send a second, in the mean; off: no limit"
    )
    burst_chars: PositiveInt = Field(default=20_000, description="characters that a tenant may be ahead of that")


class LimitsSettings(QuotaSettings):
    """So that one tenant cannot take what the others need; for each tenant at each worker."""

    overrides: Overrides = Field(
        default=(), description="for single tenants, e.g. acme.sessions=64,acme.chars_per_s=off; separated by commas"
    )

    @property
    def tenants(self) -> frozenset[str]:
        """Those with limits of their own."""
        return frozenset(override.partition(".")[0] for override in self.overrides)

    def of(self, tenant: str) -> QuotaSettings:
        given = [override.removeprefix(f"{tenant}.") for override in self.overrides]
        own = dict(pair.split("=", 1) for pair in given if "." not in pair.partition("=")[0])
        return QuotaSettings.model_validate({**self.model_dump(exclude={"overrides"}), **own})

    @model_validator(mode="after")
    def _every_override_is_a_limit(self) -> Self:
        for tenant in sorted(self.tenants):
            try:
                self.of(tenant)
            except ValidationError as error:
                raise _conflict("overrides", f"of {tenant}: {error.errors()[0]['msg']}") from None
        return self


class JournalSettings(Section):
    """Whether sessions may be resumed at another worker, and where their journal is kept."""

    enabled: Annotated[Literal["auto", "on", "off"], BeforeValidator(_on_or_off)] = Field(
        default="auto", description="take sessions with resume; auto: where the servers have JetStream"
    )
    stream: Token = Field(default="TTS_JOURNAL", description="JetStream stream; made if it is not there")
    storage: Literal["memory", "file"] = Field(default="memory", description="of a stream that is made")
    replicas: int = Field(default=1, ge=1, le=5, description="of a stream that is made")
    age_s: float = Field(default=600.0, ge=60.0, description="how long records are kept")
    max_bytes: PositiveInt = Field(default=268_435_456, description="of a stream that is made; the oldest go first")
    reach_s: float = Field(
        default=120.0, ge=4.0, le=600.0, description="length of a generation up to which a take-over is exact"
    )


class ModelSettings(Section):
    """What speaks, and on what."""

    path: Annotated[str, StringConstraints(min_length=1)] = Field(
        default="builtin", description="builtin, a folder in Kyutai's layout, or hf://owner/name[@revision]"
    )
    voices: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None,
        description="folder or hf:// repository of voices; unset: the model folder's own, or Kyutai's for Kyutai's",
    )
    voice_wait_s: PositiveFloat = Field(
        default=30.0, description="longest that an open waits for a voice that is not here yet"
    )
    device: Annotated[str, StringConstraints(pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$")] = Field(
        default="auto", description="auto, cpu, cuda or cuda:N"
    )
    precision: Literal["auto", "float32", "fixed16", "bfloat16", "int8"] = Field(
        default="auto",
        description="of products (float32, fixed16) or weights (bfloat16, int8); auto: the fastest faithful one",
    )
    threads: PositiveInt | None = Field(
        default=None, description="CPU threads of a step; unset: chosen for the machine"
    )
    slots: PositiveInt | None = Field(default=None, description="most sessions at once; unset: chosen for the machine")
    codebooks: PositiveInt | None = Field(
        default=None, description="codebooks to generate: fewer are faster and sound coarser; unset: all"
    )

    @property
    def voice_place(self) -> str | None:
        """Where the voices are; None: in the model's folder."""
        return self.voices or (KYUTAI_VOICES if self.path.startswith(KYUTAI) else None)


class SchedulerSettings(Section):
    """Who steps when."""

    headroom: float = Field(
        default=0.7, gt=0.0, le=1.0, description="share of a frame's time that a round of all live sessions may take"
    )
    near_underrun_ms: NonNegativeFloat = Field(
        default=160.0, description="a session with less audio left than this goes first"
    )


class TelemetrySettings(Section):
    """What the operator sees. Nobody's text, unless ``log_text`` is on."""

    service_name: Annotated[str, StringConstraints(min_length=1)] = Field(
        default="antiphon", description="service.name"
    )
    otlp_endpoint: Annotated[Annotated[str, AfterValidator(_collector)] | None, BeforeValidator(_switched)] = Field(
        default=None, description="OTLP/HTTP collector, e.g. http://localhost:4318; off unless set"
    )
    otlp_timeout_s: PositiveFloat = Field(default=5.0, description="longest wait for the collector")
    otlp_interval_s: PositiveFloat = Field(default=15.0, description="time between two exports of the metrics")
    trace_ratio: float = Field(
        default=1.0, ge=0.0, le=1.0, description="share of sessions traced where the caller did not choose"
    )
    prometheus: bool = Field(default=True, description="serve /metrics beside the probes")
    tenant_label: bool = Field(
        default=False, description="label session metrics with the tenant (one series per tenant)"
    )
    log_text: bool = Field(default=False, description="let texts and the messages of unexpected errors into the log")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="least severity logged")
    log_format: Literal["text", "json"] = Field(default="text", description="one line of text or of JSON per record")


class ProbesSettings(Section):
    """The HTTP side: /livez, /readyz, /metrics."""

    host: str = Field(default="127.0.0.1", description="address to listen on; 0.0.0.0 in a container")
    port: Annotated[Annotated[int, Field(ge=0, le=65535)] | None, BeforeValidator(_switched)] = Field(
        default=9464, description="port to listen on; 0: any free one; off: no HTTP at all"
    )
    hang_s: PositiveFloat = Field(default=2.0, description="a step or an event loop that hangs longer fails liveness")


class Settings(BaseSettings):
    """All sections. ``Settings()`` is the defaults, whatever the environment says; ``worker.settings`` reads it."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        cli_parse_none_str=NO_VALUE,
    )

    nats: NatsSettings = Field(default_factory=NatsSettings, description="servers, identity, reply subjects")
    worker: WorkerSettings = Field(default_factory=WorkerSettings, description="which sessions it takes, and limits")
    limits: LimitsSettings = Field(default_factory=LimitsSettings, description="what one tenant may take")
    journal: JournalSettings = Field(default_factory=JournalSettings, description="sessions that may change workers")
    model: ModelSettings = Field(default_factory=ModelSettings, description="what speaks, and on what")
    scheduler: SchedulerSettings = Field(default_factory=SchedulerSettings, description="who steps when")
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings, description="traces, metrics, logs")
    probes: ProbesSettings = Field(default_factory=ProbesSettings, description="liveness, readiness, /metrics")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


class Invocation(Settings):
    """Settings with what every command line may say; a command adds its own fields, which are flags only."""

    config: Path | None = Field(default=None, description="TOML file with settings; ./antiphon.toml if it is there")
    print_config: CliToggleFlag[bool] = Field(
        default=False, description="print every setting with who set it, and leave"
    )

    @field_validator("*")
    @classmethod
    def _no_stray_bytes(cls, value: object) -> object:
        """Bytes of a command line that are not text in the locale's encoding arrive as lone surrogates."""
        if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
            raise PydanticCustomError("stray_bytes", "is not text in the encoding of this terminal")
        return value


def _conflict(field: str, reason: str) -> PydanticCustomError:
    """``field``: which one of the section's fields is to blame; the loader completes the error's location with it."""
    return PydanticCustomError("conflict", "{reason}", {"field": field, "reason": reason})
