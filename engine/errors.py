"""The engine's error tree. Every error carries the facts that a caller needs as fields.

EngineError
├── CheckpointError   a checkpoint folder cannot be used (path, reason)
├── UnsupportedModel  a configuration field asks for what the engine does not do (field, value)
├── VoiceNotFound     no such voice (name, known)
└── KernelError       a native kernel could not be built or loaded (reason)
"""

from __future__ import annotations


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
        super().__init__(f"voice not found; known voices: {', '.join(known)}")
        self.name = name
        self.known = known


class KernelError(EngineError):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
