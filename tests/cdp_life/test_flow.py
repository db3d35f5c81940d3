"""Messages of any size and shape: what passes keeps its bytes, what is not a message is refused, nothing piles up."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.server.conftest import Server

from tabherd.edge.cdp.message import CLIENT_ID_MAX, CLIENT_ID_MIN, JUDGED_MAX_BYTES, MESSAGE_MAX_BYTES
from tabherd.edge.cdp.tenant import FRAME_MAX_BYTES, MALFORMED_MAX

from .conftest import ws_of
from .raw_socket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, RawSocket, raw_socket
from .wire_client import CdpError, wire_client

pytestmark = [pytest.mark.server, pytest.mark.browser]

LARGE = 100_000_000
NO_MESSAGES = (
    *(b"", b"{", b"[]", b"null", b"{}", b'{"id":1}', b'{"method":"Browser.getVersion"}', b"[" * 100_000),
    *(b'{"id":"1","method":"Browser.getVersion"}', b'{"id":1.5,"method":"Browser.getVersion"}', b'{"id":1,"method":2}'),
    *(b'{"id":1,"method":"Browser.getVersion"} {}', b'{"id":1,/* a comment */"method":"Browser.getVersion"}'),
    *(b'{"id":1,"method":"Browser.getVersion",}', b'{"id":1,"method":"Browser.getVersion","sessionId":5}'),
    b'{"id":1,"method":"Browser.\xff"}',
)


@pytest.fixture
async def raw(server: Server, token: str) -> AsyncIterator[RawSocket]:
    async with raw_socket(ws_of(server), token) as raw:
        yield raw


# --- Size -------------------------------------------------------------------------------------------------------


async def test_a_message_above_the_limit_is_not_taken(raw: RawSocket) -> None:
    raw.announce(FRAME_MAX_BYTES + 1)
    assert (await raw.next_close()).close_code == 1009


async def test_neither_is_one_in_pieces(raw: RawSocket) -> None:
    raw.write(b" " * (MESSAGE_MAX_BYTES - 1), is_last=False)
    raw.write(b"  ", CONTINUATION)
    assert (await raw.next_close()).close_code == 1009


@pytest.mark.parametrize(("size", "cap"), [(10 << 20, MESSAGE_MAX_BYTES), (1 << 20, JUDGED_MAX_BYTES)])
async def test_a_message_that_would_take_long_to_read_is_refused_unread_and_its_client_goes_on(
    size: int, cap: int, server: Server, token: str
) -> None:
    async with wire_client(ws_of(server), token) as client:
        await client.connection.send(
            '{"id":77,"method":"Target.getTargets","params":{"x":[%s0]}}' % ("[]," * (size // 3))
        )
        with pytest.raises(CdpError, match=r"^-32000: body_too_large: ") as caught:
            await client.result(77)
        assert caught.value.data["details"]["cap"] == cap
        assert await client.pages()


async def test_what_is_rightly_large_arrives_whole_and_judged(server: Server, token: str) -> None:
    cookies = [{"name": f"c{n}", "value": "x" * 1_000, "url": "https://large.test/"} for n in range(100)]
    async with wire_client(ws_of(server), token) as client:
        _, page = await client.open_page("data:text/html,<p>" + "x" * 1_500_000)
        loaded = "new Promise((done) => document.readyState === 'complete' ? done() : addEventListener('load', done))"
        assert await client.value(f"{loaded}.then(() => document.body.innerText.length)", page) == 1_500_000
        await client.call("Storage.setCookies", {"cookies": cookies, "x": [[]] * 10})
        kept = (await client.call("Storage.getCookies"))["cookies"]
        assert {one["name"] for one in kept} == {one["name"] for one in cookies}
        with pytest.raises(CdpError, match="context"):
            await client.call("Storage.setCookies", {"cookies": cookies, "browserContextId": "EE" * 16})


async def test_a_client_that_reads_again_gets_all_of_it(server: Server, token: str) -> None:
    async with raw_socket(ws_of(server), token, receive_bytes=1 << 16) as slow:
        page = await slow.page()
        await slow.ask(3, "Runtime.enable", page)
        logging = "for (let n = 0; n < 20; n++) console.log(n, 'x'.repeat(1 << 20))"
        slow.say(4, "Runtime.evaluate", page, expression=logging)
        heard = []
        while len(heard) < 20:
            frame = await slow.read()
            message = json.loads(frame.payload) if frame.kind == TEXT else {}
            if message.get("method") == "Runtime.consoleAPICalled":
                heard.append(message["params"]["args"][0]["value"])
        assert heard == list(range(20))


@pytest.mark.soak
async def test_an_answer_of_a_hundred_megabytes_arrives_whole(server: Server, token: str) -> None:
    async with wire_client(ws_of(server), token) as client:
        page = await client.page()
        await client.call("Target.setDiscoverTargets", {"discover": True})
        # Events come right behind it, while the client is still busy reading.
        changing = "setInterval(() => document.title = Math.random(), 1)"
        value = await client.value(f"{changing}; '0123456789'.repeat({LARGE // 10})", page)
        assert value == "0123456789" * (LARGE // 10)


async def test_a_large_command_arrives_whole_and_before_what_comes_behind_it(server: Server, token: str) -> None:
    length = 5_000_000
    async with wire_client(ws_of(server), token) as client:
        page = await client.page()
        large = "0123456789" * (length // 10)
        sent = await client.send("Runtime.evaluate", {"expression": f"window.large = '{large}'; large.length"}, page)
        behind = [await client.send("Runtime.evaluate", {"expression": str(n)}, page) for n in range(50)]
        assert (await client.result(sent))["result"]["value"] == length
        assert [(await client.result(id))["result"]["value"] for id in behind] == list(range(50))
        assert await client.value("large === '0123456789'.repeat(large.length / 10)", page)


# --- Shape ------------------------------------------------------------------------------------------------------


async def test_parameters_keep_their_very_bytes(raw: RawSocket) -> None:
    page = await raw.page()
    # Escapes that no writer would choose, spaces, an unusual order and numbers as they are.
    params = b'{ "returnByValue" : true,\t"expression":"\\u0027\\u0061\\/\\ud83d\\ude00\\u00e9\\u0027 + String(1E2)" }'
    raw.write(b'{"params":%b,"sessionId":"%b","method":"Runtime.evaluate","id":9}' % (params, page.encode()))
    assert (await raw.hear(9))["result"]["result"]["value"] == "a/\U0001f600\u00e9100"


async def test_the_last_of_two_of_a_name_is_the_one_that_is_judged_and_sent(raw: RawSocket) -> None:
    raw.write(b'{"id":9,"method":"Browser.getVersion","method":"Browser.crash"}')
    assert "policy_denied" in (await raw.hear(9))["error"]["message"]
    raw.write(b'{"id":10,"method":"Browser.crash","m\\u0065thod":"Browser.getVersion"}')
    assert "product" in (await raw.hear(10))["result"]
    raw.write(b'{"id":11,"method":"Target.createTarget","params":{"url":"about:blank","url":"file:///etc/passwd"}}')
    assert "error" in await raw.hear(11)


async def test_what_is_no_message_is_refused_and_no_more_until_it_is_too_much(raw: RawSocket) -> None:
    for text in NO_MESSAGES:
        raw.write(text)
        refused = json.loads((await raw.read()).payload)
        assert refused["error"]["code"] == -32700, text[:99]
        assert "id" not in refused
        assert "product" in (await raw.ask(2, "Browser.getVersion"))["result"]
    for _ in range(MALFORMED_MAX + 1):
        raw.write(b"GET / HTTP/1.1")
    assert (await raw.next_close()).close_code == 1002


async def test_ids_methods_and_parameters_are_those_that_chromium_takes(raw: RawSocket) -> None:
    for id in (0, -9999, CLIENT_ID_MAX, CLIENT_ID_MIN):
        assert "product" in (await raw.ask(id, "Browser.getVersion"))["result"], id
    for id in (CLIENT_ID_MAX + 1, CLIENT_ID_MIN - 1, -(1 << 31), 1 << 60):
        assert (await raw.ask(id, "Browser.getVersion"))["error"]["code"] == -32600, id
    for method in ("", "Browser", "Browser.get Version", 'Page.x","id":5,"y":"', "A" * 200 + ".b", "é.e"):
        assert (await raw.ask(9, method))["error"]["code"] == -32601, method
    for params in (b"[]", b"null", b'"x"', b"5", b'{"targetId":{"a":[1]}}', b'{"targetId":null}'):
        raw.write(b'{"id":9,"method":"Target.closeTarget","params":%b}' % params)
        assert "error" in await raw.hear(9), params
    assert "product" in (await raw.ask(10, "Browser.getVersion"))["result"]


async def test_a_session_of_nobody_or_of_another_client_is_said_to_be_unknown(server: Server, token: str) -> None:
    async with wire_client(ws_of(server), token) as client, wire_client(ws_of(server), server.token_of("bob")) as other:
        theirs = await other.page()
        for session_id in (theirs, "0123456789ABCDEF0123456789ABCDEF", "x", "x" * 1000):
            with pytest.raises(CdpError) as caught:
                await client.call("Runtime.evaluate", {"expression": "1"}, session_id)
            assert caught.value.code == -32001


# --- Frames -----------------------------------------------------------------------------------------------------


async def test_a_message_in_pieces_is_put_together_and_a_close_is_answered(raw: RawSocket) -> None:
    raw.write(b'{"id":9,"method":"Bro', is_last=False)
    raw.write(b"between", PING)
    raw.write(b"wser.get", CONTINUATION, is_last=False)
    raw.write(b'Version"}', CONTINUATION)
    pong = await raw.read()
    assert (pong.kind, pong.payload) == (PONG, b"between")
    assert "product" in (await raw.hear(9))["result"]
    raw.write((1000).to_bytes(2, "big"), CLOSE)
    assert (await raw.next_close()).close_code == 1000


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
