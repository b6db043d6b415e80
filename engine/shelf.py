"""What the files of voices hold, in memory, so that a session that begins waits for no file."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from torch import Tensor

KEPT_VOICES = 64


class VoiceShelf:
    """The least recently used give way. Thread-safe; a file is read outside of the lock, by whoever asks for it."""

    def __init__(self, read: Callable[[str], Tensor]) -> None:
        """read: a voice by its name; blocks."""
        self._read = read
        self._voices: OrderedDict[str, Tensor] = OrderedDict()
        self._lock = threading.Lock()

    def at_hand(self, name: str) -> Tensor | None:
        """None: it would have to be read."""
        with self._lock:
            if name in self._voices:
                self._voices.move_to_end(name)
            return self._voices.get(name)

    def bring(self, name: str) -> Tensor:
        """Blocks if the voice is not at hand. Raises what reading raises."""
        voice = self.at_hand(name)
        if voice is not None:
            return voice
        voice = self._read(name)
        with self._lock:
            self._voices[name] = voice
            self._voices.move_to_end(name)
            while len(self._voices) > KEPT_VOICES:
                self._voices.popitem(last=False)
        return voice
