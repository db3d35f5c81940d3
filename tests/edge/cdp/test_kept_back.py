"""What a client says to a window that has no document yet: what passes, what waits and for how long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec
import pytest

from tabherd.edge.cdp import message
from tabherd.edge.cdp.first_document import ADD_SCRIPT, FirstDocument
from tabherd.edge.cdp.kept_back import KeptBack
from tabherd.edge.cdp.message import Request
from tabherd.edge.cdp.rules import Kind
from tabherd.edge.cdp.tree import Node

from .test_targets import settled

ZONE = "Emulation.setTimezoneOverride"
CALL = {"name": "b", "payload": "p", "executionContextId": 1}
PAGE = Node(Kind.PAGE, "S1", "", "T1", "T1")


class First(FirstDocument):
    """Notes what is added."""

    def __init__(self) -> None:
        super().__init__("T1")
        self.added: list[Mapping[str, Any]] = []
        self.has_room = True

    def add(self, client: Any, method: str, params: Mapping[str, Any], size: int) -> bool:
        if self.has_room:
            self.added.append(params)
        return self.has_room


class House:
    """The client's line, its targets and its way to Chromium, all in one."""

    def __init__(self) -> None:
        # None once the window runs.
        self.first: First | None = First()
        self.sent: list[tuple[int, dict[str, Any]]] = []
        self.told: list[dict[str, Any]] = []
        self.barriers: list[asyncio.Future[dict[str, Any]]] = []

    def first_document(self, target_id: str) -> First | None:
        return self.first

    def send_on(self, node: Node, request: Request) -> None:
        self.sent.append((request.id, json.loads(bytes(request.params))))

    def send(self, payload: bytes) -> None:
        self.told.append(json.loads(payload)["params"])

    def inject(self, method: str, params: Mapping[str, Any], session_id: str) -> asyncio.Future[dict[str, Any]]:
        self.barriers.append(asyncio.get_running_loop().create_future())
        return self.barriers[-1]

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        raise AssertionError("nothing here takes a task")

    async def settle(self) -> None:
        """Chromium has seen to everything."""
        for barrier in self.barriers:
            if not barrier.done():
                barrier.set_result({})
        await settled()


@pytest.fixture
async def house() -> House:
    return House()


@pytest.fixture
async def kept_back(house: House) -> KeptBack:
    return KeptBack(house, house, house.send_on)  # type: ignore[arg-type]


def said(method: str, id: int = 1, **params: Any) -> Request:
    return Request(id=id, method=method, sessionId="S1", params=msgspec.Raw(message.encode(params)))


def own_call(**call: Any) -> bytes:
    return message.event("Runtime.bindingCalled", {**CALL, **call}, "S1")


async def test_a_script_waits_for_the_document_and_does_not_run_in_it_again(house: House, kept_back: KeptBack) -> None:
    assert kept_back.keeps(PAGE, said(ADD_SCRIPT, source="1", runImmediately=True))
    assert house.first is not None
    assert house.first.added == [{"source": "1", "runImmediately": False}]
    assert house.sent == []
    kept_back.begun("T1")
    assert house.sent == [(1, {"source": "1", "runImmediately": False})]


async def test_a_script_of_another_world_runs_in_the_document_when_it_comes(house: House, kept_back: KeptBack) -> None:
    assert kept_back.keeps(PAGE, said(ADD_SCRIPT, source="1", worldName="w"))
    assert house.first is not None
    assert house.first.added == [{"source": ""}]
    kept_back.begun("T1")
    assert house.sent == [(1, {"source": "1", "worldName": "w", "runImmediately": True})]


async def test_what_only_makes_a_world_passes(kept_back: KeptBack) -> None:
    assert not kept_back.keeps(PAGE, said(ADD_SCRIPT, source="", worldName="w"))


@pytest.mark.parametrize("method", ["Runtime.addBinding", "Emulation.setUserAgentOverride"])
async def test_what_each_session_has_of_its_own_passes_and_is_added(
    house: House, kept_back: KeptBack, method: str
) -> None:
    assert not kept_back.keeps(PAGE, said(method, name="b"))
    assert house.first is not None
    assert house.first.added == [{"name": "b"}]


async def test_a_setting_of_which_there_is_one_waits_until_the_gate_has_left(house: House, kept_back: KeptBack) -> None:
    assert kept_back.keeps(PAGE, said(ZONE, timezoneId="Asia/Tokyo"))
    kept_back.begun("T1")
    assert house.sent == []
    kept_back.ended("T1")
    assert house.sent == [(1, {"timezoneId": "Asia/Tokyo"})]


async def test_what_follows_does_not_overtake_what_waits(house: House, kept_back: KeptBack) -> None:
    for id, method in ((1, ADD_SCRIPT), (2, ZONE)):
        kept_back.keeps(PAGE, said(method, id))
    house.first = None
    assert kept_back.keeps(PAGE, said(ADD_SCRIPT, 3))
    assert kept_back.keeps(PAGE, said(ZONE, 4))
    kept_back.begun("T1")
    assert not kept_back.keeps(PAGE, said(ADD_SCRIPT, 5))
    kept_back.ended("T1")
    assert [id for id, _ in house.sent] == [1, 3, 2, 4]
    assert not kept_back.keeps(PAGE, said(ZONE, 6))


async def test_a_window_that_vanishes_while_it_waits_gives_back_what_waits(house: House, kept_back: KeptBack) -> None:
    for id, method in ((1, ADD_SCRIPT), (2, ZONE)):
        kept_back.keeps(PAGE, said(method, id))
    kept_back.ended("T1")
    assert [id for id, _ in house.sent] == [1, 2]


async def test_other_windows_and_their_frames_are_left_alone(house: House, kept_back: KeptBack) -> None:
    assert not kept_back.keeps(Node(Kind.FRAME, "S2", "S1", "T2", "T1"), said(ADD_SCRIPT, source="1"))
    house.first = None
    assert not kept_back.keeps(PAGE, said(ADD_SCRIPT, source="1"))


async def test_what_finds_no_room_passes(house: House, kept_back: KeptBack) -> None:
    assert house.first is not None
    house.first.has_room = False
    assert not kept_back.keeps(PAGE, said(ADD_SCRIPT, source="1"))
    assert not kept_back.keeps(PAGE, said(ZONE, timezoneId="Asia/Tokyo"))


async def test_what_cannot_be_read_is_chromiums_to_refuse(kept_back: KeptBack) -> None:
    assert not kept_back.keeps(PAGE, Request(id=1, method=ADD_SCRIPT, params=msgspec.Raw(b"[1]")))


# --- Calls of bindings ------------------------------------------------------------------------------------------


async def test_an_early_call_is_told_after_the_answers_that_the_client_waits_for(
    house: House, kept_back: KeptBack
) -> None:
    kept_back.keeps(PAGE, said("Runtime.addBinding", name="b"))
    kept_back.binding_called("T1", CALL)
    kept_back.begun("T1")
    kept_back.takes_call(own_call(payload="q"))
    assert house.told == []
    await house.settle()
    assert house.told == [CALL, {**CALL, "payload": "q"}]


@pytest.mark.parametrize("is_gate_first", [True, False])
async def test_a_call_that_both_sides_tell_of_is_told_once(
    house: House, kept_back: KeptBack, is_gate_first: bool
) -> None:
    kept_back.keeps(PAGE, said("Runtime.addBinding", name="b"))
    kept_back.begun("T1")
    await house.settle()
    if is_gate_first:
        kept_back.binding_called("T1", CALL)
    assert kept_back.takes_call(own_call())
    if not is_gate_first:
        kept_back.binding_called("T1", CALL)
    assert house.told == [CALL]


async def test_calls_differ_by_their_payload(house: House, kept_back: KeptBack) -> None:
    kept_back.keeps(PAGE, said("Runtime.addBinding", name="b"))
    kept_back.begun("T1")
    await house.settle()
    kept_back.binding_called("T1", CALL)
    kept_back.takes_call(own_call(payload="q"))
    assert house.told == [CALL, {**CALL, "payload": "q"}]


async def test_a_call_in_another_page_is_nobody_elses(house: House, kept_back: KeptBack) -> None:
    kept_back.keeps(PAGE, said("Runtime.addBinding", name="b"))
    assert not kept_back.takes_call(message.event("Runtime.bindingCalled", CALL, "S9"))


async def test_once_the_gate_has_left_nothing_is_looked_at(house: House, kept_back: KeptBack) -> None:
    kept_back.keeps(PAGE, said("Runtime.addBinding", name="b"))
    assert kept_back.is_listening
    kept_back.begun("T1")
    kept_back.ended("T1")
    await house.settle()
    assert not kept_back.is_listening
