"""A request that is passed on arrives once and whole, its answer comes back, and every failure says what it means."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tabherd.cluster.hop import HOP_HEADER, Hop, verify
from tabherd.edge.body import ClientLeft
from tabherd.edge.forward.failures import CutShort, Misdirected
from tabherd.edge.forward.links import ANSWER_MAX_BYTES, Links
from tabherd.edge.forward.relay import WHOLE_MAX_BYTES
from tabherd.edge.forward.request import target_of
from tabherd.errors import InvalidRequest, NodeUnreachable, OutcomeUnknown

from .nodes import (
    CLIENT,
    KEY,
    LIMIT_S,
    MISDIRECTED,
    NOW_MS,
    OK,
    Client,
    Scripted,
    Wire,
    saying,
    scripted,
    serving,
    until,
)

ENDLESS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def pass_on(links: Links, node: Scripted, client: Client, **more: Any) -> None:
    async with asyncio.timeout(LIMIT_S):
        await links.forward(node.peer, client.scope, client.receive, client.send, client=CLIENT, **more)


class Heard:
    """What a real server makes of a request that was passed on to it."""

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {}
        self.body = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope, self.body = scope, b""
        while True:
            message = await receive()
            self.body += message["body"]
            if not message["more_body"]:
                break
        headers = [(b"content-length", b"2"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"x-tabherd-x", b"y")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.scope["headers"])


async def heard(links: Links, client: Client, **more: Any) -> Heard:
    """What the other node got of that request."""
    node = Heard()
    async with serving(node) as port:
        await pass_on(links, Scripted(port), client, **more)
        await links.close()
    return node


# --- What arrives -----------------------------------------------------------------------------------------------


async def test_a_request_arrives_as_it_was_sent(links: Links) -> None:
    client = Client("POST", b"/tabs/a%20b?x=%C3%A4&y", [b"one", b"two"], [(b"authorization", b"Bearer T")])
    node = await heard(links, client)
    assert (node.scope["method"], target_of(node.scope), node.body) == ("POST", b"/tabs/a%20b?x=%C3%A4&y", b"onetwo")
    assert (node.headers[b"host"], node.headers[b"authorization"]) == (b"node-a:7722", b"Bearer T")


async def test_an_answer_comes_back_as_it_was_given(links: Links) -> None:
    client = Client()
    await heard(links, client)
    assert (client.status, client.body, client.is_answered) == (201, b"ok", True)
    assert client.headers == [
        (b"content-length", b"2"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"x-tabherd-x", b"y"),
    ]


async def test_the_receiver_can_tell_who_sent_it_for_whom(links: Links) -> None:
    node = await heard(links, Client("POST", b"/sessions?a=b"), grant="ses_1")
    value = node.headers[HOP_HEADER]
    assert verify(KEY, value, method="POST", target=target_of(node.scope), node_id="nod_b", now_ms=NOW_MS) == Hop(
        from_node="nod_a", from_epoch=7, to_node="nod_b", at_ms=NOW_MS, client=CLIENT, boot_id="boot-a", grant="ses_1"
    )


async def test_a_client_cannot_bring_a_hop_of_its_own(links: Links) -> None:
    node = await heard(links, Client(headers=[(HOP_HEADER, b"forged")]))
    assert [value for name, value in node.scope["headers"] if name == HOP_HEADER] != [b"forged"]
    assert sum(name == HOP_HEADER for name, _ in node.scope["headers"]) == 1


async def test_a_body_that_was_read_already_is_sent_instead(links: Links) -> None:
    node = await heard(links, Client("POST", body=[]), body=b"read before")
    assert node.body == b"read before"


async def test_ids_that_this_node_made_up_go_along(links: Links) -> None:
    node = await heard(links, Client(headers=[(b"x-request-id", b"bad id")]), headers=((b"x-request-id", b"req_1"),))
    assert node.headers[b"x-request-id"] == b"req_1"


@pytest.mark.parametrize("is_declared", [True, False])
async def test_a_large_body_arrives_whole(links: Links, is_declared: bool) -> None:
    pieces = [random.Random(n).randbytes(50_000) for n in range(20)]
    headers = [(b"content-length", b"1000000")] if is_declared else [(b"transfer-encoding", b"chunked")]
    node = await heard(links, Client("POST", body=pieces, headers=headers))
    assert node.body == b"".join(pieces)
    assert (b"content-length" in node.headers) == is_declared


SMUGGLED = b"POST /smuggled HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.parametrize("lie", [len(SMUGGLED), 1_500 * len(SMUGGLED), 10_000 * len(SMUGGLED)])
async def test_a_length_that_is_not_true_smuggles_nothing(links: Links, lie: int) -> None:
    targets: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        targets.append(scope["raw_path"])
        while (await receive()).get("more_body"):
            pass

    async with serving(app) as port:
        body = [SMUGGLED * 1_300] * 4
        client = Client("POST", body=body, headers=[(b"content-length", b"%d" % lie)])
        # It is cut off, or passed on in chunks, which need no length.
        await asyncio.gather(pass_on(links, Scripted(port), client), return_exceptions=True)
        await links.close()
    assert targets == [b"/tabs"]


async def test_a_request_shorter_than_it_says_is_cut_off(links: Links) -> None:
    async with scripted(Wire.gone) as node:
        client = Client("POST", body=[bytes(WHOLE_MAX_BYTES), b"x"], headers=[(b"content-length", b"999999")])
        with pytest.raises(NodeUnreachable, match="not as long"):
            await pass_on(links, node, client)


@pytest.mark.parametrize("lie", [b"10", b"70000, 70000"])
async def test_a_length_that_cannot_be_true_is_not_repeated(links: Links, lie: bytes) -> None:
    heads: list[bytes] = []

    async def talk(wire: Wire) -> None:
        heads.append(await wire.reader.readuntil(b"\r\n\r\n"))
        wire.write(OK)
        await wire.gone()

    async with scripted(talk) as node:
        client = Client("POST", body=[bytes(WHOLE_MAX_BYTES), b"x"], headers=[(b"content-length", lie)])
        await pass_on(links, node, client)
        assert b"\r\ntransfer-encoding: chunked\r\n" in heads[0]
        assert b"content-length" not in heads[0]


async def test_what_cannot_stand_in_a_head_is_refused_before_anything_is_sent(links: Links) -> None:
    async with scripted(Wire.gone) as node:
        with pytest.raises(InvalidRequest):
            await pass_on(links, node, Client(headers=[(b"x", b"a\r\nb: c")]))
        assert node.connections == 0


async def test_hundreds_at_once_get_each_their_own_answer(links: Links) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(random.Random(scope["raw_path"]).randrange(5)):
            await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["raw_path"]})

    async with serving(app) as port:
        clients = [Client(target=b"/%d" % n) for n in range(300)]
        await asyncio.gather(*(pass_on(links, Scripted(port), client) for client in clients))
        assert [client.body for client in clients] == [b"/%d" % n for n in range(300)]
        await links.close()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 204 No\r\n\r\n", b"HTTP/1.1 304 Not\r\ncontent-length: 9\r\n\r\n"])
async def test_an_answer_without_a_body_is_passed_back(links: Links, answer: bytes) -> None:
    async with scripted(saying(answer)) as node:
        client = Client()
        await pass_on(links, node, client)
        assert client.is_answered


async def test_head_gets_the_head_alone(links: Links) -> None:
    async with scripted(saying(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n", OK)) as node:
        client = Client("HEAD")
        await pass_on(links, node, client)
        assert (client.headers, client.body) == ([(b"content-length", b"99")], b"")


async def test_what_belongs_to_the_other_connection_is_not_passed_back(links: Links) -> None:
    fields = b"connection: close\r\nkeep-alive: 5\r\ndate: today\r\nupgrade: h2\r\ncontent-length: 0"
    async with scripted(saying(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n\r\n")) as node:
        client = Client()
        await pass_on(links, node, client)
        assert client.headers == [(b"content-length", b"0")]


# --- Streams ----------------------------------------------------------------------------------------------------


async def test_a_stream_is_passed_back_as_it_comes(links: Links) -> None:
    goes_on = asyncio.Event()

    async def talk(wire: Wire) -> None:
        await wire.request()
        wire.write(ENDLESS + b"3\r\none\r\n")
        await goes_on.wait()
        wire.write(b"3\r\ntwo\r\n0\r\n\r\n")
        await wire.gone()

    async with scripted(talk) as node:
        client = Client()
        passing = asyncio.create_task(pass_on(links, node, client))
        await until(lambda: client.body == b"one")
        goes_on.set()
        await passing
        assert client.body == b"onetwo"


async def test_a_client_that_does_not_read_makes_the_other_node_wait(links: Links) -> None:
    total = 50 << 20
    written = 0

    async def talk(wire: Wire) -> None:
        nonlocal written
        await wire.request()
        wire.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        while written < total:
            wire.write(bytes(1 << 16))
            await wire.writer.drain()
            written += 1 << 16
        await wire.gone()

    async with scripted(talk) as node:
        client = Client()
        client.reads.clear()
        passing = asyncio.create_task(pass_on(links, node, client))
        await until(lambda: any(line._is_paused for line in links.lines._open.get("nod_b", ())))  # type: ignore[attr-defined]
        for _ in range(4 * total >> 16):
            await asyncio.sleep(0)
        # What the two kernels buffer, at the most.
        assert written < total // 2
        client.reads.set()
        await passing
        assert sum(len(message["body"]) for message in client.sent[1:]) == total
        assert max(len(message["body"]) for message in client.sent[1:]) < 1 << 20


async def test_a_node_that_does_not_read_makes_the_client_wait(links: Links) -> None:
    reads = asyncio.Event()
    pieces = 1_600
    arrived = 0

    async def talk(wire: Wire) -> None:
        nonlocal arrived
        await wire.reader.readuntil(b"\r\n\r\n")
        await reads.wait()
        while arrived < pieces << 16:
            arrived += len(await wire.reader.read(1 << 20))
        wire.write(OK)
        await wire.gone()

    async with scripted(talk) as node:
        client = Client(
            "POST", body=(bytes(1 << 16) for _ in range(pieces)), headers=[(b"content-length", b"104857600")]
        )
        passing = asyncio.create_task(pass_on(links, node, client))
        await until(lambda: any(not line._can_write.is_set() for line in links.lines._open.get("nod_b", ())))
        for _ in range(4 * pieces):
            await asyncio.sleep(0)
        assert client.taken < pieces // 2
        reads.set()
        await passing
        assert (client.taken, arrived, client.status) == (pieces, pieces << 16, 200)


async def test_an_answer_before_the_whole_request_is_passed_back_and_ends_the_connection(links: Links) -> None:
    async def talk(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        wire.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await wire.gone()

    async with scripted(talk) as node:
        client = Client("POST", body=[bytes(WHOLE_MAX_BYTES)], is_endless=True)
        await pass_on(links, node, client)
        assert (client.status, client.headers[-1]) == (413, (b"connection", b"close"))
        assert links.counts() == {}


# --- Clients that leave -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_begun", [True, False])
async def test_a_client_that_leaves_ends_the_request_there_too(links: Links, has_begun: bool) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def talk(wire: Wire) -> None:
        await wire.request()
        asked.set()
        if has_begun:
            wire.write(ENDLESS + b"1\r\nx\r\n")
        await wire.gone()
        left.set()

    async with scripted(talk) as node, asyncio.timeout(LIMIT_S):
        client = Client("POST")
        passing = asyncio.create_task(pass_on(links, node, client))
        await (client.has_heard if has_begun else asked).wait()
        client.has_left.set()
        await left.wait()
        with pytest.raises(ClientLeft):
            await passing


async def test_a_client_that_leaves_before_its_request_is_there_reaches_nobody(links: Links) -> None:
    async with scripted(Wire.gone) as node:
        client = Client("POST", body=[b"half"], is_endless=True)
        client.has_left.set()
        with pytest.raises(ClientLeft):
            await pass_on(links, node, client)
        assert node.connections == 0


async def test_a_client_that_leaves_in_the_middle_of_its_request_cuts_it_off(links: Links) -> None:
    left = asyncio.Event()

    async def talk(wire: Wire) -> None:
        await wire.gone()
        left.set()

    async with scripted(talk) as node, asyncio.timeout(LIMIT_S):
        client = Client("POST", body=[bytes(WHOLE_MAX_BYTES)], is_endless=True)
        passing = asyncio.create_task(pass_on(links, node, client))
        await until(lambda: node.connections == 1)
        client.has_left.set()
        await left.wait()
        with pytest.raises(ClientLeft):
            await passing


async def test_whoever_is_cancelled_ends_the_request_there_too(links: Links) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def talk(wire: Wire) -> None:
        await wire.request()
        asked.set()
        await wire.gone()
        left.set()

    async with scripted(talk) as node, asyncio.timeout(LIMIT_S):
        passing = asyncio.create_task(pass_on(links, node, Client("POST")))
        await asked.wait()
        passing.cancel()
        await left.wait()


async def test_a_request_that_cannot_be_read_is_told_and_ends_there_too(links: Links) -> None:
    left = asyncio.Event()

    async def talk(wire: Wire) -> None:
        await wire.gone()
        left.set()

    async with scripted(talk) as node, asyncio.timeout(LIMIT_S):
        client = Client("POST")

        async def receive() -> dict[str, Any]:
            raise RuntimeError("no request")

        with pytest.raises(RuntimeError, match="no request"):
            await links.forward(node.peer, client.scope, receive, client.send, client=CLIENT, body=b"")
        await left.wait()


# --- Nodes that fail --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
async def test_a_loss_before_the_answer_is_unreachable_if_it_may_be_repeated(links: Links, method: str) -> None:
    async with scripted(saying(b"")) as node:
        client = Client(method)
        with pytest.raises(NodeUnreachable):
            await pass_on(links, node, client)
        assert (client.sent, node.connections) == ([], 1)


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_a_loss_before_the_answer_is_an_unknown_outcome_if_it_may_not(links: Links, method: str) -> None:
    async with scripted(saying(b"")) as node:
        client = Client(method)
        with pytest.raises(OutcomeUnknown):
            await pass_on(links, node, client)
        assert (client.sent, node.connections) == ([], 1)


async def test_a_request_that_was_not_all_sent_did_nothing(links: Links) -> None:
    async def talk(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")

    async with scripted(talk) as node:
        client = Client("POST", body=[bytes(WHOLE_MAX_BYTES)], is_endless=True)
        with pytest.raises(NodeUnreachable):
            await pass_on(links, node, client)


async def lose_the_second(wire: Wire) -> None:
    """The first connection is lost with its second request; others answer."""
    await wire.request()
    wire.write(OK)
    await wire.request()
    if wire.number:
        wire.write(OK)


async def test_a_kept_connection_that_ends_unheard_is_no_loss_to_a_request_that_only_reads(links: Links) -> None:
    async with scripted(lose_the_second) as node:
        await links.ask(node.peer, "GET", b"/first")
        client = Client("GET")
        await pass_on(links, node, client)
        assert (client.body, node.connections) == (b"ok", 2)


@pytest.mark.parametrize(("method", "error"), [("POST", OutcomeUnknown), ("DELETE", NodeUnreachable)])
async def test_a_request_that_acts_is_never_sent_twice(links: Links, method: str, error: type[Exception]) -> None:
    async with scripted(lose_the_second) as node:
        await links.ask(node.peer, "GET", b"/first")
        with pytest.raises(error):
            await pass_on(links, node, Client(method))
        assert node.connections == 1


async def test_a_kept_connection_that_ends_in_the_middle_of_a_head_is_a_loss(links: Links) -> None:
    async with scripted(saying(OK, b"HTTP/1.1 2")) as node:
        await links.ask(node.peer, "GET", b"/first")
        with pytest.raises(NodeUnreachable):
            await pass_on(links, node, Client("GET"))
        assert node.connections == 1


async def test_a_request_is_sent_no_more_than_twice(links: Links) -> None:
    async def talk(wire: Wire) -> None:
        await wire.request()
        if not wire.number:
            wire.write(OK)
            await wire.request()

    async with scripted(talk) as node:
        await links.ask(node.peer, "GET", b"/first")
        with pytest.raises(NodeUnreachable):
            await pass_on(links, node, Client("GET"))
        assert node.connections == 2


@pytest.mark.parametrize(
    "half",
    [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", ENDLESS + b"4\r\nhalf\r\n", ENDLESS + b"4\r\nhalf\r\nzz"],
)
async def test_an_answer_that_ends_too_early_is_cut_short(links: Links, half: bytes) -> None:
    async with scripted(saying(half)) as node:
        client = Client()
        with pytest.raises(CutShort):
            await pass_on(links, node, client)
        assert (client.body, client.is_answered) == (b"half", False)


@pytest.mark.parametrize(
    "garbage", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 101 S\r\n\r\n", b"\x16\x03\x01"]
)
async def test_an_answer_that_is_none_is_a_loss_of_which_the_client_sees_nothing(links: Links, garbage: bytes) -> None:
    async with scripted(saying(garbage)) as node:
        client = Client("POST")
        with pytest.raises(OutcomeUnknown):
            await pass_on(links, node, client)
        assert client.sent == []


@pytest.mark.parametrize(("method", "error"), [("POST", OutcomeUnknown), ("GET", NodeUnreachable)])
@pytest.mark.parametrize("was_kept", [True, False])
async def test_nobody_waits_for_a_node_that_is_declared_dead(
    links: Links, method: str, error: type[Exception], was_kept: bool
) -> None:
    asked = asyncio.Event()

    async def talk(wire: Wire) -> None:
        if was_kept:
            await wire.request()
            wire.write(OK)
        await wire.request()
        asked.set()
        await wire.gone()

    async with scripted(talk) as node:
        if was_kept:
            await links.ask(node.peer, "GET", b"/first")
        passing = asyncio.create_task(pass_on(links, node, Client(method)))
        await asked.wait()
        links.drop("nod_b")
        with pytest.raises(error, match="declared dead"):
            await passing
        assert node.connections == 1


async def test_a_stream_from_a_node_that_is_declared_dead_is_cut_short(links: Links) -> None:
    async def talk(wire: Wire) -> None:
        await wire.request()
        wire.write(ENDLESS + b"1\r\nx\r\n")
        await wire.gone()

    async with scripted(talk) as node:
        client = Client()
        passing = asyncio.create_task(pass_on(links, node, client))
        await until(lambda: client.body == b"x")
        links.drop("nod_b")
        with pytest.raises(CutShort):
            await passing


# --- What is elsewhere ------------------------------------------------------------------------------------------


async def test_a_request_for_what_is_not_there_comes_back_with_its_body(links: Links) -> None:
    async with scripted(saying(MISDIRECTED, OK)) as node:
        client = Client("POST", body=[b"one", b"two"])
        with pytest.raises(Misdirected) as found:
            await pass_on(links, node, client)
        assert (found.value.body, found.value.peer, client.sent) == (b"onetwo", node.peer, [])
        await pass_on(links, node, client, body=found.value.body)
        assert (client.body, node.connections) == (b"ok", 1)


async def test_a_body_too_large_to_be_kept_has_to_be_sent_by_the_client_again(links: Links) -> None:
    async def talk(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        wire.write(MISDIRECTED)
        await wire.gone()

    async with scripted(talk) as node:
        client = Client("POST", body=[bytes(WHOLE_MAX_BYTES), b"more"])
        with pytest.raises(NodeUnreachable, match="just left"):
            await pass_on(links, node, client)
        assert client.sent == []


async def test_a_misdirected_answer_of_another_kind_is_just_an_answer(links: Links) -> None:
    async with scripted(saying(b"HTTP/1.1 421 Misdirected\r\ncontent-length: 0\r\n\r\n")) as node:
        client = Client()
        await pass_on(links, node, client)
        assert client.status == 421


# --- Questions --------------------------------------------------------------------------------------------------


async def test_a_question_is_answered(links: Links) -> None:
    async def talk(wire: Wire) -> None:
        head = await wire.request()
        assert b"host: 127.0.0.1:" in head
        assert b"x-extra: 1" in head
        wire.write(OK)
        await wire.gone()

    async with scripted(talk) as node:
        answer = await links.ask(node.peer, "POST", b"/internal?x=1", b"question", ((b"x-extra", b"1"),))
        assert (answer.status, answer.body) == (200, b"ok")


async def test_a_question_to_the_wrong_node_is_told(links: Links) -> None:
    async with scripted(saying(MISDIRECTED)) as node:
        with pytest.raises(Misdirected):
            await links.ask(node.peer, "GET", b"/x")


async def test_an_answer_that_is_too_long_is_not_read(links: Links) -> None:
    async def talk(wire: Wire) -> None:
        await wire.request()
        wire.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (100 * ANSWER_MAX_BYTES))
        for _ in range(100):
            wire.write(bytes(ANSWER_MAX_BYTES))
            await wire.writer.drain()

    async with scripted(talk) as node:
        with pytest.raises(NodeUnreachable, match="too long"):
            await links.ask(node.peer, "GET", b"/x")


async def test_whoever_gives_up_on_a_question_leaves_no_connection(links: Links) -> None:
    async with scripted(Wire.gone) as node:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await links.ask(node.peer, "GET", b"/x")
        assert links.counts() == {}
