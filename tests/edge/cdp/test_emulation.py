"""Discovery and auto-attach as they are answered here: own targets only, each once, and in the promised order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest

from tabherd.browsers.port import CdpFailure
from tabherd.edge.cdp import emulation
from tabherd.edge.cdp.emulation import TargetDomain
from tabherd.edge.cdp.targets import TargetWatch

from .test_targets import Wire, arrive, settled, target

AUTO = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}


class Own:
    """Everything in one context is this client's."""

    def __init__(self, watch: TargetWatch) -> None:
        self.watch = watch
        self.context_id = "C1"
        self.contexts: set[str] = set()
        self.made: set[str] = set()
        self.tenancy = type("Tenancy", (), {"is_shared": False})()

    @property
    def followed(self) -> list[str]:
        return ["C1", *self.contexts]

    def owns(self, info: Mapping[str, Any]) -> bool:
        return info.get("browserContextId") in self.followed

    def targets(self) -> list[Mapping[str, Any]]:
        return [info for context_id in self.followed for info in self.watch.in_context(context_id)]


class Line:
    """The client's connection: what it was told, and the attachments that Chromium is asked for."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.asked: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, message: bytes) -> None:
        self.told.append(json.loads(message))

    def inject(self, method: str, params: Mapping[str, Any], session_id: str) -> asyncio.Future[dict[str, Any]]:
        assert method == "Target.attachToTarget"
        assert params["targetId"] not in self.asked, "it is attached twice"
        answer = self.asked[params["targetId"]] = asyncio.get_running_loop().create_future()
        return answer

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def heard(self) -> list[tuple[str, str]]:
        """Method and target of what it was told."""
        return [
            (one["method"].removeprefix("Target."), one["params"].get("targetInfo", one["params"])["targetId"])
            for one in self.told
        ]


class Stage:
    def __init__(self) -> None:
        self.wire = Wire()
        self.watch = TargetWatch(self.wire)  # type: ignore[arg-type]
        self.line = Line()
        self.own = Own(self.watch)
        self.domain = TargetDomain(self.line, self.own, "B1")  # type: ignore[arg-type]

    def attach(self, target_id: str, session_id: str = "") -> None:
        """Chromium has attached the client to it."""
        self.domain.attached(session_id, target_id)
        self.line.asked[target_id].set_result({})


@pytest.fixture
async def stage() -> Stage:
    return Stage()


# --- Discovery --------------------------------------------------------------------------------------------------


async def test_what_exists_is_reported_at_once_and_only_once(stage: Stage) -> None:
    arrive(stage.wire)
    arrive(stage.wire, "T2", "C2")
    stage.domain.discover("", {"discover": True})
    assert stage.line.heard() == [("targetCreated", "T1")]
    stage.domain.target_created(target("T1"))
    assert stage.line.heard() == [("targetCreated", "T1")]


async def test_the_browser_is_reported_to_who_wants_it(stage: Stage) -> None:
    stage.domain.discover("", {"discover": True, "filter": [{}]})
    assert stage.line.heard() == [("targetCreated", "B1")]


async def test_changes_and_ends_are_told_of_what_was_reported_only(stage: Stage) -> None:
    stage.domain.discover("S", {"discover": True, "filter": [{"type": "page"}]})
    stage.wire.say("targetCreated", targetInfo=target("W1", type="worker"))
    stage.wire.say("targetInfoChanged", targetInfo=target("W1", type="worker", title="x"))
    stage.wire.say("targetDestroyed", targetId="W1")
    assert stage.line.told == []
    stage.wire.say("targetCreated", targetInfo=target("T1"))
    stage.wire.say("targetDestroyed", targetId="T1")
    assert stage.line.heard() == [("targetCreated", "T1"), ("targetDestroyed", "T1")]
    assert {one["sessionId"] for one in stage.line.told} == {"S"}


async def test_nothing_is_told_to_a_session_that_is_over(stage: Stage) -> None:
    stage.domain.discover("S", {"discover": True})
    stage.domain.detached("", "S", "B1")
    arrive(stage.wire)
    assert stage.line.told == []


async def test_a_context_that_was_made_is_followed_until_it_is_disposed_of(stage: Stage) -> None:
    stage.domain.discover("", {"discover": True})
    stage.domain.made_context("C2")
    arrive(stage.wire, "T2", "C2")
    stage.domain.disposed_context("C2")
    arrive(stage.wire, "T3", "C2")
    assert stage.line.heard() == [("targetCreated", "T2")]


# --- Attaching --------------------------------------------------------------------------------------------------


async def test_the_answer_comes_when_all_that_exists_is_attached(stage: Stage) -> None:
    arrive(stage.wire)
    arrive(stage.wire, "T2")
    arrive(stage.wire, "T3", "C2")
    answering = asyncio.ensure_future(stage.domain.auto_attach("", AUTO))
    await settled()
    assert set(stage.line.asked) == {"T1", "T2"}
    stage.attach("T1")
    await asyncio.sleep(0)
    assert not answering.done()
    stage.attach("T2")
    await answering


async def test_asking_again_attaches_nothing_twice(stage: Stage) -> None:
    arrive(stage.wire)
    first = asyncio.ensure_future(stage.domain.auto_attach("", AUTO))
    await asyncio.sleep(0)
    await stage.domain.auto_attach("", AUTO)
    stage.attach("T1")
    await first


async def test_a_target_that_cannot_be_attached_holds_nobody_up(stage: Stage) -> None:
    await stage.domain.auto_attach("", AUTO)
    arrive(stage.wire)
    await asyncio.sleep(0)
    answered: list[str] = []
    stage.domain.made_target("T1", lambda: answered.append("T1"))
    stage.line.asked["T1"].set_exception(CdpFailure("Target.attachToTarget", -32602, "No target with given id found"))
    await settled()
    assert answered == ["T1"]
    await settled()
    assert ("Runtime.runIfWaitingForDebugger", "S-T1") in stage.wire.posted


async def test_a_new_target_waits_for_the_client_only_if_it_asked_for_that(stage: Stage) -> None:
    await stage.domain.auto_attach("", AUTO | {"waitForDebuggerOnStart": False})
    arrive(stage.wire)
    await settled()
    assert ("Runtime.runIfWaitingForDebugger", "S-T1") in stage.wire.posted
    await stage.domain.auto_attach("", AUTO)
    arrive(stage.wire, "T2")
    assert stage.domain.is_waiting("T2")
    stage.domain.runs("T2")
    await settled()
    assert ("Runtime.runIfWaitingForDebugger", "S-T2") in stage.wire.posted


async def test_a_target_does_not_wait_for_a_session_that_is_over(stage: Stage) -> None:
    await stage.domain.auto_attach("", AUTO)
    arrive(stage.wire)
    await asyncio.sleep(0)
    stage.attach("T1")
    stage.domain.detached("", "S1", "T1")
    await settled()
    assert ("Runtime.runIfWaitingForDebugger", "S-T1") in stage.wire.posted


async def test_a_client_that_leaves_keeps_nothing_waiting_and_nobody_unanswered(stage: Stage) -> None:
    await stage.domain.auto_attach("", AUTO)
    arrive(stage.wire)
    answered: list[str] = []
    stage.domain.made_target("T1", lambda: answered.append("T1"))
    stage.domain.close()
    assert answered == ["T1"]
    await settled()
    assert ("Runtime.runIfWaitingForDebugger", "S-T1") in stage.wire.posted


# --- Creation ---------------------------------------------------------------------------------------------------


async def test_a_creation_is_answered_after_the_attachment(stage: Stage) -> None:
    await stage.domain.auto_attach("", AUTO)
    answered: list[str] = []
    stage.domain.made_target("T1", lambda: answered.append("T1"))
    arrive(stage.wire)
    await asyncio.sleep(0)
    assert answered == []
    stage.attach("T1")
    assert answered == ["T1"]


async def test_a_creation_is_answered_after_the_report_when_nobody_attaches(stage: Stage) -> None:
    stage.domain.discover("", {"discover": True})
    stage.domain.made_target("T1", lambda: stage.line.send(b'{"method":"Target.answer","params":{"targetId":"T1"}}'))
    arrive(stage.wire)
    assert stage.line.heard() == [("targetCreated", "T1"), ("answer", "T1")]


async def test_a_creation_is_answered_even_if_it_is_never_reported(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulation, "REPORT_LIMIT_S", 0)
    answered = asyncio.Event()
    stage.domain.made_target("T1", answered.set)
    async with asyncio.timeout(60):
        await answered.wait()


async def test_a_creation_is_answered_once(stage: Stage) -> None:
    answered: list[str] = []
    stage.domain.made_target("T1", lambda: answered.append("T1"))
    arrive(stage.wire)
    stage.wire.say("targetDestroyed", targetId="T1")
    stage.domain.close()
    assert answered == ["T1"]
