"""A real request goes to the judged address and nowhere else, once, with the name where it belongs."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.broker.outbox import SECRET, body_of, ended_task, settings_of

from tabherd.broker import webhook_send
from tabherd.broker.events import EventBus
from tabherd.broker.webhook_address import read_target
from tabherd.broker.webhook_send import Post, Reply, Unanswered, send_pinned
from tabherd.broker.webhooks import Webhooks
from tabherd.core.model import Delivery
from tabherd.metrics import Metrics
from tabherd.store.base import Insert
from tabherd.store.memory import MemoryStore

# What does not happen within this shall fail, not hang.
LIMIT_S = 60.0
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "webhooks.md"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Act = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Receiver:
    """Listens on one loopback address, remembers every request, and answers as it is told."""

    def __init__(self, answer: bytes | Act) -> None:
        self._answer = answer
        self.port = 0
        # Connections, and of each request its head and body.
        self.connections = 0
        self.requests: list[tuple[dict[str, str], bytes]] = []
        # The names that were asked for in TLS handshakes.
        self.names: list[str | None] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
            headers["request"] = line
            self.requests.append((headers, await reader.readexactly(int(headers["content-length"]))))
            if isinstance(self._answer, bytes):
                writer.write(self._answer)
            else:
                await self._answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def receiving(
    answer: bytes | Act = OK, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    receiver = Receiver(answer)
    if tls is not None:
        tls.sni_callback = lambda _, name, __: receiver.names.append(name)
    serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving[task] = writer
        await receiver.serve(reader, writer)

    server = await asyncio.start_server(serve, host, port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for writer in serving.values():
            writer.transport.abort()
        await asyncio.gather(*serving)


async def send(url: str, *addresses: str, limit_s: float = LIMIT_S, **headers: str) -> Reply:
    post = Post(
        target=read_target(url),
        addresses=[ipaddress.ip_address(each) for each in addresses or ("127.0.0.1",)],
        headers=headers,
        body=b'{"taskId":"tsk_1"}',
        limit_s=limit_s,
    )
    async with asyncio.timeout(LIMIT_S):
        return await send_pinned(post)


# --- A request --------------------------------------------------------------------------------------------------


async def test_the_request_goes_to_the_address_and_carries_the_name() -> None:
    async with receiving() as receiver:
        reply = await send(f"http://hooks.test:{receiver.port}/in?a=b", **{"X-Tabherd-Event": "task.done"})
    assert reply == Reply(status=200)
    ((headers, body),) = receiver.requests
    assert headers["request"] == "POST /in?a=b HTTP/1.1"
    assert headers["host"] == f"hooks.test:{receiver.port}"
    assert headers["x-tabherd-event"] == "task.done"
    assert body == b'{"taskId":"tsk_1"}'


async def test_no_connection_is_used_twice() -> None:
    async with receiving() as receiver:
        for name in ("one.test", "other.test"):
            await send(f"http://{name}:{receiver.port}/")
    assert receiver.connections == 2


async def test_the_wish_to_wait_is_handed_on() -> None:
    async with receiving(b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n") as receiver:
        assert await send(f"http://hooks.test:{receiver.port}/") == Reply(status=503, retry_after="7")


async def test_a_redirect_is_not_followed() -> None:
    async with receiving() as other:
        location = f"http://127.0.0.1:{other.port}/"
        answer = f"HTTP/1.1 307 Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
        async with receiving(answer) as receiver:
            assert (await send(f"http://hooks.test:{receiver.port}/")).status == 307
        assert other.connections == 0


async def test_proxies_and_credentials_of_the_environment_are_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ada password geheim\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    async with receiving() as proxy, receiving() as receiver:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        await send(f"http://hooks.test:{receiver.port}/")
        assert (proxy.connections, receiver.connections) == (0, 1)
    assert "authorization" not in receiver.requests[0][0]


# --- Receivers that misbehave -----------------------------------------------------------------------------------


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    written = 0

    async def pour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            written += 65_536
            await writer.drain()

    async with receiving(pour) as receiver:
        assert (await send(f"http://hooks.test:{receiver.port}/")).status == 200
    # What fits into the buffers of two sockets, and not more.
    assert written < 64 << 20


async def test_an_answer_that_never_goes_on_after_its_status_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_send, "ANSWER_LIMIT_S", 0.01)

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx")
        await reader.read()

    async with receiving(stall) as receiver:
        assert (await send(f"http://hooks.test:{receiver.port}/")).status == 200


async def test_an_answer_that_is_cut_off_after_its_status_is_an_answer() -> None:
    async with receiving(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx") as receiver:
        assert (await send(f"http://hooks.test:{receiver.port}/")).status == 200


async def test_a_receiver_that_does_not_answer_in_time_did_not_answer() -> None:
    async def wait(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with receiving(wait) as receiver:
        with pytest.raises(Unanswered, match="in time"):
            await send(f"http://hooks.test:{receiver.port}/", limit_s=0.05)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9.6\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\x00" * 200_000])
async def test_what_is_no_http_is_no_answer(answer: bytes) -> None:
    async with receiving(answer) as receiver:
        with pytest.raises(Unanswered, match="no answer"):
            await send(f"http://hooks.test:{receiver.port}/")


async def test_an_address_that_cannot_be_connected_to_is_followed_by_the_next() -> None:
    async with receiving() as receiver:
        reply = await send(f"http://hooks.test:{receiver.port}/", "127.0.0.2", "::1", "127.0.0.1")
    assert reply.status == 200


async def test_a_request_that_may_have_been_heard_is_not_sent_to_another_address() -> None:
    async with receiving(b"") as first, receiving(host="127.0.0.2", port=first.port) as second:
        with pytest.raises(Unanswered):
            await send(f"http://hooks.test:{first.port}/", "127.0.0.1", "127.0.0.2")
    assert (len(first.requests), second.connections) == (1, 0)


async def test_no_more_than_four_addresses_are_tried() -> None:
    async with receiving() as receiver:
        with pytest.raises(Unanswered, match="cannot be connected to"):
            await send(f"http://hooks.test:{receiver.port}/", *(f"127.0.0.{n}" for n in range(2, 6)), "127.0.0.1")
    assert receiver.connections == 0


# --- TLS --------------------------------------------------------------------------------------------------------


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ssl.SSLContext]:
    """Makes servers with a certificate for that name, which is trusted for the time of the test."""

    def make(name: str, is_trusted: bool = True) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = tmp_path / f"{name}.pem"
        pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        if is_trusted:
            monkeypatch.setattr(webhook_send, "_tls", lambda: ssl.create_default_context(cafile=str(pem)))
        (tmp_path / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(pem, tmp_path / f"{name}.key")
        return server

    return make


async def test_over_tls_the_name_is_asked_for_and_verified_although_the_address_is_called(
    tls: Callable[..., ssl.SSLContext],
) -> None:
    async with receiving(tls=tls("hooks.test")) as receiver:
        assert (await send(f"https://hooks.test:{receiver.port}/in")).status == 200
    assert receiver.names == ["hooks.test"]
    assert receiver.requests[0][0]["host"] == f"hooks.test:{receiver.port}"


async def test_a_certificate_for_another_name_is_refused_before_anything_is_sent(
    tls: Callable[..., ssl.SSLContext],
) -> None:
    async with receiving(tls=tls("other.test")) as receiver:
        with pytest.raises(Unanswered, match="CERTIFICATE_VERIFY_FAILED"):
            await send(f"https://hooks.test:{receiver.port}/")
    assert receiver.requests == []


async def test_a_certificate_that_nobody_vouches_for_is_refused(tls: Callable[..., ssl.SSLContext]) -> None:
    async with receiving(tls=tls("hooks.test", is_trusted=False)) as receiver:
        with pytest.raises(Unanswered, match="CERTIFICATE_VERIFY_FAILED"):
            await send(f"https://hooks.test:{receiver.port}/")
    assert receiver.requests == []


async def test_authorities_that_cannot_be_read_are_a_failed_attempt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    webhook_send._tls.cache_clear()
    async with receiving() as receiver:
        with pytest.raises(Unanswered, match="No such file"):
            await send(f"https://hooks.test:{receiver.port}/")
    assert receiver.connections == 0


# --- All of it together -----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def outbox(store: MemoryStore, **settings: Any) -> AsyncIterator[tuple[Webhooks, EventBus]]:
    """The outbox as a server has it: its own lookups, its own requests, the clock on the wall."""
    events = EventBus(epoch=1, ring=1_000)
    webhooks = Webhooks(
        settings=settings_of(retry_ms=1, **settings),
        secret=SECRET,
        node_id="nod_1",
        store=store,
        events=events,
        metrics=Metrics(),
        clock=lambda: time.time_ns() // 1_000_000,
        chance=Random(1),
    )
    await webhooks.start()
    try:
        yield webhooks, events
    finally:
        await webhooks.stop()


async def deliver(store: MemoryStore, webhooks: Webhooks, url: str, task_ids: Sequence[str] = ("tsk_1",)) -> None:
    for task_id in task_ids:
        task = ended_task(task_id, url)
        delivery = webhooks.delivery_for(task, "task.done", body_of(task))
        await store.apply(Insert(task), Insert(delivery))
        webhooks.committed(delivery)


async def test_a_receiver_can_verify_what_it_gets() -> None:
    store = MemoryStore()
    async with receiving() as receiver, outbox(store, allow_hosts=["127.0.0.1"]) as (webhooks, events):
        with events.subscribe() as told:
            await deliver(store, webhooks, f"http://127.0.0.1:{receiver.port}/in")
            async with asyncio.timeout(LIMIT_S):
                assert (await anext(told)).type == "webhook.delivered"
    ((headers, body),) = receiver.requests
    assert body == body_of(ended_task())
    # With the words of the documentation.
    (example,) = re.findall(r"^```python\n(.*?)^```", HOW_TO.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    exec(example, words := {})
    is_from_tabherd, signed = words["is_from_tabherd"], {name.title(): value for name, value in headers.items()}
    assert is_from_tabherd(SECRET, signed, body)
    assert not is_from_tabherd(b"another", signed, body)
    assert not is_from_tabherd(SECRET, signed, body + b" ")
    assert not is_from_tabherd(SECRET, {**signed, "X-Tabherd-Timestamp": "1000"}, body)


async def test_a_name_server_that_changes_its_answer_leads_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name leads to an address that is allowed whenever it is judged, and to one that is not whenever it is not."""
    asked: list[str] = []
    resolve = socket.getaddrinfo

    def rebind(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "rebind.test":
            return resolve(host, *args, **kwargs)
        asked.append(host)
        address = "127.0.0.1" if len(asked) % 2 else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", rebind)
    store = MemoryStore()
    async with (
        receiving() as allowed,
        receiving(host="127.0.0.2", port=allowed.port) as inner,
        outbox(store, allow_hosts=["127.0.0.1"], attempts_max=1, max_inflight=1) as (webhooks, events),
    ):
        with events.subscribe() as told:
            await deliver(store, webhooks, f"http://rebind.test:{allowed.port}/", [f"tsk_{n}" for n in range(6)])
            async with asyncio.timeout(LIMIT_S):
                outcomes = [(await anext(told)).type for _ in range(6)]
        assert inner.connections == 0
        assert len(allowed.requests) == 3
    assert outcomes == ["webhook.delivered", "webhook.failed"] * 3
    # Once for each attempt: nobody asks again between the verdict and the connection.
    assert len(asked) == 6


async def test_without_leave_of_the_operator_this_machine_is_not_called() -> None:
    store = MemoryStore()
    async with receiving() as receiver, outbox(store, attempts_max=1) as (webhooks, events):
        with events.subscribe() as told:
            await deliver(store, webhooks, f"http://localhost:{receiver.port}/")
            async with asyncio.timeout(LIMIT_S):
                assert (await anext(told)).type == "webhook.failed"
        assert receiver.connections == 0
    row = await store.get(Delivery, "tsk_1")
    assert row is not None
    assert "not a public address" in row.error
