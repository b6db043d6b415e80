"""The way from a producer to its session's worker, over a network that loses things."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from worker.bus import Bus
from worker.client_outbox import Outbox
from worker.wire.codec import ContentType, encode
from worker.wire.events import Error, Ready
from worker.wire.requests import Credit, Input

MESSAGE_BYTES = 512
"""Of a text message, beside its text."""
UTF8_BYTES = 4
"""Most bytes of a character."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client puts up with what."""

    silence_s: float = 3.0
    """Nothing from the worker while audio is due: it is gone. A living one says something every second."""
    unheard_s: float = 1.0
    """Nobody receives what we say (503): as long as a worker may take to come back to its server."""
    retry_s: float = 0.1
    """Until what nobody received is said again."""
    refused_s: float = 0.5
    """Until text for which the worker had no room is said again."""
    tick_s: float = 0.5
    """Silence is counted in these, not by the clock: a stall of our own event loop is not the worker's silence."""
    ping_s: float = 1.0
    """Between pings, for those who ask for them; in whole ticks."""


class Line:
    """Says what the outbox holds, and says it again when a sign comes that it was lost: a 503, a gap that the worker
    reports, a reconnect, or two seconds of silence without a confirmation.

    ``room`` is the back pressure: what may wait at the worker is bounded, and so is what is kept here.
    """

    def __init__(self, bus: Bus, reply: str, outbox: Outbox, patience: Patience) -> None:
        """``reply``: the session's own subject. The server answers there if nobody receives a message, the worker if
        it does not know the session."""
        self._bus, self._reply, self._outbox, self._patience = bus, reply, outbox, patience
        self._loop = asyncio.get_running_loop()
        self._ready: Ready | None = None
        self._closed = False
        self._refused = False
        self._progress = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._repeated_at = -math.inf
        self._unheard_at: float | None = None
        self._owed_credit_us = 0
        self._oldest_at_pulse: object = None

    def open(self, ready: Ready) -> None:
        self._ready = ready

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._progress.set()

    # --- to the worker --------------------------------------------------------------------------------------------

    def say(self, message: Input, reply: str = "") -> bool:
        """False: it did not even reach the connection, but what the outbox holds will be said again."""
        assert self._ready is not None
        packet = encode(message, ContentType.MSGPACK)
        subject, reply = self._ready.input, reply or self._reply
        sent = self._bus.publish(subject, packet.payload, headers=packet.headers, reply=reply)
        if not sent and self._bus.connected:  # too much waits in the socket; when we are offline, ``online`` follows
            self.repeat_in(self._patience.retry_s)
        return sent

    def credit(self, us: int) -> None:
        """Counts each time it is heard, so a 503 must say how much was not: the reply subject carries it."""
        if not self.say(Credit(ms=us / 1000), f"{self._reply}-{us}"):
            self._owed_credit_us += us

    def pieces(self, text: str) -> list[str]:
        """Cut to what one message holds."""
        assert self._ready is not None
        in_bytes = (self._bus.max_message_bytes - MESSAGE_BYTES) // UTF8_BYTES
        size = max(1, min(self._ready.limits.text_chars, self._window, in_bytes))
        return [text[at : at + size] for at in range(0, len(text), size)]

    async def room(self, chars: int) -> None:
        """Return when the worker has room for so many characters, or the line is closed."""
        while not self._closed and (self._refused or 0 < self._outbox.unspoken_chars > self._window - chars):
            self._progress.clear()
            await self._progress.wait()

    # --- signs of loss --------------------------------------------------------------------------------------------

    def repeat_in(self, seconds: float) -> None:
        """Say everything unconfirmed again, unless that is planned already."""
        if self._timer is None and not self._closed and self._ready is not None:
            self._timer = self._loop.call_later(seconds, self._repeat)

    def unheard(self, credit_us: int) -> bool:
        """A 503: nobody received a message, ``credit_us`` of credit for instance. False: that has lasted too long."""
        self._owed_credit_us += credit_us
        now = self._loop.time()
        if self._unheard_at is None:
            self._unheard_at = now
        self.repeat_in(self._patience.retry_s)
        return now - self._unheard_at < self._patience.unheard_s

    def heard(self) -> None:
        """Anything from the worker."""
        self._unheard_at = None

    def progress(self) -> None:
        """The outbox may have got shorter."""
        self._progress.set()

    def mends(self, error: Error) -> bool:
        """Text was not taken, for it came too soon or behind a gap. False: saying it again does not help."""
        if error.code == "text_gap":
            return self._gap(error)
        wait_ms = error.detail.get("retry_after_ms")
        if isinstance(wait_ms, int):
            self._refused = True
            self.repeat_in(wait_ms / 1000)
        return isinstance(wait_ms, int)

    def _gap(self, error: Error) -> bool:
        """The worker misses a cancel if the error names its generation, else text. False: text that is gone here."""
        expected = error.detail.get("expected")
        if isinstance(expected, int):
            if self._outbox.awaits_cancelled:
                return True  # text of the generation that was cancelled
            if not self._outbox.taken(expected):
                return False
        self.repeat_in(max(0.0, self._repeated_at + self._patience.retry_s - self._loop.time()))
        return True

    def refused(self) -> None:
        """The worker had no room for some text, so what came after it is a gap."""
        self._refused = True
        self.repeat_in(self._patience.refused_s)

    def pulse(self, text_seq: int) -> None:
        """A second of silence. What was said before the last one and is not confirmed yet may be lost."""
        self._outbox.taken(text_seq)
        oldest = self._outbox.oldest
        if oldest is not None and oldest is self._oldest_at_pulse:
            self.repeat_in(0.0)
        self._oldest_at_pulse = oldest
        self.progress()

    def audio(self) -> None:
        self._oldest_at_pulse = None

    def _repeat(self) -> None:
        self._timer = None
        self._refused = False
        self._repeated_at = self._loop.time()
        owed, self._owed_credit_us = self._owed_credit_us, 0
        if owed:
            self.credit(owed)
        for message in self._outbox.pending():
            self.say(message)
        self.progress()

    @property
    def _window(self) -> int:
        """Characters that may wait at the worker; some room is left for the word that it holds back."""
        assert self._ready is not None
        limit = self._ready.limits.buffer_chars
        return limit - limit // 8
