"""The first document of a window without an opener: what the gate says on its clients' behalf, and takes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tabherd.browsers.port import TabGone
from tabherd.edge.cdp import first_document
from tabherd.edge.cdp.first_document import ADD_SCRIPT, ADDED_MAX, ADDED_MAX_BYTES, RUN, FirstDocument, lacks_renderer
from tabherd.edge.cdp.targets import TargetWatch

from .test_targets import Follower, Wire, settled, target

SESSION = "S-T1"
REMOVE = "Page.removeScriptToEvaluateOnNewDocument"
LEAVE = "Target.detachFromTarget"
MAIN_FRAME: dict[str, Any] = {"frame": {"id": "F1"}}


class Gate:
    """The gate's connection: what was said on it, and a way to let Chromium speak."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Mapping[str, Any]]] = []
        # Whether the site has answered, so that there is a renderer.
        self.is_live = asyncio.Event()
        self.is_live.set()
        self._listeners: dict[str, Callable[[Mapping[str, Any]], None]] = {}
        self._expected: list[asyncio.Future[Any]] = []

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.said]

    def listen(self, session_id: str, method: str, heard: Callable[[Mapping[str, Any]], None]) -> Callable[[], None]:
        assert session_id == SESSION
        self._listeners[method] = heard
        return lambda: self._listeners.pop(method, None) and None

    def expect(self, what: str, session_id: str) -> asyncio.Future[Any]:
        self._expected.append(asyncio.get_running_loop().create_future())
        return self._expected[-1]

    def post(self, method: str, params: Mapping[str, Any], session_id: str = "") -> None:
        self.said.append((method, params))

    async def call(self, method: str, params: Mapping[str, Any] | None = None, session_id: str = "") -> dict[str, Any]:
        self.said.append((method, params or {}))
        if session_id:
            await self.is_live.wait()
        return {"identifier": f"script {len(self.said)}"} if method == ADD_SCRIPT else {}

    def say(self, method: str, event: Mapping[str, Any] | None = None) -> None:
        if (heard := self._listeners.get(method)) is not None:
            heard(event or {})

    def lose_page(self) -> None:
        for one in self._expected:
            one.set_exception(TabGone("The page was closed.", was_sent=True))


class Client:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.in_force: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def begun(self, target_id: str) -> asyncio.Future[Any]:
        self.heard.append("begun")
        return self.in_force

    def binding_called(self, target_id: str, call: Mapping[str, Any]) -> None:
        self.heard.append(f"called {call['name']}")

    def ended(self, target_id: str) -> None:
        self.heard.append("ended")


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def client() -> Client:
    return Client()


def prepared(client: Client) -> FirstDocument:
    first = FirstDocument("T1")
    assert first.add(client, ADD_SCRIPT, {"source": "1"}, 10)
    return first


async def begin(gate: Gate, first: FirstDocument) -> asyncio.Task[None]:
    running = asyncio.create_task(first.run(gate, SESSION))  # type: ignore[arg-type]
    await settled()
    return running


def show_document(gate: Gate) -> None:
    gate.say("Page.frameNavigated", MAIN_FRAME)
    gate.say("Runtime.executionContextCreated")


async def test_what_was_added_is_said_in_order_before_the_window_runs(gate: Gate, client: Client) -> None:
    first = prepared(client)
    first.add(client, "Runtime.addBinding", {"name": "b"}, 10)
    running = await begin(gate, first)
    assert gate.methods == ["Page.enable", ADD_SCRIPT, "Runtime.addBinding", "Runtime.enable", RUN]
    running.cancel()


async def test_the_blank_document_that_comes_first_is_not_taken_for_the_first(gate: Gate, client: Client) -> None:
    running = await begin(gate, prepared(client))
    gate.say("Runtime.executionContextCreated")
    gate.say("Page.frameNavigated", {"frame": {"id": "F2", "parentId": "F1"}})
    gate.say("Runtime.executionContextCreated")
    gate.say("Page.frameNavigated", MAIN_FRAME)
    await settled()
    assert client.heard == []
    gate.say("Runtime.executionContextCreated")
    await settled()
    assert client.heard == ["begun"]
    running.cancel()


async def test_the_gates_scripts_are_taken_away_when_the_document_is_there(gate: Gate, client: Client) -> None:
    running = await begin(gate, prepared(client))
    show_document(gate)
    await settled()
    assert gate.said[-1] == (REMOVE, {"identifier": "script 2"})
    running.cancel()


async def test_nothing_else_is_taken_back_before_what_the_client_said_is_in_force(gate: Gate, client: Client) -> None:
    first = prepared(client)
    first.add(client, "Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"}, 10)
    running = await begin(gate, first)
    show_document(gate)
    await settled()
    gate.say("Runtime.bindingCalled", {"name": "b"})
    assert gate.methods[-1] == REMOVE
    client.in_force.set_result(None)
    await running
    assert gate.said[-2:] == [("Emulation.setTimezoneOverride", {"timezoneId": ""}), ("Runtime.disable", {})]
    assert client.heard == ["begun", "called b", "ended"]


async def test_the_gate_does_not_leave_the_window_which_would_answer_its_dialogs(gate: Gate, client: Client) -> None:
    client.in_force.set_result(None)
    running = await begin(gate, prepared(client))
    show_document(gate)
    await running
    assert {LEAVE, "Page.disable"}.isdisjoint(gate.methods)


async def test_a_download_ends_the_waiting_for_a_document(gate: Gate, client: Client) -> None:
    client.in_force.set_result(None)
    running = await begin(gate, prepared(client))
    gate.say("Page.downloadWillBegin")
    await running
    assert client.heard == ["begun", "ended"]


async def test_a_window_that_goes_meanwhile_is_told_as_if_it_had_begun(gate: Gate, client: Client) -> None:
    client.in_force.set_result(None)
    running = await begin(gate, prepared(client))
    gate.lose_page()
    await running
    assert client.heard == ["begun", "ended"]


async def test_a_site_that_does_not_answer_is_not_waited_for_for_ever(
    gate: Gate, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_document, "ANSWER_LIMIT_S", 0)
    monkeypatch.setattr(first_document, "STEP_LIMIT_S", 0.01)
    client.in_force.set_result(None)
    gate.is_live.clear()
    await (await begin(gate, prepared(client)))
    assert client.heard == ["begun", "ended"]


async def test_a_window_that_keeps_its_client_from_being_heard_is_left(
    gate: Gate, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_document, "STEP_LIMIT_S", 0)
    await (await begin(gate, prepared(client)))
    assert gate.methods[-1] == LEAVE


async def test_what_is_added_is_bounded_in_number(client: Client) -> None:
    first = FirstDocument("T1")
    assert all(first.add(client, ADD_SCRIPT, {}, 1) for _ in range(ADDED_MAX))
    assert not first.add(client, ADD_SCRIPT, {}, 1)


async def test_what_is_added_is_bounded_in_size(client: Client) -> None:
    first = FirstDocument("T1")
    assert not first.add(client, ADD_SCRIPT, {}, ADDED_MAX_BYTES + 1)
    assert not first.is_prepared


@pytest.mark.parametrize(
    ("info", "lacks"),
    [
        ({"type": "page", "openerId": "T0", "canAccessOpener": False}, True),
        ({"type": "page", "openerId": "T0", "canAccessOpener": True}, False),
        ({"type": "page", "canAccessOpener": False}, False),
        ({"type": "service_worker", "openerId": "T0", "canAccessOpener": False}, False),
    ],
)
def test_only_a_window_that_was_opened_without_opener_lacks_a_renderer(info: dict[str, Any], lacks: bool) -> None:
    assert lacks_renderer(info) is lacks


# --- At the gate ------------------------------------------------------------------------------------------------


def open_window(wire: Wire, follower: Follower) -> TargetWatch:
    """A window without an opener, which waits for the follower."""
    watch = TargetWatch(wire)  # type: ignore[arg-type]
    watch.follow("C1", follower)
    info = target("T1", openerId="T0", canAccessOpener=False)
    wire.say("targetCreated", targetInfo=info)
    wire.say("attachedToTarget", targetInfo=info, sessionId=SESSION, waitingForDebugger=True)
    return watch


async def test_only_who_is_waited_for_can_prepare_a_window() -> None:
    follower = Follower(waits=True)
    watch = open_window(Wire(), follower)
    assert watch.first_document("T1", follower) is not None
    assert watch.first_document("T1", Follower()) is None
    watch.let_run("T1", follower)
    assert watch.first_document("T1", follower) is None


async def test_a_window_that_is_closed_while_it_waits_is_over_for_its_clients(client: Client) -> None:
    wire, follower = Wire(), Follower(waits=True)
    first = open_window(wire, follower).first_document("T1", follower)
    assert first is not None
    first.add(client, ADD_SCRIPT, {}, 1)
    wire.say("targetDestroyed", targetId="T1")
    assert client.heard == ["ended"]
