"""The engine's error tree. Every error carries the facts that a caller needs as fields.

EngineError
├── CheckpointError   a checkpoint folder cannot be used (path, reason)
├── UnsupportedModel  a configuration field asks for what the engine does not do (field, value)
├── VoiceNotFound     no such voice (name, known, close)
├── UnusableVoice     a voice's file is not what this model takes (name, reason)
│   └── VoiceOutOfReach   .. or cannot be fetched now
├── UnsupportedOption the loaded model cannot honour an option's value (option, value, reason)
├── UnusableRecord    a slot cannot be rebuilt from what was recorded of it (reason)
└── KernelError       a native kernel could not be built or loaded (reason)
"""

from __future__ import annotations

import difflib


class EngineError(Exception):
    """Root of everything the engine raises for bad input."""


class CheckpointError(EngineError):
    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class UnsupportedModel(EngineError):
    def __init__(self, field: str, value: object) -> None:
        super().__init__(f"configuration field {field!r} has the unsupported value {value!r}")
        self.field = field
        self.value = value


class VoiceNotFound(EngineError):
    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        close = tuple(difflib.get_close_matches(name, known, n=5))
        shown = close or known[:20]
        super().__init__(f"voice not found; {'close' if close else 'known'} voices: {', '.join(shown) or 'none'}")
        self.name = name
        self.known = known
        self.close = close


class UnusableVoice(EngineError):
    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"voice {name!r}: {reason}")
        self.name = name
        self.reason = reason


class VoiceOutOfReach(UnusableVoice):
    """A later try may find it."""


class UnsupportedOption(EngineError):
    def __init__(self, option: str, value: object, reason: str) -> None:
        super().__init__(f"option {option!r} cannot be {value!r}: {reason}")
        self.option = option
        self.value = value
        self.reason = reason


class UnusableRecord(EngineError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"a step's record {reason}")
        self.reason = reason


class KernelError(EngineError):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
