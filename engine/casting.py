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
from engine.shelf import VoiceShelf
from engine.slots import PREFIX_FRAMES, SlotBuffers
from engine.voices import VoicedOptions, VoiceLibrary, read_prefix, read_voice

DEFAULT_CFG = 2.0
"""moshi ``TTSModel.simple_generate``."""
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
    """The engine's thread owns it, but for ``lacking`` and ``fetch``, which are any thread's: whoever calls them ahead
    of ``cast`` spares the engine's thread files, encoding and the network."""

    def __init__(
        self,
        config: ModelConfig,
        library: VoiceLibrary,
        conditions: Conditions | None,
        encode: Callable[[Path], Tensor] | None = None,
    ) -> None:
        """encode: makes codes [codebooks, frames] of a recording."""
        self._config, self._library, self._conditions, self._encode = config, library, conditions, encode
        self._shelf = VoiceShelf(self._read)
        self._snapshots: OrderedDict[Key, Snapshot] = OrderedDict()

    @property
    def default_cfg(self) -> float | None:
        values = self._config.guidance_values
        if values:
            return DEFAULT_CFG if DEFAULT_CFG in values else values[0]
        return DEFAULT_CFG if self._config.guided else None

    def cast(self, slot: int, options: SlotOptions, buffers: SlotBuffers) -> Part:
        """Put a slot's voices and guidance in place; the slot's buffers are reset already. Reads and fetches what is
        not at hand.

        Raises:
            VoiceNotFound, UnusableVoice: a voice is unknown, or its file is not what the model takes.
            UnsupportedOption: the model cannot honour the voices or the guidance asked for.
        """
        names, cfg = self._asked(options)
        guided = self._config.guided and cfg is not None and cfg != 1.0
        if guided and cfg is not None:
            buffers.strength[slot] = cfg
        heard = self._matching(names, tuple(self._shelf.bring(name) for name in names))
        if self._config.takes_prefixes:
            if self._conditions is not None:
                self._conditions.assign(slot, (), (), cfg)
            return self._go_on_from(slot, names, heard, guided, buffers)
        if self._conditions is not None:
            self._conditions.assign(slot, names, heard, cfg)
        return Part(guided, prefix=None, frames=0)

    def lacking(self, options: SlotOptions) -> tuple[str, ...]:
        """See ``FrameEngine``. Raises as ``cast``, but for what is wrong with files that are not at hand."""
        names, _cfg = self._asked(options)
        held = {name: self._shelf.at_hand(name) for name in names}
        voices = tuple(voice for name in names if (voice := held[name]) is not None)
        if len(voices) == len(names):
            self._matching(names, voices)
        return tuple(name for name, voice in held.items() if voice is None)

    def fetch(self, name: str) -> None:
        """See ``FrameEngine``."""
        self._shelf.bring(name)

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

    def _asked(self, options: SlotOptions) -> tuple[tuple[str, ...], float | None]:
        """Voices and guidance. Raises VoiceNotFound, UnsupportedOption."""
        voiced = options if isinstance(options, VoicedOptions) else None
        cfg = self._cfg(voiced.cfg if voiced else None)
        return self._names(voiced.voices if voiced else ()), cfg

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
        most = MOST_SPEAKERS if config.hears_voices else 1
        if len(voices) > most:
            raise UnsupportedOption("voice", list(voices), f"the model has up to {most} speakers")
        if not known and not config.hears_voices:
            for name in voices:
                if name != "default":
                    raise VoiceNotFound(name, ("default",))
            return ()
        for name in voices:
            if name not in known:
                raise VoiceNotFound(name, known)
        if voices:
            return voices
        if config.hears_voices and not known:
            raise VoiceNotFound("", known)
        return known[:1]

    def _read(self, name: str) -> Tensor:
        """A voice's file: what the model hears, or goes on from. Raises VoiceNotFound, UnusableVoice."""
        path, config = self._library.find(name), self._config
        if config.takes_prefixes:
            prefix = read_prefix(path, name, config, self._encode)
            if len(prefix) > PREFIX_FRAMES:
                raise UnusableVoice(name, f"is {len(prefix)} frames long, at most {PREFIX_FRAMES} can be gone on from")
            return prefix
        voice, part = read_voice(path, name), config.conditioner("speaker_wavs")
        if part is not None and voice.shape[1] != part.dim:
            raise UnusableVoice(name, f"has width {voice.shape[1]}, the model takes {part.dim}")
        return voice

    def _matching(self, names: tuple[str, ...], voices: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Voices that are heard together have as many positions each. Raises UnusableVoice."""
        for name, voice in zip(names, voices, strict=True):
            if len(voice) != len(voices[0]):
                raise UnusableVoice(name, f"has {len(voice)} positions, the voice beside it {len(voices[0])}")
        return voices

    def _go_on_from(
        self, slot: int, names: tuple[str, ...], prefixes: tuple[Tensor, ...], guided: bool, buffers: SlotBuffers
    ) -> Part:
        if not names:
            return Part(guided, prefix=None, frames=0)
        buffers.go_on_from(slot, prefixes[0])
        return Part(guided, (names[0], guided), len(prefixes[0]))
