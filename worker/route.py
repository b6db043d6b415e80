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
        self.withheld = False

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
        if not self.withheld:
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
        self._publish(packet, probe=True, droppable=False)
        self._bus.confirm(heard)

    def release(self) -> None:
        """Send what was withheld, and from now on everything at once."""
        self.withheld = False
        while self._kept:
            kept = self._kept.popleft()
            self._publish(kept.packet, kept.probe, droppable=False)
        self._kept_bytes = 0

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def _publish(self, packet: Packet, probe: bool, droppable: bool) -> bool:
        reply = self._watch.subject if probe and self._watch is not None else ""
        return self._bus.publish(
            self._subject, packet.payload, headers=packet.headers, reply=reply, droppable=droppable
        )
