"""A stock client that hears a session which somebody else has opened, or will."""

from __future__ import annotations

from typing import Self

from tests.integration.live import Heard, Session


class Ear(Session):
    async def attend(self, session: str) -> Self:
        """Returns when the server knows."""
        subject = f"tts.v1.{self.tenant}.out.{session}"
        self._subscription = await self.client.subscribe(subject, cb=self._hear)
        await self.client.flush()
        return self

    @property
    def said(self) -> list[Heard]:
        """Everything but pings and repetitions of ``ready``."""
        return [event for event in self.events if event.kind not in ("ping", "ready")]

    @property
    def numbers(self) -> list[int]:
        return [event.number("Tts-Seq") for event in self.audio]


def whole(count: int) -> list[int]:
    return list(range(count))
