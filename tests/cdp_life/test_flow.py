"""Messages of any size and shape: what passes keeps its bytes, what is not a message is refused, nothing piles up."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import psutil
import pytest
from tests.server.conftest import Server, open_session, with_settings

from tabherd.edge.cdp.message import CLIENT_ID_MAX, CLIENT_ID_MIN
from tabherd.edge.cdp.tenant import MALFORMED_MAX

from .conftest import SETTINGS, ws_of
from .raw_socket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, RawSocket, raw_socket
from .wire_client import CdpError, WireClient, wire_client

pytestmark = [pytest.mark.server, pytest.mark.browser]

MB = 1 << 20
LARGE = 100_000_000
# Much more than a client that does not read is kept, as fast as it goes.
FLOOD = "setInterval(() => { for (let n = 0; n < 8; n++) console.log('x'.repeat(1 << 20)) }, 5); 1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that does not take a browser for dead that is busy with a large message.

    Of this module alone, and what is large passes last in it: a server that has grown once would hide that it grows.
    """
    settings = SETTINGS | {"POOLS__DEFAULT__PROBE_LIMIT_MS": "60000"}
    with with_settings(tmp_path_factory.mktemp("patient") / "state", settings) as server:
        yield server


@pytest.fixture(scope="module")
def token(server: Server) -> str:
    return server.token_of("ada")


@pytest.fixture(scope="module")
def home(server: Server, token: str) -> str:
    """The address of a session that outlives its connections: what is said on one does not ask for a browser anew."""
    with server.client(token) as client:
        session = open_session(client, keepAlive=True)
    return ws_of(server, f"session={session['sessionId']}")


@pytest.fixture
async def client(home: str, token: str) -> AsyncIterator[WireClient]:
    async with wire_client(home, token) as client:
        yield client


@pytest.fixture
async def raw(home: str, token: str) -> AsyncIterator[RawSocket]:
    async with raw_socket(home, token) as raw:
        yield raw


def memory_of(server: Server) -> int:
    resident: int = psutil.Process(server.record["pid"]).memory_info().rss
    return resident


# --- Size -------------------------------------------------------------------------------------------------------


async def test_a_message_above_the_limit_is_not_taken(raw: RawSocket) -> None:
    raw.announce((256 << 20) + 1)
    assert (await raw.next_close()).close_code == 1009


async def test_a_client_that_does_not_read_costs_little_and_slows_nobody(server: Server, token: str) -> None:
    async with (
        wire_client(ws_of(server), token) as neighbour,
        raw_socket(ws_of(server), token, receive_bytes=1 << 16) as stuck,
    ):
        theirs, page = await neighbour.page(), await stuck.page()
        await stuck.ask(3, "Runtime.enable", page)
        before = memory_of(server)
        stuck.say(4, "Runtime.evaluate", page, expression=FLOOD)
        grown = 0
        for number in range(300):
            assert await neighbour.value(f"{number} + 1", theirs) == number + 1
            grown = max(grown, memory_of(server) - before)
        assert grown < 64 * MB


async def test_a_client_that_reads_again_gets_all_of_it(server: Server, token: str) -> None:
    async with raw_socket(ws_of(server), token, receive_bytes=1 << 16) as slow:
        page = await slow.page()
        await slow.ask(3, "Runtime.enable", page)
        slow.say(
            4, "Runtime.evaluate", page, expression="for (let n = 0; n < 30; n++) console.log(n, 'x'.repeat(1 << 20))"
        )
        heard = []
        while len(heard) < 30:
            frame = await slow.read()
            message = json.loads(frame.payload) if frame.kind == TEXT else {}
            if message.get("method") == "Runtime.consoleAPICalled":
                heard.append(message["params"]["args"][0]["value"])
        assert heard == list(range(30))


async def test_an_answer_of_a_hundred_megabytes_arrives_whole(server: Server) -> None:
    async with wire_client(ws_of(server), server.admin_token) as client:
        page = await client.page()
        await client.call("Target.setDiscoverTargets", {"discover": True})
        # Events come right behind it, while the client is still busy reading.
        changing = "setInterval(() => document.title = Math.random(), 1)"
        value = await client.value(f"{changing}; '0123456789'.repeat({LARGE // 10})", page)
        assert value == "0123456789" * (LARGE // 10)


async def test_a_command_of_a_hundred_megabytes_arrives_whole(server: Server) -> None:
    async with wire_client(ws_of(server), server.admin_token) as client:
        page = await client.page()
        large = "0123456789" * (LARGE // 10)
        sent = await client.send("Runtime.evaluate", {"expression": f"window.large = '{large}'; large.length"}, page)
        behind = [await client.send("Runtime.evaluate", {"expression": str(n)}, page) for n in range(50)]
        assert (await client.result(sent))["result"]["value"] == LARGE
        assert [(await client.result(id))["result"]["value"] for id in behind] == list(range(50))
        assert await client.value("large === '0123456789'.repeat(large.length / 10)", page)


# --- Shape ------------------------------------------------------------------------------------------------------


async def test_parameters_keep_their_very_bytes(raw: RawSocket) -> None:
    page = await raw.page()
    # Escapes that no writer would choose, spaces, an unusual order and numbers as they are.
    params = b'{ "returnByValue" : true,\t"expression":"\\u0027\\u0061\\/\\ud83d\\ude00\\u00e9\\u0027 + String(1E2)" }'
    raw.write(b'{"params":%b,"sessionId":"%b","method":"Runtime.evaluate","id":9}' % (params, page.encode()))
    assert (await raw.hear(9))["result"]["result"]["value"] == "a/\U0001f600\u00e9100"


async def test_the_last_of_two_methods_is_the_one_that_is_judged_and_sent(raw: RawSocket) -> None:
    raw.write(b'{"id":9,"method":"Browser.getVersion","method":"Browser.crash"}')
    assert "policy_denied" in (await raw.hear(9))["error"]["message"]
    raw.write(b'{"id":10,"method":"Browser.crash","m\\u0065thod":"Browser.getVersion"}')
    assert "product" in (await raw.hear(10))["result"]


async def test_the_last_of_two_parameters_is_the_one_that_is_judged_and_sent(raw: RawSocket) -> None:
    raw.write(b'{"id":9,"method":"Target.createTarget","params":{"url":"about:blank","url":"file:///etc/passwd"}}')
    assert "error" in await raw.hear(9)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"id":1}',
        b'{"method":"Browser.getVersion"}',
        b'{"id":"1","method":"Browser.getVersion"}',
        b'{"id":1.5,"method":"Browser.getVersion"}',
        b'{"id":1,"method":2}',
        b'{"id":1,"method":"Browser.getVersion"} {}',
        b'{"id":1,/* a comment */"method":"Browser.getVersion"}',
        b'{"id":1,"method":"Browser.getVersion",}',
        b'{"id":1,"method":"Browser.getVersion","sessionId":5}',
        b'{"id":1,"method":"Browser.\xff"}',
        b"[" * 100_000,
    ],
)
async def test_what_is_no_message_is_refused_and_no_more(text: bytes, raw: RawSocket) -> None:
    raw.write(text)
    refused = json.loads((await raw.read()).payload)
    assert refused["error"]["code"] == -32700
    assert "id" not in refused
    assert "product" in (await raw.ask(2, "Browser.getVersion"))["result"]


async def test_who_sends_no_messages_at_all_is_cut_off(raw: RawSocket) -> None:
    for _ in range(MALFORMED_MAX + 1):
        raw.write(b"GET / HTTP/1.1")
    assert (await raw.next_close()).close_code == 1002


@pytest.mark.parametrize("id", [0, -9999, CLIENT_ID_MAX, CLIENT_ID_MIN])
async def test_any_id_that_chromium_takes_is_taken(id: int, raw: RawSocket) -> None:
    assert "product" in (await raw.ask(id, "Browser.getVersion"))["result"]


@pytest.mark.parametrize("id", [CLIENT_ID_MAX + 1, CLIENT_ID_MIN - 1, -(1 << 31), 1 << 60])
async def test_ids_that_are_ours_or_that_nobody_has_are_refused(id: int, raw: RawSocket) -> None:
    assert (await raw.ask(id, "Browser.getVersion"))["error"]["code"] == -32600


async def test_an_unknown_session_is_said_to_be_unknown(client: WireClient, server: Server) -> None:
    for session_id in ("0123456789ABCDEF0123456789ABCDEF", "x", "x" * 1000):
        with pytest.raises(CdpError) as caught:
            await client.call("Runtime.evaluate", {"expression": "1"}, session_id)
        assert caught.value.code == -32001


async def test_a_session_of_another_client_is_unknown(client: WireClient, server: Server, bob: httpx.Client) -> None:
    theirs = await client.page()
    token = str(bob.headers["Authorization"]).removeprefix("Bearer ")
    async with wire_client(ws_of(server), token) as other:
        with pytest.raises(CdpError) as caught:
            await other.call("Runtime.evaluate", {"expression": "1"}, theirs)
        assert caught.value.code == -32001


@pytest.mark.parametrize(
    "method", ["", "Browser", "Browser.get Version", 'Page.x","id":5,"y":"', "A" * 200 + ".b", "é.e"]
)
async def test_a_method_with_an_impossible_name_is_not_found(method: str, raw: RawSocket) -> None:
    assert (await raw.ask(9, method))["error"]["code"] == -32601


@pytest.mark.parametrize("params", [b"[]", b"null", b'"x"', b"5", b'{"targetId":{"a":[1]}}', b'{"targetId":null}'])
async def test_parameters_of_a_wrong_shape_are_refused(params: bytes, raw: RawSocket) -> None:
    raw.write(b'{"id":9,"method":"Target.closeTarget","params":%b}' % params)
    assert "error" in await raw.hear(9)
    assert "product" in (await raw.ask(10, "Browser.getVersion"))["result"]


# --- Frames -----------------------------------------------------------------------------------------------------


async def test_a_message_in_pieces_is_put_together(raw: RawSocket) -> None:
    raw.write(b'{"id":9,"method":"Bro', is_last=False)
    raw.write(b"between", PING)
    raw.write(b"wser.get", CONTINUATION, is_last=False)
    raw.write(b'Version"}', CONTINUATION)
    pong = await raw.read()
    assert (pong.kind, pong.payload) == (PONG, b"between")
    assert "product" in (await raw.hear(9))["result"]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"payload": b"{}", "kind": BINARY}, 1003),
        ({"payload": b"{}", "reserved": 4}, 1002),
        ({"payload": b"{}", "kind": CONTINUATION}, 1002),
    ],
)
async def test_frames_that_are_not_text_close_the_socket(frame: dict[str, Any], code: int, raw: RawSocket) -> None:
    raw.write(**frame)
    assert (await raw.next_close()).close_code == code


async def test_a_close_is_answered(raw: RawSocket) -> None:
    raw.write((1000).to_bytes(2, "big"), CLOSE)
    assert (await raw.next_close()).close_code == 1000
