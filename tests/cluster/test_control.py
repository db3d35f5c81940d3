"""The control channel across nodes: what is elsewhere is done there, answered once, and released with its client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.edge.control_house import Client, client, until

from tabherd.core.model import changed

from .control_nodes import ControlNode, introduce, nodes_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def pair() -> AsyncIterator[list[ControlNode]]:
    """To start a server takes longer than most of these tests."""
    async with nodes_of(2) as nodes:
        yield nodes


@pytest.fixture
def nodes(pair: list[ControlNode]) -> list[ControlNode]:
    """As if nothing had happened on them."""
    introduce(pair)
    for node in pair:
        node.pages.begun.clear()
    return pair


@pytest.fixture
def here(nodes: list[ControlNode]) -> ControlNode:
    """The node that the client is connected to."""
    return nodes[0]


@pytest.fixture
def there(nodes: list[ControlNode]) -> ControlNode:
    """The node that has the tab."""
    return nodes[1]


@pytest_asyncio.fixture(loop_scope="module")
async def ada(here: ControlNode) -> AsyncIterator[Client]:
    async with client(here, await here.token("ada"), controllerId="hand") as speaker:  # type: ignore[arg-type]
        yield speaker


async def test_a_command_for_a_tab_of_another_node_is_run_there(there: ControlNode, ada: Client) -> None:
    tab_id = await there.open_tab()
    answer = await ada.answer(await ada.run(tab_id, "hello"))
    assert (answer["messageType"], answer["payload"]["result"]) == ("result", "hello")
    assert there.pages.begun == ["hello"]


async def test_what_happens_to_it_is_told_with_its_request(there: ControlNode, ada: Client) -> None:
    tab_id = await there.open_tab()
    request_id = await ada.run(tab_id, "hello")
    event = await ada.next(lambda message: message["messageType"] == "event" and message.get("requestId") == request_id)
    assert event["payload"]["type"] == "routed"


async def test_an_error_comes_back_as_it_is(there: ControlNode, ada: Client) -> None:
    tab_id = await there.open_tab()
    answer = await ada.ask("tab_unlock", {"tabSessionId": tab_id, "ticket": "tkt_none"})
    assert (answer["messageType"], answer["payload"]["code"]) == ("error", "lock_not_found")


async def test_another_agents_tab_is_not_found_on_any_node(there: ControlNode, ada: Client) -> None:
    tab_id = await there.open_tab("bob")
    answer = await ada.answer(await ada.run(tab_id, "hello"))
    assert answer["payload"]["code"] == "tab_not_found"


async def test_a_tab_of_nobody_is_not_found(ada: Client) -> None:
    answer = await ada.answer(await ada.run("tab_none", "hello"))
    assert answer["payload"]["code"] == "tab_not_found"


async def test_no_two_messages_have_the_same_nonce(here: ControlNode, there: ControlNode, ada: Client) -> None:
    tabs = [await node.open_tab() for node in (here, there)]
    answers = [await ada.answer(await ada.run(tab_id, "x")) for tab_id in tabs * 3]
    nonces = [message["nonce"] for message in (*answers, *ada.inbox)]
    assert len(nonces) == len(set(nonces))


async def test_commands_for_one_tab_keep_their_order(there: ControlNode, ada: Client) -> None:
    tab_id = await there.open_tab()
    fields = {"waitPolicy": "wait_with_timeout"}
    requests = [await ada.run(tab_id, f"e{number}", **fields) for number in range(8)]
    for request_id in requests:
        assert (await ada.answer(request_id))["messageType"] == "result"
    assert there.pages.begun == [f"e{number}" for number in range(8)]


async def test_all_requests_share_one_connection_to_the_node(there: ControlNode, ada: Client) -> None:
    tabs = [await there.open_tab() for _ in range(3)]
    # Those of clients that have left meanwhile close by themselves.
    await until(lambda: there.sockets() == [])
    for tab_id in tabs:
        await ada.answer(await ada.run(tab_id, "x"))
    assert len(there.sockets()) == 1


async def test_a_tab_lock_is_taken_renewed_and_given_back_on_another_node(there: ControlNode, ada: Client) -> None:
    tab_id = await there.open_tab()
    lock = (await ada.ask("tab_lock", {"tabSessionId": tab_id}))["payload"]
    assert there.tab(tab_id).gate.tab_lock is not None
    renewed = await ada.ask("tab_renew", {"tabSessionId": tab_id, "ticket": lock["ticket"]})
    assert renewed["payload"]["ticket"] == lock["ticket"]
    released = await ada.ask("tab_unlock", {"tabSessionId": tab_id, "ticket": lock["ticket"]})
    assert released["messageType"] == "result"
    assert there.tab(tab_id).gate.tab_lock is None


async def test_events_of_a_lock_on_another_node_are_heard(there: ControlNode, ada: Client) -> None:
    tab_id = await there.open_tab()
    await ada.ask("tab_lock", {"tabSessionId": tab_id})
    event = await ada.event("lock_acquired")
    assert event["tabId"] == tab_id
    assert event["id"].startswith(f"{there.node.epoch}-")


async def test_a_client_that_leaves_holds_nothing_on_other_nodes(here: ControlNode, there: ControlNode) -> None:
    tab_id = await there.open_tab()
    async with client(here, await here.token("ada")) as speaker:  # type: ignore[arg-type]
        await speaker.ask("tab_lock", {"tabSessionId": tab_id})
        speaker.drop()
        await until(lambda: there.tab(tab_id).gate.tab_lock is None)


async def test_a_client_that_leaves_cancels_its_command_on_another_node(here: ControlNode, there: ControlNode) -> None:
    tab_id = await there.open_tab()
    async with client(here, await here.token("ada")) as speaker:  # type: ignore[arg-type]
        await speaker.run(tab_id, "held-x")
        await until(lambda: there.pages.begun == ["held-x"])
        speaker.drop()
        await until(lambda: there.tab(tab_id).gate.running is None)


async def test_a_command_is_cancelled_where_it_runs(there: ControlNode, ada: Client) -> None:
    tab_id = await there.open_tab()
    request_id = await ada.run(tab_id, "held-x")
    command_id = (await ada.event("routed"))["commandId"]
    cancelled = await ada.ask("command_cancel", {"commandId": command_id})
    assert cancelled["payload"]["outcome"] == "cancelled"
    assert (await ada.answer(request_id))["payload"]["outcome"] == "cancelled"


async def test_a_command_whose_node_is_lost_has_an_unknown_outcome(there: ControlNode, ada: Client) -> None:
    tab_id = await there.open_tab()
    request_id = await ada.run(tab_id, "held-x")
    await ada.event("routed")
    there.break_sockets()
    answer = await ada.answer(request_id)
    assert (answer["messageType"], answer["payload"]["code"]) == ("error", "outcome_unknown")
    assert there.pages.begun == ["held-x"]


async def test_a_wait_for_a_lock_whose_node_is_lost_may_be_repeated(
    here: ControlNode, there: ControlNode, ada: Client
) -> None:
    tab_id = await there.open_tab()
    async with client(there, await there.token("ada")) as holder:  # type: ignore[arg-type]
        await holder.ask("tab_lock", {"tabSessionId": tab_id})
        request_id = await ada.send("tab_lock", {"tabSessionId": tab_id, "waitPolicy": "wait_with_timeout"})
        await until(lambda: len(there.tab(tab_id).waiting) == 1)
        there.break_sockets()
    answer = await ada.answer(request_id)
    assert (answer["payload"]["code"], answer["payload"]["retryable"]) == ("node_unreachable", True)


async def test_who_held_a_lock_on_a_node_that_is_lost_is_told(there: ControlNode, ada: Client) -> None:
    tab_id = await there.open_tab()
    await ada.ask("tab_lock", {"tabSessionId": tab_id})
    there.break_sockets()
    event = await ada.event("lock_released")
    assert (event["tabId"], event["reason"]) == (tab_id, "disconnected")


async def test_after_a_loss_the_next_command_is_sent_on_a_new_connection(there: ControlNode, ada: Client) -> None:
    tab_id = await there.open_tab()
    request_id = await ada.run(tab_id, "held-x")
    await ada.event("routed")
    there.break_sockets()
    await ada.answer(request_id)
    patient = {"waitPolicy": "wait_with_timeout"}
    assert (await ada.answer(await ada.run(tab_id, "next", **patient)))["payload"]["result"] == "next"


async def test_a_node_that_is_declared_dead_ends_what_waits_for_it(
    here: ControlNode, there: ControlNode, ada: Client
) -> None:
    tab_id = await there.open_tab()
    request_id = await ada.run(tab_id, "held-x")
    await ada.event("routed")
    here.company.meet()
    assert (await ada.answer(request_id))["payload"]["code"] == "outcome_unknown"


async def test_a_node_that_cannot_be_reached_is_said_to_be_so_and_nothing_is_done(
    here: ControlNode, there: ControlNode, ada: Client
) -> None:
    tab_id = await there.open_tab()
    here.company.meet(changed(there.node, url="http://127.0.0.1:1"))
    answer = await ada.answer(await ada.run(tab_id, "x"))
    assert (answer["payload"]["code"], answer["payload"]["retryable"]) == ("node_unreachable", True)


async def test_what_has_moved_since_is_done_where_it_is_now() -> None:
    async with nodes_of(3) as (here, before, now), client(here, await here.token("ada")) as speaker:  # type: ignore[arg-type]
        tab_id = await now.open_tab()
        here.routing._places._remembered["tab", tab_id] = before.node.id
        assert (await speaker.answer(await speaker.run(tab_id, "once")))["payload"]["result"] == "once"
        assert (before.pages.begun, now.pages.begun) == ([], ["once"])


async def test_what_another_node_sent_here_by_mistake_is_not_sent_on() -> None:
    async with nodes_of(3) as (here, before, now), client(here, await here.token("ada")) as speaker:  # type: ignore[arg-type]
        tab_id = await now.open_tab()
        here.routing._places._remembered["tab", tab_id] = before.node.id
        await speaker.answer(await speaker.run(tab_id, "once"))
        # It was turned back, so that the first node has looked again.
        assert here.routing._places._remembered["tab", tab_id] == now.node.id


async def test_a_named_node_gets_the_command(there: ControlNode, ada: Client) -> None:
    tab_id = await there.open_tab()
    answer = await ada.answer(await ada.run(tab_id, "x", targetNodeId=there.node.id))
    assert answer["payload"]["result"] == "x"


async def test_a_node_that_is_not_there_cannot_be_named(there: ControlNode, ada: Client) -> None:
    tab_id = await there.open_tab()
    answer = await ada.answer(await ada.run(tab_id, "x", targetNodeId="nod_none"))
    assert answer["messageType"] == "error"


async def test_a_named_lock_of_another_node_is_renewed_and_given_back_there(
    here: ControlNode, there: ControlNode, ada: Client
) -> None:
    async with client(there, await there.token("ada")) as holder:  # type: ignore[arg-type]
        lock = (await holder.ask("lock", {"name": "account:x", "leaseMs": 30_000}))["payload"]
        renewed = await ada.ask("lock_renew", {"name": "account:x", "ticket": lock["ticket"]})
        assert renewed["payload"]["fence"] == lock["fence"]
        assert (await ada.ask("unlock", {"name": "account:x", "ticket": lock["ticket"]}))["messageType"] == "result"
