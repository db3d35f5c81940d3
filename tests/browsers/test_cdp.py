"""The CDP client against a peer that misbehaves in every way one can."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from picows import WSMsgType

from tabherd.browsers import cdp
from tabherd.browsers.cdp import CdpConnection
from tabherd.browsers.port import BrowserGone, CdpFailure, TabGone

from .fake_cdp import FakeBrowser, connected, echo, silent


async def test_a_call_gets_its_own_answer_when_answers_come_in_another_order() -> None:
    held: list[dict[str, Any]] = []

    def backwards(browser: FakeBrowser, message: dict[str, Any]) -> None:
        held.append(message)
        if len(held) == 3:
            for one in reversed(held):
                echo(browser, one)

    async with connected(backwards) as (connection, _):
        answers = await asyncio.gather(*(connection.call(f"A.{number}", {"n": number}) for number in range(3)))
    assert answers == [{"method": f"A.{number}", "n": number} for number in range(3)]


async def test_a_call_of_a_session_carries_its_id() -> None:
    async with connected(echo) as (connection, browser):
        await connection.session("S1").call("Page.enable")
        assert (await browser.received.get())["sessionId"] == "S1"


async def test_a_refusal_is_a_cdp_failure_with_its_code_and_data() -> None:
    def refuse(browser: FakeBrowser, message: dict[str, Any]) -> None:
        browser.say({"id": message["id"], "error": {"code": -32602, "message": "Invalid", "data": "url: missing"}})

    async with connected(refuse) as (connection, _):
        with pytest.raises(CdpFailure, match="Invalid: url: missing") as caught:
            await connection.call("Page.navigate")
    assert (caught.value.code, caught.value.method) == (-32602, "Page.navigate")


async def test_a_call_that_failed_keeps_nothing_of_its_caller() -> None:
    def refuse(browser: FakeBrowser, message: dict[str, Any]) -> None:
        browser.say({"id": message["id"], "error": {"code": -32602, "message": "Invalid"}})

    class InHand:
        """What a caller has in hand meanwhile, a session say."""

    async def fail(connection: CdpConnection) -> weakref.ref[InHand]:
        in_hand = InHand()
        try:
            await connection.call("Page.navigate")
        except CdpFailure:
            return weakref.ref(in_hand)
        raise AssertionError("it was refused")

    async with connected(refuse) as (connection, _):
        kept = [await fail(connection) for _ in range(3)]
        # The loop is still at the step that woke the last of them.
        await asyncio.sleep(0)
        gc.collect()
        assert [one() for one in kept] == [None] * 3


async def test_a_session_that_chromium_does_not_know_is_a_tab_that_is_gone() -> None:
    def refuse(browser: FakeBrowser, message: dict[str, Any]) -> None:
        browser.say({"id": message["id"], "error": {"code": -32001, "message": "Session with given id not found."}})

    async with connected(refuse) as (connection, _):
        with pytest.raises(TabGone) as caught:
            await connection.session("S1").call("Page.enable")
    assert caught.value.was_sent is False


async def test_a_cancelled_caller_leaves_nothing_behind_and_its_late_answer_is_ignored() -> None:
    def slow(browser: FakeBrowser, message: dict[str, Any]) -> None:
        if message["method"] != "Slow":
            browser.say({"id": message["id"] - 1, "result": {"late": True}})
            echo(browser, message)

    async with connected(slow) as (connection, browser):
        caller = asyncio.create_task(connection.call("Slow"))
        await browser.received.get()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert connection.calls_waiting == 0
        assert await connection.call("Next") == {"method": "Next"}


async def test_an_answer_that_meets_the_cancellation_of_its_caller_is_ignored() -> None:
    async with connected(silent) as (connection, browser):
        caller = asyncio.create_task(connection.call("Slow"))
        message = await browser.received.get()
        caller.cancel()
        # The task has not run since: its call is still on the books when the answer is handled.
        connection._receive(b'{"id":%d,"result":{}}' % message["id"])
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert not connection.is_closed


async def test_a_fragmented_message_is_put_together() -> None:
    def in_pieces(browser: FakeBrowser, message: dict[str, Any]) -> None:
        browser.say_raw(b'{"id":%d,"res' % message["id"], fin=False)
        browser.say_raw(b'ult":{"whole"', WSMsgType.CONTINUATION, fin=False)
        browser.say_raw(b":true}}", WSMsgType.CONTINUATION)

    async with connected(in_pieces) as (connection, _):
        assert await connection.call("A.b") == {"whole": True}
        assert await connection.call("A.b") == {"whole": True}


async def test_fragments_above_the_limit_end_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdp, "MESSAGE_MAX_BYTES", 1000)

    def too_much(browser: FakeBrowser, _: dict[str, Any]) -> None:
        browser.say_raw(b"x" * 600, fin=False)
        browser.say_raw(b"x" * 600, WSMsgType.CONTINUATION, fin=False)

    async with connected(too_much) as (connection, _):
        with pytest.raises(BrowserGone, match="size limit"):
            await connection.call("A.b")


async def test_a_message_of_thirty_megabytes_passes() -> None:
    def much(browser: FakeBrowser, message: dict[str, Any]) -> None:
        browser.say({"id": message["id"], "result": {"data": "x" * (30 << 20)}})

    async with connected(much) as (connection, _):
        assert len((await connection.call("A.b"))["data"]) == 30 << 20


@pytest.mark.parametrize("garbage", [b"not json", b'{"id":"one"}', b"[1,2]", b'{"id":1,"result":"\xff"}', b""])
async def test_a_peer_that_does_not_speak_cdp_is_hung_up_on(garbage: bytes) -> None:
    def babble(browser: FakeBrowser, _: dict[str, Any]) -> None:
        browser.say_raw(garbage)

    async with connected(babble) as (connection, _):
        with pytest.raises(BrowserGone, match="not CDP") as caught:
            await connection.call("A.b")
        assert caught.value.was_sent is True


@pytest.mark.parametrize("half", [b"\\ud800", b"\\udc00", b"\\ud800x and more text after it", b"\xed\xa0\x80"])
async def test_half_a_surrogate_pair_in_an_answer_or_event_is_mended(half: bytes) -> None:
    def answer(browser: FakeBrowser, message: dict[str, Any]) -> None:
        browser.say_raw(b'{"method":"Page.title","params":{"title":"a %s"},"sessionId":"S1"}' % half)
        browser.say_raw(b'{"id":%d,"result":{"value":"a %s"}}' % (message["id"], half))

    async with connected(answer) as (connection, _):
        heard: list[Any] = []
        connection.listen("S1", "Page.title", heard.append)
        assert (await connection.call("Runtime.evaluate"))["value"].startswith("a \ufffd")
        assert heard[0]["title"].startswith("a \ufffd")


async def test_a_peer_that_breaks_the_websocket_protocol_ends_every_call() -> None:
    def break_it(browser: FakeBrowser, _: dict[str, Any]) -> None:
        browser.transport.underlying_transport.write(b"\xff\xff\xff\xff\xff\xff")

    async with connected(break_it) as (connection, _):
        with pytest.raises(BrowserGone):
            await connection.call("A.b")


@pytest.mark.parametrize("end", [FakeBrowser.hang_up, lambda browser: browser.transport.send_close()])
async def test_when_the_socket_dies_every_waiting_call_fails_as_sent(end: Any) -> None:
    async with connected(silent) as (connection, browser):
        callers = [asyncio.create_task(connection.call("Slow", {}, f"S{number}")) for number in range(5)]
        for _ in callers:
            await browser.received.get()
        end(browser)
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [BrowserGone] * 5
        assert all(outcome.was_sent for outcome in outcomes if isinstance(outcome, BrowserGone))
        assert connection.calls_waiting == 0


async def test_after_the_end_calls_fail_at_once_as_not_sent_and_posts_are_harmless() -> None:
    async with connected(silent) as (connection, browser):
        browser.hang_up()
        assert await connection.wait_closed() == "The browser closed the connection."
        with pytest.raises(BrowserGone) as caught:
            await connection.call("A.b")
        assert caught.value.was_sent is False
        with pytest.raises(BrowserGone):
            connection.expect("something")
        connection.post("A.b")


async def test_abort_settles_every_call_with_the_reason_before_it_returns() -> None:
    async with connected(silent) as (connection, browser):
        caller = asyncio.create_task(connection.call("Slow"))
        await browser.received.get()
        connection.abort("Chromium was killed.")
        assert connection.calls_waiting == 0
        with pytest.raises(BrowserGone, match="Chromium was killed"):
            await caller


async def test_closing_twice_is_fine_and_keeps_the_first_reason() -> None:
    async with connected(silent) as (connection, _):
        await asyncio.gather(connection.close(), connection.close())
        await connection.close()
        assert await connection.wait_closed() == "The connection was closed by tabherd."


async def test_nobody_at_the_address_is_a_browser_that_is_gone() -> None:
    with pytest.raises(BrowserGone, match="Cannot connect"):
        await CdpConnection.connect("ws://127.0.0.1:1/devtools/browser/x")


async def test_a_browser_that_is_lost_in_the_middle_of_the_handshake_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    # picows says that it has opened a socket whose connection was lost before the answer to its upgrade.
    async def lost(*_: Any, **__: Any) -> tuple[Any, Any]:
        return None, None

    monkeypatch.setattr(cdp, "ws_connect", lost)
    with pytest.raises(BrowserGone, match="handshake") as gone:
        await CdpConnection.connect("ws://127.0.0.1:1/devtools/browser/x")
    assert not gone.value.was_sent


async def test_a_listener_hears_its_method_in_its_session_until_stopped() -> None:
    async with connected(echo) as (connection, browser):
        heard: list[Any] = []
        stop = connection.listen("S1", "Page.load", heard.append)
        for session_id, method in (("S1", "Page.load"), ("S2", "Page.load"), ("S1", "Page.other"), ("", "Page.load")):
            browser.emit(method, session_id, n=session_id)
        await connection.call("Sync")
        stop()
        browser.emit("Page.load", "S1", n="late")
        await connection.call("Sync")
        assert heard == [{"n": "S1"}]


async def test_a_listener_that_raises_harms_neither_the_next_listener_nor_the_connection() -> None:
    async with connected(echo) as (connection, browser):
        heard: list[Any] = []

        def broken(_: object) -> None:
            raise RuntimeError("a bug")

        connection.listen("S1", "Page.load", broken)
        connection.listen("S1", "Page.load", heard.append)
        browser.emit("Page.load", "S1")
        assert await connection.call("Sync") == {"method": "Sync"}
        assert heard == [{}]


async def test_a_listener_may_stop_itself_while_it_is_called() -> None:
    async with connected(echo) as (connection, browser):
        heard: list[str] = []
        stops: list[Any] = []

        def once(_: object) -> None:
            heard.append("once")
            stops[0]()

        stops.append(connection.listen("S1", "Page.load", once))
        connection.listen("S1", "Page.load", lambda _: heard.append("always"))
        browser.emit("Page.load", "S1")
        browser.emit("Page.load", "S1")
        await connection.call("Sync")
        assert heard == ["once", "always", "always"]


async def test_a_detached_session_takes_its_calls_and_expectations_with_it_and_no_others() -> None:
    async with connected(silent) as (connection, browser):
        own = asyncio.create_task(connection.session("S1").call("Slow"))
        others = asyncio.create_task(connection.session("S2").call("Slow"))
        expected = connection.expect("a load", "S1")
        await browser.received.get()
        await browser.received.get()
        browser.emit("Target.detachedFromTarget", sessionId="S1")
        with pytest.raises(TabGone, match="was closed during Slow") as caught:
            await own
        assert caught.value.was_sent is True
        with pytest.raises(TabGone):
            await expected
        assert not others.done()
        others.cancel()


async def test_a_crashed_page_fails_its_calls_at_once_and_later_ones_without_sending_them() -> None:
    async with connected(silent) as (connection, browser):
        tab = connection.session("S1")
        waiting = asyncio.create_task(tab.call("Runtime.evaluate"))
        await browser.received.get()
        browser.emit("Inspector.targetCrashed", "S1")
        with pytest.raises(TabGone, match="crashed during Runtime"):
            await waiting
        with pytest.raises(TabGone) as caught:
            await tab.call("Runtime.evaluate")
        assert caught.value.was_sent is False
        assert browser.received.empty()


async def test_an_expectation_is_settled_by_its_owner_and_leaves_nothing_behind() -> None:
    async with connected(silent) as (connection, browser):
        expected = connection.expect("a load", "S1")
        connection.listen("S1", "Page.load", lambda _: expected.set_result("loaded"))
        browser.emit("Page.load", "S1")
        assert await expected == "loaded"
        assert connection.calls_waiting == 0


async def test_an_expectation_fails_when_the_browser_goes_first() -> None:
    async with connected(silent) as (connection, browser):
        expected = connection.expect("a load", "S1")
        browser.hang_up()
        with pytest.raises(BrowserGone):
            await expected


async def test_an_expectation_that_fails_unseen_is_no_complaint_of_the_loop() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
    async with connected(silent) as (connection, browser):
        connection.expect("the first of two", "S1")
        browser.hang_up()
        await connection.wait_closed()
    gc.collect()
    assert complaints == []


async def _fill_socket(connection: CdpConnection, browser: FakeBrowser) -> list[asyncio.Task[dict[str, Any]]]:
    """Calls to a peer that does not read, until one of them has to wait for the socket."""
    browser.transport.underlying_transport.pause_reading()
    callers: list[asyncio.Task[dict[str, Any]]] = []
    while not connection._unsent:
        assert len(callers) < 100
        callers.append(asyncio.create_task(connection.call("Big", {"n": len(callers), "pad": "x" * (1 << 20)})))
        await asyncio.sleep(0)
    return callers


async def test_under_backpressure_messages_wait_and_then_leave_in_order() -> None:
    def count(browser: FakeBrowser, message: dict[str, Any]) -> None:
        browser.say({"id": message["id"], "result": {"n": message.get("params", {}).get("n")}})

    async with connected(count) as (connection, browser):
        callers = await _fill_socket(connection, browser)
        last = asyncio.create_task(connection.call("Last", {"n": "last"}))
        await asyncio.sleep(0)
        connection.post("Posted")
        browser.transport.underlying_transport.resume_reading()
        assert [(await caller)["n"] for caller in callers] == list(range(len(callers)))
        assert (await last)["n"] == "last"
        await connection.call("Sync")
        order = [browser.received.get_nowait()["method"] for _ in range(browser.received.qsize())]
        assert order[-3:] == ["Last", "Posted", "Sync"]


async def test_a_call_that_still_waited_for_the_socket_fails_as_not_sent() -> None:
    async with connected(silent) as (connection, browser):
        callers = await _fill_socket(connection, browser)
        connection.abort("gone")
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        sent = [outcome.was_sent for outcome in outcomes if isinstance(outcome, BrowserGone)]
        assert sent[0] is True
        assert sent[-1] is False


async def test_a_cancelled_caller_that_still_waited_for_the_socket_has_its_message_withdrawn() -> None:
    async with connected(echo) as (connection, browser):
        callers = await _fill_socket(connection, browser)
        withdrawn = callers.pop()
        withdrawn.cancel()
        browser.transport.underlying_transport.resume_reading()
        await asyncio.gather(*callers)
        await connection.call("Sync")
        seen = [browser.received.get_nowait() for _ in range(browser.received.qsize())]
        assert [message["method"] for message in seen].count("Big") == len(callers)


async def test_what_waits_for_the_socket_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdp, "UNSENT_MAX_BYTES", 2 << 20)
    async with connected(silent) as (connection, browser):
        callers = await _fill_socket(connection, browser)
        waiting = connection.calls_waiting
        with pytest.raises(CdpFailure, match="as fast as they come"):
            await connection.call("Big", {"pad": "x" * (3 << 20)})
        assert connection.calls_waiting == waiting
        connection.abort("gone")
        await asyncio.gather(*callers, return_exceptions=True)
