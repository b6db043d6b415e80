"""The way out of one session: every event on one subject, audio numbered, and ``ready`` said again to listeners who
come late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from worker.audio.chain import OutputChain
from worker.bus import Bus
from worker.connection import Hook
from worker.route import Route
from worker.wire.codec import ContentType, encode, encode_audio
from worker.wire.events import Audio, Cancelled, ControlEvent, Mark, Pulse, Ready

PROBE_EVERY_FRAMES = 12
READY_EVERY_S = 2.0
HEADER_BYTES = 512
"""Room left for the headers of an audio message."""


class Egress:
    """Publishes one session's events in order. Nothing here waits.

    ``seq`` counts the audio payloads handed to the route, shed ones too, so a listener sees what it missed as a hole.
    Every 12th payload, the first, every ping and, with ``out``, every ``ready`` asks for a reply that nobody gives: the
    server's 503 says that no one listens.
    """

    def __init__(
        self, bus: Bus, answer: str, content: ContentType, chain: OutputChain, audio: str, *, out: str | None = None
    ) -> None:
        """``answer``: the open's reply subject, where all events go; with ``out``, where they go otherwise, ``ready``
        alone."""
        self._bus, self._answer, self._content, self._chain = bus, answer, content, chain
        self._fanout = out is not None
        self._audio = audio
        self._ready: Ready | None = None
        self._ready_at = 0.0
        self.route = Route(bus, out or answer)
        self.before_event: Hook = _nothing
        """Called before an event is sent that somebody may rely on."""
        self._since_probe = PROBE_EVERY_FRAMES
        self.seq = 0
        self.shed = 0
        self.sent_at = self.audio_at = asyncio.get_running_loop().time()
        """Loop times of the last event of any kind, and of the last audio."""

    @property
    def header_bytes(self) -> bytes:
        """What a listener who comes late has to put before what he hears; empty for a format without a container."""
        return self._chain.header_bytes

    @property
    def pts(self) -> int:
        """Index of the next sample."""
        return self._chain.pts

    @property
    def trimmed(self) -> int:
        """Model samples that were taken off the beginning of the current generation so far."""
        return self._chain.trimmed

    @property
    def remembers(self) -> bool:
        """Whether what comes out depends on more of the audio before than how much there was."""
        return self._chain.remembers

    def resume_at(self, seq: int, pts: int) -> None:
        """What was sent of this session before, elsewhere, ends here."""
        self.seq = seq
        self._chain.resume_at(pts)

    def ready(self, event: Ready, doubt: Callable[[], Hook]) -> None:
        """``doubt`` is called where nobody may have heard of the session's subject yet; its result when that is known.
        Raises MessageTooLarge before anything is sent."""
        if not self._fanout:
            self.event(event)
            return
        packet = encode(event, self._content)
        self._bus.publish(self._answer, packet.payload, headers=packet.headers)
        self.before_event()
        self._ready, self._ready_at = event, asyncio.get_running_loop().time()
        self.sent_at = self._ready_at
        self.route.ask(packet, doubt())

    def remind(self, now: float, text_seq: int) -> None:
        """To be called every second: ``ready`` again for listeners who came late, if it is time."""
        if self._ready is not None and not self.route.withheld and now - self._ready_at > READY_EVERY_S - 0.5:
            self._ready_at = now
            self.event(self._ready.model_copy(update={"text_seq": text_seq}), probe=True)

    def event(self, event: ControlEvent, probe: bool = False) -> None:
        if not isinstance(event, Mark):
            self.before_event()
        self.sent_at = asyncio.get_running_loop().time()
        self.route.send(encode(event, self._content), probe=probe)

    def ask(self, pulse: Pulse, answered: Hook) -> None:
        """Whether anybody listens, past all that is withheld; ``answered`` is called after a 503, if there is one."""
        self.route.ask(encode(pulse, self._content), answered)

    def fitted(self, event: Cancelled) -> Cancelled:
        """The event, its text cut to what one message takes: the oldest spoken words go first, then the last unspoken
        ones."""
        room = self._bus.max_message_bytes - HEADER_BYTES
        while len(encode(event, self._content).payload) > room:
            spoken, unspoken = event.spoken, event.unspoken
            cut = {"spoken": spoken[len(spoken) // 2 + 1 :]} if spoken else {"unspoken": unspoken[: len(unspoken) // 2]}
            event = event.model_copy(update=cut)
        return event

    def audio(self, pcm: bytes, generation: int, announce: Callable[[], None]) -> bool:
        """Model audio of one frame; True if a payload went out (filters may hold it back). ``announce`` is called right
        before it does, when ``pts`` is past it already: for what must be heard of first."""
        start = self._chain.pts
        return self._send(self._chain.push(pcm), start, generation, announce)

    def tail(self, generation: int, announce: Callable[[], None], *, last: bool = False) -> bool:
        """What resampler and encoder still hold; ``last``: no audio follows. ``announce`` as in ``audio``."""
        start = self._chain.pts
        return self._send(self._chain.finish() if last else self._chain.flush(), start, generation, announce)

    def media_ms(self, sample: int) -> float | None:
        """When a sample that was given to ``audio`` in the current generation is heard; None: not known yet."""
        return self._chain.media_ms(sample)

    def cut(self, generation: int, *, last: bool) -> None:
        """The generation is over wherever it is: what the filters hold is discarded and takes no number, and a few
        milliseconds lead what was sent to silence. ``last``: no audio follows."""
        start = self._chain.pts
        self._send(self._chain.cut(last=last), start, generation, lambda: None)

    def _send(self, payload: bytes, pts: int, generation: int, announce: Callable[[], None]) -> bool:
        if payload:
            announce()
            for piece, start in self._chain.pieces(payload, pts, self._bus.max_message_bytes - HEADER_BYTES):
                self._publish(piece, start, generation)
        return bool(payload)

    def _publish(self, payload: bytes, pts: int, generation: int) -> None:
        packet = encode_audio(Audio(payload, self.seq, pts, generation, self._audio))
        self.seq += 1
        self._since_probe += 1
        probe = self._since_probe > PROBE_EVERY_FRAMES
        if probe:
            self._since_probe = 0
        self.sent_at = self.audio_at = asyncio.get_running_loop().time()
        droppable = self.seq > 1  # the first payload may hold the header that makes all others readable
        if not self.route.send(packet, probe=probe, droppable=droppable):
            self.shed += 1


def _nothing() -> None: ...
