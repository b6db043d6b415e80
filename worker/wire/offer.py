"""What a worker offers, and how an ``open`` is held against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.contract import ModelInfo
from worker.errors import WireError, too_large, unsupported_option, voice_not_found
from worker.wire.events import Info, Limits, ModelCard
from worker.wire.lookalikes import Lookalikes
from worker.wire.requests import Open, Options, has_surrogates

if TYPE_CHECKING:
    from worker.sections import WorkerSettings

PCM_RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)
FORMATS: Mapping[str, tuple[int, ...]] = {
    "pcm_s16le": PCM_RATES,
    "pcm_f32le": PCM_RATES,
    "mulaw": (8_000,),
    "alaw": (8_000,),
    "opus": (8_000, 16_000, 24_000, 48_000),
    "wav": PCM_RATES,
}
"""Encoding -> sample rates in Hz. ``wav`` is one streaming header, then pcm_s16le; ``opus`` is in Ogg."""

MODEL_OPTIONS = ("seed", "temperature", "top_k", "cfg", "padding_bonus", "padding_between", "max_padding")
"""Options that the loaded model honours or does not."""
WORKER_OPTIONS = ("gain_db", "trim_silence", "pronunciations", "marks", "fanout", "resume")
"""Options that the worker honours or does not, whatever the model; where it does not, only the default is accepted."""

FEATURES = frozenset({"gain_db", "trim_silence", "pronunciations", "marks", "fanout"})
"""Those of them that every worker honours."""


@dataclass(frozen=True, slots=True)
class Offer:
    model: ModelInfo
    limits: Limits
    formats: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: FORMATS)
    features: frozenset[str] = FEATURES
    """Those of WORKER_OPTIONS that this worker honours."""
    lookalikes: Lookalikes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lookalikes", Lookalikes(self.model.voices))

    @classmethod
    def of(cls, model: ModelInfo, worker: WorkerSettings, *, resume: bool = False) -> Offer:
        """What a worker with these settings offers. ``resume``: it keeps a journal."""
        limits = Limits(
            text_chars=worker.text_chars,
            buffer_chars=worker.buffer_chars,
            session_s=worker.max_session_s,
            idle_s=worker.idle_timeout_s,
        )
        features = FEATURES | {"resume"} if resume else FEATURES
        return cls(model, limits, features=features)

    def info(self, worker: WorkerSettings, engine: str) -> Info:
        """The reply to an ``info`` request. ``engine``: its version."""
        model = self.model
        return Info(
            worker=worker.id,
            pool=worker.pool,
            engine=engine,
            model=ModelCard(
                name=model.name,
                digest=model.digest,
                sample_rate=model.sample_rate,
                frame_ms=model.frame_ms,
                speakers=model.speakers,
            ),
            voices=list(model.voices),
            languages=list(model.languages),
            formats={name: list(rates) for name, rates in self.formats.items()},
            options=self.options,
            limits=self.limits,
        )

    @property
    def options(self) -> list[str]:
        """What ``info`` lists."""
        return sorted((self.model.options & set(MODEL_OPTIONS)) | self.features)

    def settle(self, request: Open, *, seed: int) -> Open:
        """The request with every option decided, or WireError. ``seed`` is taken where the request names none."""
        self._check(request)
        return request.model_copy(update=self._chosen(request, seed))

    def _check(self, request: Open) -> None:
        self._check_voices(request.voices)
        if request.language is not None and request.language not in self.model.languages:
            raise unsupported_option("language", f"one of {', '.join(self.model.languages)}")
        self._check_format(request)
        self._check_options(request)
        self._check_text(request)

    def _check_voices(self, voices: tuple[str, ...]) -> None:
        most = self.model.speakers
        if len(voices) > most:
            raise unsupported_option("voice", f"at most {most} with this model" if most > 1 else "one with this model")
        for name in voices:
            if name not in self.model.voices:
                # The name is looked up in a list and nowhere else: no path, so nothing to find out about files.
                raise voice_not_found("no such voice", close=self.lookalikes.of(name))

    def _check_format(self, request: Open) -> None:
        rates = self.formats.get(request.format.encoding)
        if rates is None:
            raise WireError(
                "unsupported_format", "format.encoding: not supported", detail={"encodings": list(self.formats)}
            )
        if request.format.sample_rate not in rates:
            raise WireError(
                "unsupported_format", "format.sample_rate: not supported", detail={"sample_rates": list(rates)}
            )

    def _check_options(self, request: Open) -> None:
        for name in MODEL_OPTIONS:
            if getattr(request, name) is not None and name not in self.model.options:
                raise unsupported_option(name, "not an option of this model")
        for name in WORKER_OPTIONS:
            default = Options.model_fields[name].get_default(call_default_factory=True)
            if getattr(request, name) != default and name not in self.features:
                raise unsupported_option(name)

    def _check_text(self, request: Open) -> None:
        text = request.text or ""
        if len(text) > self.limits.text_chars:
            raise too_large("text", self.limits.text_chars, "characters")
        if not request.final and len(text) > self.limits.buffer_chars:
            raise too_large("text", self.limits.buffer_chars, "characters unspoken", retryable=True)
        if request.final and has_surrogates(text[-1:]):
            raise WireError("bad_request", "text: ends in half a surrogate pair", detail={"field": "text"})

    def _chosen(self, request: Open, seed: int) -> dict[str, Any]:
        defaults = self.model.defaults
        chosen: dict[str, Any] = {
            "voice": request.voice if request.voice is not None else next(iter(self.model.voices), None),
            "language": request.language if request.language is not None else next(iter(self.model.languages), None),
            "idle_timeout_s": min(request.idle_timeout_s, self.limits.idle_s),
            "max_session_s": min(request.max_session_s, self.limits.session_s),
        }
        for name in MODEL_OPTIONS:
            if name in self.model.options and getattr(request, name) is None:
                chosen[name] = seed if name == "seed" else getattr(defaults, name, None)
        return chosen
