"""The control channel over real sockets, with a real broker: many commands, one answer each, nothing left behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import uvloop

from tabherd import wire
from tabherd.broker.caller import AGENT_SCOPES, Caller
from tabherd.edge import conversation as conversation_module
from tabherd.edge import sockets
from tabherd.edge.conversation import Conversation

from .control_house import Client, House, client, command, envelope, house, until


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """The loop that the server has; its transports are not those of asyncio."""
    return uvloop.EventLoopPolicy()


@pytest.fixture
async def here() -> AsyncIterator[House]:
    async with house() as running:
        yield running


@pytest.fixture
async def token(here: House) -> str:
    return await here.token("ada")


@pytest.fixture
async def tab_id(here: House) -> str:
    return await here.open_tab("ada")


PATIENT = {"waitPolicy": "wait_with_timeout"}


# --- Hello ------------------------------------------------------------------------------------------------------


async def test_hello_is_answered_with_who_one_is_and_what_one_may(here: House, token: str) -> None:
    async with client(here, token, is_greeting=False) as ada:
        ack = await ada.ask("hello", {"controllerId": "left-hand", "heartbeatMs": 2_000})
    assert ack["messageType"] == "hello_ack"
    told = ack["payload"]
    assert (told["node"], told["epoch"], told["agentId"], told["heartbeatMs"]) == ("nod_1", 3, "ada", 2_000)
    assert told["controllerId"].endswith("/left-hand")
    assert told["limits"]["inFlightMax"] == 100
    assert told["limits"]["messageMaxBytes"] == 1 << 20


async def test_nothing_is_done_before_hello(here: House, token: str, tab_id: str) -> None:
    async with client(here, token, is_greeting=False) as ada:
        refused = await ada.ask("command", command(tab_id, "1"))
        assert (refused["messageType"], refused["payload"]["details"]["field"]) == ("error", "messageType")
        assert (await ada.ask("hello"))["messageType"] == "hello_ack"
        assert (await ada.ask("command", command(tab_id, "2")))["messageType"] == "result"
    assert here.pages.begun == ["2"]


async def test_a_second_hello_is_a_conflict(here: House, token: str) -> None:
    async with client(here, token) as ada:
        assert (await ada.ask("hello"))["payload"]["code"] == "conflict"


async def test_a_controller_name_is_one_connections_and_free_when_that_ends(here: House, token: str) -> None:
    async with client(here, token, is_greeting=False) as second:
        async with client(here, token, controllerId="hand"):
            refused = await second.ask("hello", {"controllerId": "hand"})
            assert (refused["payload"]["code"], refused["payload"]["retryable"]) == ("conflict", True)
        for _ in range(1_000):
            ack = await second.ask("hello", {"controllerId": "hand"})
            if ack["messageType"] == "hello_ack":
                return
        raise AssertionError("the name is never free")


async def test_an_admin_may_speak_for_an_agent_and_an_agent_only_for_itself(here: House, token: str) -> None:
    admin = await here.token("root", "admin")
    async with client(here, admin, is_greeting=False) as root:
        assert (await root.ask("hello", {"agentId": "bob"}))["payload"]["agentId"] == "bob"
    async with client(here, token, is_greeting=False) as ada:
        assert (await ada.ask("hello", {"agentId": "bob"}))["payload"]["code"] == "forbidden"


async def test_a_ping_is_answered_and_a_pong_is_not(here: House, token: str) -> None:
    async with client(here, token) as ada:
        await ada.send("pong", requestId="beat")
        assert (await ada.ask("ping", requestId="beat", traceId="t-1"))["messageType"] == "pong"
        assert ada.inbox == []


# --- Commands ---------------------------------------------------------------------------------------------------


async def test_a_command_is_routed_and_answered_with_its_ids(here: House, token: str, tab_id: str) -> None:
    async with client(here, token) as ada:
        request_id = await ada.send("command", command(tab_id, "one"), traceId="trace-7")
        routed, result = await ada.next(), await ada.next()
    assert (routed["messageType"], routed["payload"]["type"]) == ("event", "routed")
    assert result["payload"]["commandId"] == routed["payload"]["commandId"]
    assert (result["messageType"], result["payload"]["result"]) == ("result", "one")
    for message in (routed, result):
        assert (message["requestId"], message["traceId"]) == (request_id, "trace-7")


async def test_many_commands_in_flight_run_in_order_and_each_is_answered_once(
    here: House, token: str, tab_id: str
) -> None:
    async with client(here, token) as ada:
        ids = [await ada.run(tab_id, f"c{n}", **PATIENT) for n in range(10)]
        answers = [await ada.answer(request_id) for request_id in ids]
        assert (await ada.ask("ping"))["messageType"] == "pong"
        assert [m for m in ada.inbox if m["messageType"] != "event"] == []
    assert [answer["payload"]["result"] for answer in answers] == [f"c{n}" for n in range(10)]
    assert here.pages.begun == [f"c{n}" for n in range(10)]


async def test_a_command_that_waits_is_told_its_place(here: House, token: str, tab_id: str) -> None:
    async with client(here, token) as ada:
        first = await ada.run(tab_id, "held-a")
        await ada.event("routed")
        second, third = await ada.run(tab_id, "b", **PATIENT), await ada.run(tab_id, "c", **PATIENT)
        assert (await ada.event("queued"))["position"] == 1
        assert (await ada.event("queued"))["position"] == 2
        here.pages.finish("held-a")
        for request_id in (first, second, third):
            assert (await ada.answer(request_id))["messageType"] == "result"


async def test_a_busy_tab_is_an_error_with_the_usual_fields(here: House, token: str, tab_id: str) -> None:
    async with client(here, token) as ada:
        await ada.run(tab_id, "held-a")
        refused = (await ada.ask("command", command(tab_id, "b")))["payload"]
        here.pages.finish("held-a")
    assert refused["code"] == "tab_busy"
    assert refused["retryAfterMs"] > 0
    assert refused["action"]


async def test_steps_run_on_one_turn(here: House, token: str, tab_id: str) -> None:
    steps = {"steps": [{"kind": "evaluate", "expression": str(n)} for n in range(3)]}
    async with client(here, token) as ada:
        result = await ada.ask("command", {"tabSessionId": tab_id, "payload": steps})
    assert [step["result"] for step in result["payload"]["result"]] == ["0", "1", "2"]


async def test_an_idempotency_key_is_run_once(here: House, token: str, tab_id: str) -> None:
    async with client(here, token) as ada:
        both = [await ada.ask("command", command(tab_id, "once", idempotencyKey="k")) for _ in range(2)]
    assert both[0]["payload"]["commandId"] == both[1]["payload"]["commandId"]
    assert here.pages.begun == ["once"]


async def test_a_request_id_that_waits_for_its_answer_is_not_taken_twice(here: House, token: str, tab_id: str) -> None:
    async with client(here, token) as ada:
        await ada.send("command", command(tab_id, "held-a"), requestId="same")
        await ada.event("routed")
        assert (await ada.ask("command", command(tab_id, "b", **PATIENT), requestId="same"))["payload"]["details"] == {
            "field": "requestId"
        }
        here.pages.finish("held-a")
        assert (await ada.answer("same"))["messageType"] == "result"
    assert here.pages.begun == ["held-a"]


async def test_tabs_of_others_do_not_exist(here: House, token: str) -> None:
    async with client(here, token) as ada:
        for kind, payload in (
            ("command", command(await here.open_tab("bob"), "1")),
            ("tab_lock", {"tabSessionId": await here.open_tab("bob")}),
        ):
            assert (await ada.ask(kind, payload))["payload"]["code"] == "tab_not_found"
    assert here.pages.begun == []


async def test_another_node_is_refused_by_name(here: House, token: str, tab_id: str) -> None:
    async with client(here, token) as ada:
        refused = await ada.ask("command", command(tab_id, "1", targetNodeId="nod_9"))
        assert refused["payload"]["details"]["field"] == "payload.targetNodeId"
        assert (await ada.ask("command", command(tab_id, "1", targetNodeId="nod_1")))["messageType"] == "result"


async def test_a_stale_fence_touches_nothing(here: House, token: str, tab_id: str) -> None:
    fence = here.live(tab_id).row.fence
    async with client(here, token) as ada:
        assert (await ada.ask("command", command(tab_id, "1", fence=fence + 1)))["payload"]["code"] == "lease_lost"
        assert (await ada.ask("command", command(tab_id, "2", fence=fence)))["messageType"] == "result"
    assert here.pages.begun == ["2"]


async def test_requests_beyond_the_limit_of_a_connection_are_refused_before_the_broker_hears_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with house({"gate": {"tickets_per_controller": 2}}) as small:
        go_on = asyncio.Event()
        # Nothing has a place in a queue yet, so it is not the queue's limit that refuses.
        monkeypatch.setattr(small.broker.commands._keys, "find", lambda *_: go_on.wait())
        tab_id = await small.open_tab("ada")
        async with client(small, await small.token("ada")) as ada:
            for _ in range(2):
                await ada.run(tab_id, "x", idempotencyKey="k")
            refused = await ada.ask("command", command(tab_id, "x", idempotencyKey="k"))
            assert refused["payload"]["code"] == "controller_queue_limit_exceeded"
            assert refused["payload"]["retryAfterMs"] > 0


# --- Cancelling, locks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", ["held-runs", "waits"])
async def test_a_command_can_be_cancelled_while_it_runs_or_waits(
    here: House, token: str, tab_id: str, expression: str
) -> None:
    async with client(here, token) as ada:
        if expression == "waits":
            await ada.run(tab_id, "held-before")
            await ada.event("routed")
        request_id = await ada.run(tab_id, expression, **PATIENT)
        accepted = await ada.event("queued" if expression == "waits" else "routed")
        cancelled = await ada.ask("command_cancel", {"commandId": accepted["commandId"]})
        assert (cancelled["messageType"], cancelled["payload"]["outcome"]) == ("result", "cancelled")
        assert (await ada.event("cancel_ack"))["commandId"] == accepted["commandId"]
        assert (await ada.answer(request_id))["payload"]["outcome"] == "cancelled"
        here.pages.finish("held-before")


async def test_a_lock_binds_every_other_connection_until_it_is_given_back(here: House, token: str, tab_id: str) -> None:
    async with client(here, token) as ada, client(here, token) as other:
        lock = (await ada.ask("tab_lock", {"tabSessionId": tab_id, "lockLeaseMs": 60_000}))["payload"]
        assert (await other.event("lock_acquired"))["ticket"] == lock["ticket"]
        assert (await other.ask("command", command(tab_id, "no")))["payload"]["code"] == "tab_locked"
        assert (await ada.event("lock_conflict"))["tabId"] == tab_id
        assert (await ada.ask("command", command(tab_id, "mine")))["messageType"] == "result"
        renewed = await ada.ask("tab_renew", {"tabSessionId": tab_id, "ticket": lock["ticket"], "lockLeaseMs": 90_000})
        assert renewed["payload"]["lockLeaseMs"] == 90_000
        patient = await other.run(tab_id, "then", **PATIENT)
        await other.event("queued")
        released = await ada.ask("tab_unlock", {"tabSessionId": tab_id, "ticket": lock["ticket"]})
        assert released["payload"] == {"tabId": tab_id, "ticket": lock["ticket"]}
        assert (await other.answer(patient))["messageType"] == "result"
        again = await ada.ask("tab_unlock", {"tabSessionId": tab_id, "ticket": lock["ticket"]})
        assert again["payload"]["code"] == "lock_not_found"
    assert here.pages.begun == ["mine", "then"]


async def test_the_holder_is_told_when_its_lock_expires(here: House, token: str, tab_id: str) -> None:
    async with client(here, token) as ada:
        lock = (await ada.ask("tab_lock", {"tabSessionId": tab_id, "lockLeaseMs": 100}))["payload"]
        expired = await ada.event("lock_expired")
    assert expired["ticket"] == lock["ticket"]
    assert expired["lockOwnerControllerId"] == lock["lockOwnerControllerId"]


# --- The end of a connection ------------------------------------------------------------------------------------


def _close(speaker: Client) -> Any:
    return speaker.connection.close()


async def _drop(speaker: Client) -> None:
    speaker.drop()


@pytest.mark.parametrize("leave", [_close, _drop], ids=["closed", "dropped"])
async def test_a_connection_that_ends_releases_what_it_held_and_nothing_of_another(
    here: House, token: str, leave: Callable[[Client], Any]
) -> None:
    locked, running, theirs = [await here.open_tab("ada") for _ in range(3)]
    async with client(here, token) as ada, client(here, token) as other:
        await ada.ask("tab_lock", {"tabSessionId": locked})
        kept = (await other.ask("tab_lock", {"tabSessionId": theirs}))["payload"]["ticket"]
        await ada.run(running, "held-mine")
        await ada.event("routed")
        await ada.run(running, "mine-too", **PATIENT)
        await ada.send("tab_lock", {"tabSessionId": theirs, **PATIENT})
        await ada.event("queued")
        next_on_locked = await other.run(locked, "next-a", **PATIENT)
        next_on_running = await other.run(running, "next-b", **PATIENT)
        await until(lambda: len(here.gate(theirs).describe(0).waiters) == 1)
        await leave(ada)
        assert (await other.answer(next_on_locked))["payload"]["result"] == "next-a"
        assert (await other.answer(next_on_running))["payload"]["result"] == "next-b"
        await until(lambda: not here.gate(theirs).describe(0).waiters)
        assert here.gate(theirs).tab_lock.ticket.id == kept
        assert len(here.broker._registry.tickets) == 1
    assert "mine-too" not in here.pages.begun


async def test_a_lock_that_is_granted_in_the_moment_of_leaving_is_not_kept(
    here: House, token: str, tab_id: str
) -> None:
    ada = Caller(agent_id="ada", scopes=AGENT_SCOPES, controller_id="http")
    held = await here.broker.tab_locks.lock(ada, tab_id, wire.LockTab())
    async with client(here, token) as leaving:
        (conversation,) = [each for each in here.front.server_state.connections if isinstance(each, Conversation)]
        await leaving.send("tab_lock", {"tabSessionId": tab_id, **PATIENT})
        await until(lambda: here.gate(tab_id).describe(0).waiters)
        # Both in one moment: it is over, and before anybody could act upon that its turn has come.
        conversation.on_ws_disconnected(None)
        here.broker.tab_locks.unlock(ada, tab_id, held.ticket)
        assert here.gate(tab_id).tab_lock is not None
        await until(lambda: here.gate(tab_id).tab_lock is None and not here.broker._registry.tickets)
        await until(lambda: not conversation._channel._controllers)
        leaving.drop()


async def test_a_command_that_was_not_accepted_yet_when_its_connection_ended_is_never_run(
    here: House, token: str, tab_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> None:
        looked_up.set()
        await go_on.wait()

    monkeypatch.setattr(here.broker.commands._keys, "find", slow)
    async with client(here, token) as leaving:
        (conversation,) = [each for each in here.front.server_state.connections if isinstance(each, Conversation)]
        await leaving.run(tab_id, "too late", idempotencyKey="k")
        await looked_up.wait()
        leaving.drop()
        await until(lambda: not conversation._channel._controllers)
    go_on.set()
    async with client(here, token) as ada:
        assert (await ada.ask("command", command(tab_id, "next", **PATIENT)))["messageType"] == "result"
    assert here.pages.begun == ["next"]


async def test_a_session_that_is_used_over_a_connection_lives_by_it(here: House, token: str, tab_id: str) -> None:
    live = here.live(tab_id)
    async with client(here, token) as ada:
        await ada.ask("command", command(tab_id, "1"))
        await until(lambda: live.connections and live.row.is_connection_bound)
    await until(lambda: not live.connections and live.last_connection_closed_at is not None)


async def test_a_guest_in_a_shared_session_does_not_bind_it(here: House) -> None:
    tab_id = await here.open_tab("ada", access="shared")
    async with client(here, await here.token("bob")) as bob:
        assert (await bob.ask("command", command(tab_id, "hi")))["messageType"] == "result"
        assert (await bob.ask("ping"))["messageType"] == "pong"
        assert not here.live(tab_id).connections
    assert not here.live(tab_id).row.is_connection_bound


async def test_who_loses_a_session_is_told_and_reaches_it_no_more(here: House, token: str, tab_id: str) -> None:
    admin = await here.token("root", "admin")
    session_id = here.live(tab_id).row.id
    headers = {"Authorization": f"Bearer {admin}"}
    async with client(here, token) as ada, httpx.AsyncClient(headers=headers, timeout=60) as root:
        await ada.ask("command", command(tab_id, "1"))
        url = f"http://127.0.0.1:{here.port}/sessions/{session_id}/takeover"
        assert (await root.post(url, json={"agentId": "bob"})).status_code == 200
        assert (await ada.event("session.taken_over"))["sessionId"] == session_id
        assert (await ada.ask("command", command(tab_id, "2")))["payload"]["code"] == "lease_lost"
        assert not here.live(tab_id).connections


# --- Events -----------------------------------------------------------------------------------------------------


async def test_an_agent_hears_of_its_own_things_only(here: House, token: str) -> None:
    async with client(here, token) as ada:
        await here.open("bob")
        mine = await here.open("ada")
        assert (await ada.event("session.opened"))["sessionId"] == mine.session_id
        assert [m["payload"]["type"] for m in ada.inbox if m["payload"].get("agentId") == "bob"] == []


async def test_a_guest_hears_of_its_own_lock_in_a_shared_session(here: House) -> None:
    tab_id = await here.open_tab("ada", access="shared")
    async with client(here, await here.token("bob")) as bob:
        await bob.ask("tab_lock", {"tabSessionId": tab_id, "lockLeaseMs": 100})
        assert (await bob.event("lock_expired"))["tabId"] == tab_id


# More than the kernel keeps for a reader that does not read.
MUCH = 4_000_000


async def test_a_reader_that_falls_behind_is_told_so_and_misses_no_answer() -> None:
    async with house({"server": {"events_ring": 16}}) as here:
        tab_id = await here.open_tab("ada")
        async with client(here, await here.token("ada"), is_slow=True) as ada:
            ids = [await ada.run(tab_id, f"big-{MUCH}-{n}", **PATIENT) for n in range(5)]
            (connection,) = [each for each in here.front.server_state.connections if isinstance(each, Conversation)]
            await until(lambda: len(here.pages.begun) == 5 and connection.is_paused)
            for _ in range(100):
                here.events.publish("tab.crashed", agentId="ada", tabId=tab_id)
                await asyncio.sleep(0)
            for request_id in ids:
                assert len((await ada.answer(request_id))["payload"]["result"]) == MUCH
            await ada.event("reset")
            here.events.publish("tab.dead", agentId="ada", tabId=tab_id)
            await ada.event("tab.dead")
            assert sum(m["payload"]["type"] == "tab.crashed" for m in ada.inbox) < 100


async def test_a_reader_that_does_not_read_at_all_is_cut_off(
    here: House, token: str, tab_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "UNSENT_MAX_BYTES", 1 << 20)
    async with client(here, token, is_slow=True) as ada:
        (connection,) = [each for each in here.front.server_state.connections if isinstance(each, Conversation)]
        for n in range(6):
            await ada.run(tab_id, f"big-{MUCH}-{n}", **PATIENT)
        await until(lambda: connection.is_closed)
    await until(lambda: not here.broker._registry.tickets)


async def test_a_stopping_server_says_so_and_goodbye(token: str, here: House) -> None:
    async with client(here, token) as ada:
        here.front.should_exit = True
        assert (await ada.event("node.draining"))["stopping"] is True
        assert (await ada.closed())[0] == 1001


# --- What is refused --------------------------------------------------------------------------------------------


async def test_a_message_cannot_be_played_back_on_this_or_another_connection(
    here: House, token: str, tab_id: str
) -> None:
    recorded = json.dumps(envelope("command", command(tab_id, "pay"), requestId="r1"))
    async with client(here, token) as ada, client(here, token) as thief:
        await ada.connection.send(recorded)
        assert (await ada.answer("r1"))["messageType"] == "result"
        for speaker in (ada, thief):
            await speaker.connection.send(recorded)
            refused = (await speaker.answer("r1"))["payload"]
            assert (refused["code"], refused["details"]["field"]) == ("conflict", "nonce")
    assert here.pages.begun == ["pay"]


@pytest.mark.parametrize("stamp", [0, 1 << 50, "2020-01-01T00:00:00Z"])
async def test_a_message_of_another_time_is_refused(here: House, token: str, tab_id: str, stamp: Any) -> None:
    async with client(here, token) as ada:
        refused = (await ada.ask("command", command(tab_id, "late"), timestamp=stamp))["payload"]
    assert (refused["code"], refused["details"]["field"]) == ("invalid_request", "timestamp")
    assert here.pages.begun == []


async def test_what_is_not_json_is_answered_a_few_times_and_then_the_connection_ends(here: House, token: str) -> None:
    async with client(here, token) as ada:
        for _ in range(conversation_module.MALFORMED_MAX - 1):
            await ada.connection.send("{")
            error = await ada.next()
            assert (error["messageType"], error["payload"]["code"]) == ("error", "invalid_request")
            assert "requestId" not in error
        assert (await ada.ask("ping"))["messageType"] == "pong"
        await ada.connection.send("[]")
        assert (await ada.closed())[0] == 1008


async def test_binary_messages_are_refused_and_the_connection_goes_on(here: House, token: str) -> None:
    async with client(here, token) as ada:
        await ada.connection.send(b"\x00\x01")
        assert (await ada.next())["payload"]["details"]["field"] == "message"
        assert (await ada.ask("ping"))["messageType"] == "pong"


async def test_mistakes_in_the_envelope_are_answered_by_name_however_many(here: House, token: str) -> None:
    async with client(here, token) as ada:
        for _ in range(3 * conversation_module.MALFORMED_MAX):
            error = await ada.ask("ping", surprise=1)
            assert (error["payload"]["code"], error["payload"]["details"]["field"]) == ("unknown_field", "surprise")
        assert (await ada.ask("ping"))["messageType"] == "pong"


async def test_a_message_that_is_too_large_ends_the_connection(here: House, token: str) -> None:
    async with client(here, token) as ada:
        await ada.connection.send("x" * ((1 << 20) + 1))
        assert (await ada.closed())[0] == 1009


async def test_a_message_in_pieces_is_put_together_and_its_size_counts_as_one(here: House, token: str) -> None:
    async with client(here, token) as ada:
        text = json.dumps(envelope("ping", requestId="pieces"))
        await ada.connection.send([text[:20], text[20:30], text[30:]])
        assert (await ada.answer("pieces"))["messageType"] == "pong"
        await ada.connection.send(["x" * 400_000] * 3)
        assert (await ada.closed())[0] == 1009


async def test_whoever_sends_too_fast_is_told_when_to_go_on() -> None:
    async with (
        house({"auth": {"rate_per_s": 1, "rate_burst": 5}}) as slow,
        client(slow, await slow.token("ada")) as ada,
    ):
        # So many that they are too fast also on a machine that stalls for half a minute.
        asked = [await ada.send("ping") for _ in range(40)]
        answers = [await ada.answer(request_id) for request_id in asked]
    refused = [answer["payload"] for answer in answers if answer["messageType"] == "error"]
    assert {error["code"] for error in refused} == {"rate_limited"}
    assert all(error["retryAfterMs"] > 0 for error in refused)


async def test_a_token_that_is_revoked_reaches_nothing_with_the_next_message(
    here: House, token: str, tab_id: str
) -> None:
    credential = await here.credentials.authenticate(token)
    assert credential is not None
    async with client(here, token) as ada:
        assert (await ada.ask("command", command(tab_id, "before")))["messageType"] == "result"
        await here.credentials.revoke(credential.id)
        ids = [await ada.run(tab_id, "after") for _ in range(2)]
        for request_id in ids:
            assert (await ada.answer(request_id))["payload"]["code"] == "unauthenticated"
        assert (await ada.closed())[0] == 1008
    assert here.pages.begun == ["before"]


async def test_a_token_that_is_revoked_ends_the_connection_of_whoever_only_listens(here: House) -> None:
    token, credential = await here.credentials.create("ada", AGENT_SCOPES)
    async with client(here, token, heartbeatMs=1_000) as ada:
        await here.credentials.revoke(credential.id)
        (conversation,) = [each for each in here.front.server_state.connections if isinstance(each, Conversation)]
        conversation.beat()
        assert (await ada.next(lambda said: said["messageType"] == "error"))["payload"]["code"] == "unauthenticated"
        assert await ada.closed() == (1008, "unauthenticated: The credential was revoked.")


async def test_a_token_that_must_be_looked_up_again_keeps_the_order(here: House, token: str, tab_id: str) -> None:
    async with client(here, token) as ada:
        here.credentials._remembered.clear()
        ids = [await ada.run(tab_id, f"c{n}", **PATIENT) for n in range(5)]
        for request_id in ids:
            assert (await ada.answer(request_id))["messageType"] == "result"
    assert here.pages.begun == [f"c{n}" for n in range(5)]
