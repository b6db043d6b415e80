"""A caller to be killed: opens sessions over one connection, says when they speak, and waits for its end.

``python -m tests.cases.vanishing URL POOL COUNT``
"""

from __future__ import annotations

import asyncio
import json
import sys

import nats
from nats.aio.msg import Msg


async def main(url: str, pool: str, count: int) -> None:
    client = await nats.connect(url)
    speaking: set[str] = set()
    all_speak = asyncio.Event()

    async def hear(message: Msg) -> None:
        if (message.headers or {}).get("Tts-Event") == "audio":
            speaking.add(message.subject)
        if len(speaking) == count:
            all_speak.set()

    body = json.dumps({"text": "Good morning to you, my friend. " * 50}).encode()
    for _ in range(count):
        inbox = client.new_inbox()
        await client.subscribe(inbox, cb=hear)
        await client.publish(f"tts.v1.default.open.{pool}", body, reply=inbox)
    await all_speak.wait()
    print("speaking", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
