"""Callers in a process of their own, to be killed or cut off: prints the names of their sessions when all are where
they should be. Run as a module with the server's URL and the pool."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from typing import Any

import nats

from tests.integration.live import Session

TEXT = "word " * 200
OPENINGS: dict[str, dict[str, Any]] = {
    "speaking": {"text": TEXT, "final": True},
    "silent": {},
    "pinging": {"text": "Well, ", "fanout": True},
    "mute": {"text": "Well, ", "fanout": True, "idle_timeout_s": 4.0},
}
"""``pinging`` and ``mute`` are heard by somebody else."""


async def main(url: str, pool: str) -> None:
    client = await nats.connect(url, allow_reconnect=False)
    sessions: dict[str, Session] = {}
    for role, fields in OPENINGS.items():
        name = f"{role}-{secrets.token_hex(12)}"
        sessions[role] = await Session(client, pool=pool).open({**fields, "session": name})
    await sessions["speaking"].until("audio")
    await sessions["pinging"].say("ping")
    await client.flush()
    print(json.dumps({role: session.ready["session"] for role, session in sessions.items()}), flush=True)
    while True:
        await asyncio.sleep(1.0)
        await sessions["pinging"].say("ping")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
