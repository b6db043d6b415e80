"""Who speaks in a slot: a session's voices and guidance, checked against the model and put in place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from engine.codec.streams import Saved
from engine.conditioners import Conditions
from engine.config import MOST_SPEAKERS, ModelConfig
from engine.contract import SlotOptions
from engine.errors import UnsupportedOption, UnusableVoice, VoiceNotFound
from engine.slots import PREFIX_FRAMES, SlotBuffers
from engine.voices import VoicedOptions, VoiceLibrary, read_prefix, read_voice

DEFAULT_CFG = 2.0
"""moshi ``TTSModel.simple_generate``."""
KEPT_VOICES = 64
"""Voice files kept in memory."""
KEPT_SNAPSHOTS = 8
Key = tuple[str, bool]
"""Name of a prefix voice, and whether a second row is under guidance."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a slot was cast as."""

    guided: bool
    """Whether the slot has a second row, without conditions."""
    prefix: Key | None
    """Of a model that goes on from audio."""
    frames: int
    """Of the prefix."""


UNCAST = Part(guided=False, prefix=None, frames=0)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A slot at the end of its prefix: all that comes later depends on the session."""

    kernels: Saved
    history: Tensor


class Casting:
    """Not thread-safe; the engine's thread owns it, and reads files in it."""

    def __init__(
        self,
        config: ModelConfig,
        library: VoiceLibrary,
        conditions: Conditions | None,
        encode: Callable[[Path], Tensor] | None = None,
    ) -> None:
        """encode: makes codes [codebooks, frames] of a recording."""
        self._config, self._library, self._conditions, self._encode = config, library, conditions, encode
        self._voices: OrderedDict[str, Tensor] = OrderedDict()
        self._snapshots: OrderedDict[Key, Snapshot] = OrderedDict()

    @property
    def default_cfg(self) -> float | None:
        values = self._config.guidance_values
        if values:
            return DEFAULT_CFG if DEFAULT_CFG in values else values[0]
        return DEFAULT_CFG if self._config.guided else None

    def cast(self, slot: int, options: SlotOptions, buffers: SlotBuffers) -> Part:
        """Put a slot's voices and guidance in place; the slot's buffers are reset already.

        Raises:
            VoiceNotFound, UnusableVoice: a voice is unknown, or its file is not what the model takes.
            UnsupportedOption: the model cannot honour the voices or the guidance asked for.
        """
        voices = options.voices if isinstance(options, VoicedOptions) else ()
        cfg = self._cfg(options.cfg if isinstance(options, VoicedOptions) else None)
        guided = self._config.guided and cfg is not None and cfg != 1.0
        if guided and cfg is not None:
            buffers.strength[slot] = cfg
        names = self._names(voices)
        if self._config.takes_prefixes:
            if self._conditions is not None:
                self._conditions.assign(slot, (), (), cfg)
            return self._go_on_from(slot, names, guided, buffers)
        if self._conditions is not None:
            heard = tuple(self._voice(name) for name in names)
            self._conditions.assign(slot, names, heard, cfg)
        return Part(guided, prefix=None, frames=0)

    def prepare(self, options: SlotOptions) -> None:
        """Fetch the files of a session's voices; blocks for as long as a download takes. From any thread, ahead of
        ``cast``, so that the engine's thread need not wait for a network.

        Raises as ``cast``, but for what is wrong with the files themselves.
        """
        for name in self._names(options.voices if isinstance(options, VoicedOptions) else ()):
            self._library.find(name)

    def release(self, slot: int) -> None:
        if self._conditions is not None:
            self._conditions.release(slot)

    def snapshot(self, key: Key) -> Snapshot | None:
        if key in self._snapshots:
            self._snapshots.move_to_end(key)
        return self._snapshots.get(key)

    def keep(self, key: Key, snapshot: Snapshot) -> None:
        self._snapshots[key] = snapshot
        while len(self._snapshots) > KEPT_SNAPSHOTS:
            self._snapshots.popitem(last=False)

    def _cfg(self, cfg: float | None) -> float | None:
        if cfg is None:
            return self.default_cfg
        values = self._config.guidance_values
        if values:
            if cfg not in values:
                raise UnsupportedOption("cfg", cfg, f"the model takes {', '.join(map(str, values))}")
        elif not self._config.guided:
            raise UnsupportedOption("cfg", cfg, "the model knows no guidance")
        elif not 0.0 <= cfg <= 100.0:
            raise UnsupportedOption("cfg", cfg, "it must be from 0 to 100")
        return cfg

    def _names(self, voices: tuple[str, ...]) -> tuple[str, ...]:
        config, known = self._config, self._library.names
        if not known and not config.hears_voices:
            for name in voices:
                if name != "default":
                    raise VoiceNotFound(name, ("default",))
            return ()
        most = MOST_SPEAKERS if config.hears_voices else 1
        if len(voices) > most:
            raise UnsupportedOption("voice", list(voices), f"the model has up to {most} speakers")
        for name in voices:
            if name not in known:
                raise VoiceNotFound(name, known)
        if voices:
            return voices
        if config.hears_voices and not known:
            raise VoiceNotFound("", known)
        return known[:1]

    def _voice(self, name: str) -> Tensor:
        return self._kept(name, lambda path: read_voice(path, name))

    def _kept(self, name: str, read: Callable[[Path], Tensor]) -> Tensor:
        if name not in self._voices:
            self._voices[name] = read(self._library.find(name))
            while len(self._voices) > KEPT_VOICES:
                self._voices.popitem(last=False)
        self._voices.move_to_end(name)
        return self._voices[name]

    def _go_on_from(self, slot: int, names: tuple[str, ...], guided: bool, buffers: SlotBuffers) -> Part:
        if not names:
            return Part(guided, prefix=None, frames=0)
        (name,) = names
        prefix = self._kept(name, lambda path: read_prefix(path, name, self._config, self._encode))
        if len(prefix) > PREFIX_FRAMES:
            raise UnusableVoice(name, f"is {len(prefix)} frames long, at most {PREFIX_FRAMES} can be gone on from")
        buffers.go_on_from(slot, prefix)
        return Part(guided, (name, guided), len(prefix))
