"""Where one session's events go, and what becomes of them while nobody is there to hear."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from worker.bus import Bus, ReplyWatch
from worker.connection import Hook
from worker.wire.codec import Packet

KEPT_BYTES = 256 * 1024
"""Of audio that is kept until somebody listens: what was under way when the session was held."""


@dataclass(frozen=True, slots=True)
class _Kept:
    packet: Packet
    probe: bool


class Route:
    """One subject, on which a session's events keep their order. While it is ``withheld`` they wait here; audio that
    does not fit is shed. Nothing here waits for anything.

    A probe asks for a reply that nobody gives: the server's 503 says that nobody listens.
    """

    def __init__(self, bus: Bus, subject: str) -> None:
        self._bus, self._subject = bus, subject
        self._watch: ReplyWatch | None = None
        self._kept: deque[_Kept] = deque()
        self._kept_bytes = 0
        self._question: tuple[Packet, Hook] | None = None
        self.withheld = False
        self.suspended = False
        """Nobody knows whether the session is still ours; events wait here as well."""
        self.muted = False
        """What is sent now was sent before, by another worker: it goes nowhere."""

    @property
    def quiet(self) -> bool:
        """Whether what is sent now waits here."""
        return self.withheld or self.suspended

    @property
    def connected(self) -> bool:
        return self._bus.connected

    @property
    def room(self) -> int:
        """Most bytes of a message."""
        return self._bus.max_message_bytes

    def watch(self, unheard: Hook, went: Hook, came: Hook) -> None:
        """Who is to be told that nobody heard a probe, and that the server is away or back."""
        self._watch = self._bus.watch(unheard, went=went, came=came)

    def send(self, packet: Packet, *, probe: bool = False, droppable: bool = False) -> bool:
        """False: it was shed."""
        if self.muted:
            return True
        if not self.quiet and self._bus.connected:  # when it is not, those who watch are about to be told
            return self._publish(packet, probe, droppable)
        if droppable:
            if self._kept_bytes + len(packet.payload) > KEPT_BYTES:
                return False
            self._kept_bytes += len(packet.payload)
        self._kept.append(_Kept(packet, probe))
        return True

    def ask(self, packet: Packet, heard: Hook) -> None:
        """Send a probe past whatever is withheld; then either ``unheard`` is called, and after it ``heard``, or only
        ``heard``, which does not come if the server is lost."""
        if self.suspended:
            self._question = (packet, heard)
        elif not self.muted:
            self._publish(packet, probe=True, droppable=False)
            self._bus.confirm(heard)

    def release(self) -> None:
        """Send what was withheld, and from now on everything at once."""
        self.withheld = False
        self._empty()

    def suspend(self, on: bool) -> None:
        self.suspended = on
        question, self._question = self._question, None
        if question is not None:
            self.ask(*question)
        self._empty()

    def discard(self) -> None:
        """The session is another's: nothing more goes out."""
        self._kept.clear()
        self.muted = True

    def _empty(self) -> None:
        while self._kept and not self.quiet:
            kept = self._kept.popleft()
            self._publish(kept.packet, kept.probe, droppable=False)
        self._kept_bytes = sum(len(kept.packet.payload) for kept in self._kept)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def _publish(self, packet: Packet, probe: bool, droppable: bool) -> bool:
        reply = self._watch.subject if probe and self._watch is not None else ""
        return self._bus.publish(
            self._subject, packet.payload, headers=packet.headers, reply=reply, droppable=droppable
        )
