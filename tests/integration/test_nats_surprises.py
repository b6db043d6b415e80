"""One test for each way in which NATS or its Python client surprised us, against the real server.

The stock client's part is shown where that is certain to happen, so that we learn when it is mended.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from tests.integration.conftest import MakeBus, MakeClient, MakeServer
from tests.integration.jwt_accounts import Accounts
from tests.integration.mailbox import Mailbox, relay_to, speak, until
from worker.bus import Bus, Handler, Message
from worker.embedded import EmbeddedServer
from worker.errors import BadSubject, BusUnavailable, MessageTooLarge, NoResponders
from worker.sections import NatsSettings
from worker.wire.subjects import parse_pool_subject, reply_allowed


def answering(bus: Bus) -> Handler:
    def answer(message: Message) -> None:
        bus.publish(message.reply, b"here")

    return answer


async def fatal_error(bus: Bus) -> None:
    """What Bus.publish refuses: a payload of just the allowed size, and a header on top."""
    link = bus._connection.link
    await link.publish("x", b"a" * link.max_payload, headers={"a": "b"})
    await until(lambda: link.is_closed)


class TestFlushIsNoBarrier:
    """Surprise 2: nats-py writes the PING of a flush before commands that still wait for its flusher."""

    async def test_ours_is(self, make_bus: MakeBus, pool: str) -> None:
        one, other = await make_bus(), await make_bus()
        for n in range(100):
            one.subscribe(f"{pool}.{n}", answering(one))
            await one.barrier()
            assert (await other.request(f"{pool}.{n}")).payload == b"here"

    async def test_order_on_the_wire(
        self, server: EmbeddedServer, make_bus: MakeBus, make_client: MakeClient, pool: str
    ) -> None:
        async with relay_to(server.url) as relay:
            bus = await make_bus(relay.url)
            await bus.barrier()
            relay.said.clear()
            bus.subscribe(pool, Mailbox())
            await bus.barrier()
            assert relay.said.index(b"SUB") < relay.said.index(b"PING")
            await bus.close()
        async with relay_to(server.url) as relay:
            stock = await make_client(relay.url)
            await stock.flush()
            relay.said.clear()
            await stock.subscribe(pool)
            await stock.flush()
            assert relay.said.index(b"PING") < relay.said.index(b"SUB")
            await stock.close()

    async def test_a_drain_loses_no_request(self, make_bus: MakeBus, pool: str) -> None:
        """``Subscription.drain`` of nats-py rests on that flush: with requests racing it, some were never answered."""
        one, other = await make_bus(), await make_bus()
        answered = 0
        for n in range(100):
            subscription = one.subscribe(f"{pool}.{n}", answering(one), queue="q", once=True)
            await one.barrier()
            request = asyncio.create_task(other.request(f"{pool}.{n}", timeout_s=5.0))
            await asyncio.sleep(0.0001 * (n % 10))
            await subscription.drain()
            with contextlib.suppress(NoResponders):
                answered += (await request).payload == b"here"
        assert one.stats.handler_errors == 0
        assert answered > 0


async def test_a_cancelled_flush_does_not_deafen_the_client(
    server: EmbeddedServer, make_bus: MakeBus, pool: str
) -> None:
    """nats-py sets a result on the cancelled future when the PONG comes; the exception ends its read loop."""
    async with relay_to(server.url) as relay:
        bus, mailbox = await make_bus(relay.url), Mailbox()
        bus.subscribe(pool, mailbox)
        await bus.barrier()
        relay.listening.clear()
        relay.said.clear()
        flush = asyncio.create_task(bus.barrier())
        await until(lambda: relay.said.endswith(b"PING\r\n"))
        flush.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flush
        relay.listening.set()
        await bus.barrier()
        bus.publish(pool, b"heard")
        await mailbox.first(1)
        assert bus.stats.reconnects == 0
        await bus.close()


class TestCancelledErrorInACallback:
    """Surprise 3: it ends nats-py's task for the subscription, silently."""

    async def test_costs_one_message(self, make_bus: MakeBus, pool: str, caplog: pytest.LogCaptureFixture) -> None:
        bus, handled = await make_bus(), Mailbox()

        def handler(message: Message) -> None:
            handled(message)
            if message.payload == b"1":
                raise asyncio.CancelledError
            if message.payload == b"2":
                raise ValueError("somebody's text")

        bus.subscribe(pool, handler)
        for n in range(4):
            bus.publish(pool, str(n).encode())
        await handled.first(4)
        await bus.barrier()
        assert handled.payloads == [b"0", b"1", b"2", b"3"]
        assert bus.stats.handler_errors == 2
        assert "ValueError" in caplog.text
        assert "somebody's text" not in caplog.text

    async def test_ends_a_stock_subscription(self, make_client: MakeClient, pool: str) -> None:
        client, handled = await make_client(), []

        async def handler(msg: Msg) -> None:
            handled.append(msg.data)
            raise asyncio.CancelledError

        await client.subscribe(pool, cb=handler)
        for n in range(4):
            await client.publish(pool, str(n).encode())
        await asyncio.sleep(0)
        await client.flush()
        await asyncio.sleep(0.05)
        assert handled == [b"0"]


class TestFatalErrors:
    """Surprise 4: some ``-ERR`` close the client for good, whatever max_reconnect_attempts says."""

    async def test_a_stock_client_is_closed_by_a_header_too_many(self, make_client: MakeClient, pool: str) -> None:
        closed = asyncio.Event()

        async def on_closed() -> None:
            closed.set()

        async def on_error(_: Exception) -> None: ...

        client = await make_client(max_reconnect_attempts=-1, closed_cb=on_closed, error_cb=on_error)
        await client.publish(pool, b"a" * client.max_payload, headers={"a": "b"})
        await asyncio.wait_for(closed.wait(), 10)
        assert client.is_closed

    async def test_what_would_be_fatal_is_refused(self, make_bus: MakeBus, pool: str) -> None:
        bus, mailbox = await make_bus(), Mailbox()
        bus.subscribe(pool, mailbox)
        headers = {"Tts-Event": "audio", "Ünicode": "x"}
        header_bytes = len(b"NATS/1.0\r\nTts-Event: audio\r\n\r\n")
        whole = b"a" * (bus.max_message_bytes - header_bytes)
        with pytest.raises(MessageTooLarge) as error:
            bus.publish(pool, whole + b"a", headers={"Tts-Event": "audio"})
        assert (error.value.size, error.value.limit) == (bus.max_message_bytes + 1, bus.max_message_bytes)
        with pytest.raises(MessageTooLarge):
            bus.publish(pool, whole, headers=headers)
        with pytest.raises(MessageTooLarge):
            await bus.request(pool, b"a" * (bus.max_message_bytes + 1))
        for subject, reply in (("a" * 2_000, ""), (pool, "b" * 2_000), ("", ""), ("a b", ""), (pool, "c\r\nPING")):
            with pytest.raises(BadSubject):
                bus.publish(subject, b"", reply=reply)
        with pytest.raises(BadSubject):
            bus.subscribe("a\r\nPUB x 0", mailbox)
        assert bus.publish(pool, whole, headers={"Tts-Event": "audio"})
        (message,) = await mailbox.first(1)
        assert len(message.payload) == len(whole)
        assert (bus.stats.reconnects, bus.stats.rebuilds) == (0, 0)

    async def test_a_new_client_takes_over_with_every_subscription(self, make_bus: MakeBus, pool: str) -> None:
        bus, other = await make_bus(), await make_bus()
        mailbox, once, back, gone = Mailbox(), Mailbox(), asyncio.Event(), asyncio.Event()
        bus.on_online(back.set)
        bus.on_offline(gone.set)
        bus.subscribe(f"{pool}.all", mailbox)
        bus.subscribe(f"{pool}.once", once, once=True)
        spent = bus.subscribe(f"{pool}.spent", mailbox, once=True)
        closed = bus.subscribe(f"{pool}.closed", mailbox)
        closed.close()
        unheard = asyncio.Event()
        watch = bus.watch(unheard.set)
        await bus.barrier()
        other.publish(f"{pool}.spent", b"first")
        await mailbox.first(1)
        assert not spent.active

        await fatal_error(bus)
        await asyncio.wait_for(back.wait(), 10)
        assert gone.is_set()
        assert bus.connected
        assert bus.stats.rebuilds == 1

        await bus.barrier()
        for name in ("all", "once", "spent", "closed", "all"):
            other.publish(f"{pool}.{name}", name.encode())
        other.publish(f"{pool}.once", b"once more")
        await mailbox.first(3)
        await once.first(1)
        await bus.barrier()
        assert mailbox.payloads == [b"first", b"all", b"all"]
        assert once.payloads == [b"once"]
        bus.publish(f"{pool}.nobody", b"", reply=watch.subject)
        await asyncio.wait_for(unheard.wait(), 10)

    async def test_an_expired_credential(
        self, make_server: MakeServer, make_bus: MakeBus, tmp_path: Path, pool: str
    ) -> None:
        """nats-io/nats.py#1019: the server says ``User Authentication Expired``; meanwhile the file was renewed."""
        accounts = Accounts.create()
        credentials = tmp_path / "worker.creds"
        server = await make_server(extra=accounts.server_config())
        accounts.write_credentials(credentials, lifetime_s=2)
        bus, mailbox, back = await make_bus(server.url, credentials=credentials), Mailbox(), asyncio.Event()
        bus.subscribe(pool, mailbox)
        bus.on_online(back.set)
        await bus.barrier()
        accounts.write_credentials(credentials, lifetime_s=3600)
        await asyncio.wait_for(back.wait(), 10)
        assert bus.stats.rebuilds == 1
        bus.publish(pool, b"still here")
        await mailbox.first(1)


HOSTILE = {
    "reply that is not UTF-8": b"PUB %s \xff\xfe 2\r\nhi\r\n",
    "vertical tab in the reply": b"PUB %s _INBOX.a\x0bb 2\r\nhi\r\n",
    "form feed in the reply": b"PUB %s \x0c 2\r\nhi\r\n",
    "status that is not UTF-8": b"HPUB %s r 16 18\r\nNATS/1.0 \xff\xff\xff\r\n\r\nhi\r\n",
    "header of eight bytes": b"HPUB %s r 8 10\r\nNATS/1.0hi\r\n",
    "description that is not UTF-8": b"HPUB %s r 18 20\r\nNATS/1.0 503 \xff\r\n\r\nhi\r\n",
    "no header at all": b"HPUB %s r 0 2\r\nhi\r\n",
    "header of garbage": b"HPUB %s r 12 14\r\nabcdefghijklhi\r\n",
    "reply of 4,000 characters": b"PUB %s _INBOX." + b"a" * 4000 + b" 2\r\nhi\r\n",
    "NUL in the reply": b"PUB %s a\x00b 2\r\nhi\r\n",
}


@pytest.mark.parametrize("command", HOSTILE.values(), ids=HOSTILE)
async def test_a_strangers_message_neither_deafens_nor_disconnects(
    server: EmbeddedServer, make_bus: MakeBus, pool: str, command: bytes
) -> None:
    """In nats-py an exception ends the read loop: the client looks connected and hears nothing for half a minute."""
    bus, mailbox = await make_bus(), Mailbox()
    bus.subscribe(pool, mailbox)
    await bus.barrier()
    assert b"ERR" not in await speak(
        server.url, command.replace(b"%s", pool.encode()), b"PUB %b 4\r\nnext\r\n" % pool.encode()
    )
    messages = await mailbox.first(2)
    assert [message.payload for message in messages] == [b"hi", b"next"]
    assert not reply_allowed("default", messages[0].reply, NatsSettings())
    assert (bus.stats.reconnects, bus.stats.rebuilds, bus.stats.handler_errors) == (0, 0, 0)


ACCOUNTS = """
accounts {
  WORKERS { users: [{user: worker, password: w}]
            exports: [{service: "tts.v1.t3.open.std", response_type: Stream}] }
  T3      { users: [{user: t3, password: t}]
            imports: [{service: {account: WORKERS, subject: "tts.v1.t3.open.std"}, to: "tts.open.std"}] }
}
"""


class TestConfusedDeputy:
    """Surprise 6: a reply subject is the requester's choice, and the worker may publish where the requester may not."""

    @staticmethod
    def serve(bus: Bus, settings: NatsSettings) -> list[str]:
        """Answers opens as a worker does; returns the replies that it dropped."""
        dropped: list[str] = []

        def on_open(message: Message) -> None:
            tenant = parse_pool_subject("open", message.subject).tenant
            if reply_allowed(tenant, message.reply, settings):
                bus.publish(message.reply, b"audio")
            else:
                dropped.append(message.reply)

        bus.subscribe("tts.v1.*.open.std", on_open)
        return dropped

    async def test_one_tenant_cannot_speak_on_anothers_subject(
        self, make_server: MakeServer, make_bus: MakeBus
    ) -> None:
        server = await make_server()
        worker, attacker, victim = [
            await make_bus(server.url, inbox_prefix=p) for p in ("_W", "_INBOX_t1", "_INBOX_t2")
        ]
        dropped, heard, own = self.serve(worker, NatsSettings()), Mailbox(), Mailbox()
        victim.subscribe(">", heard)
        attacker.subscribe("_INBOX_t1.mine", own)
        for bus in (worker, attacker, victim):
            await bus.barrier()
        attacks = ["tts.v1.t2.out.victim", "_INBOX_t2.victim", "$JS.API.INFO", "_INBOX.default", ""]
        for reply in attacks:
            attacker.publish("tts.v1.t1.open.std", b"x", reply=reply)
        attacker.publish("tts.v1.t1.open.std", b"x", reply="_R_.forged")  # this one the server itself stops
        attacker.publish("tts.v1.t1.open.std", b"x", reply="_INBOX_t1.mine")
        await own.first(1)
        assert dropped == attacks
        await victim.barrier()
        answered = [message.subject for message in heard.messages if message.payload == b"audio"]
        assert answered == ["_INBOX_t1.mine"]

    async def test_with_an_account_per_tenant_the_server_maps_replies(
        self, make_server: MakeServer, make_bus: MakeBus
    ) -> None:
        server = await make_server(extra=ACCOUNTS)
        worker = await make_bus(server.url, user="worker", password="w")
        tenant = await make_bus(server.url, user="t3", password="t")
        dropped = self.serve(worker, NatsSettings(accounts_per_tenant=True))
        await worker.barrier()
        assert (await tenant.request("tts.open.std")).payload == b"audio"
        own = Mailbox()
        tenant.subscribe("tts.v1.t2.out.victim", own)  # in the tenant's own account: nobody else's
        tenant.publish("tts.open.std", b"x", reply="tts.v1.t2.out.victim")
        await own.first(1)
        assert dropped == []


async def test_nobody_is_listening_is_heard_at_once(make_bus: MakeBus, pool: str) -> None:
    """The server answers a message with a reply subject that nobody received: that is how a dead listener shows."""
    bus, other = await make_bus(), await make_bus()
    calls: list[str] = []
    watches = {name: bus.watch(lambda name=name: calls.append(name)) for name in ("a", "b", "c")}  # type: ignore[misc]
    subscription = other.subscribe(f"{pool}.b", Mailbox())
    await other.barrier()
    watches["c"].close()
    for name, watch in watches.items():
        bus.publish(f"{pool}.{name}", b"frame", reply=watch.subject)
    await bus.barrier()
    await until(lambda: bool(calls))
    assert calls == ["a"]
    subscription.close()
    await other.barrier()
    bus.publish(f"{pool}.b", b"frame", reply=watches["b"].subject)
    await until(lambda: calls == ["a", "b"])


async def test_a_barrier_on_a_dying_connection_does_not_wait_it_out(make_server: MakeServer, make_bus: MakeBus) -> None:
    server = await make_server()
    async with relay_to(server.url) as relay:
        bus = await make_bus(relay.url)
        relay.listening.clear()
        barrier = asyncio.create_task(bus.barrier(60.0))
        await until(lambda: relay.said.endswith(b"PING\r\n"))
        await server.stop(kill=True)
        with pytest.raises(BusUnavailable):
            await asyncio.wait_for(barrier, 10)
