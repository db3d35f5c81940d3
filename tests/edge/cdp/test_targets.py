"""The watch over a browser's targets: who is told of what, and for whom a new target waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tabherd.edge.cdp import targets
from tabherd.edge.cdp.targets import DEFAULT_FILTER, TEXT_MAX, TargetInfo, TargetWatch, is_wanted


class Wire:
    """The watch's own connection: what was posted on it, and a way to let Chromium speak."""

    is_closed = False

    def __init__(self) -> None:
        self.posted: list[tuple[str, str]] = []
        self._listeners: dict[str, Callable[[Mapping[str, Any]], None]] = {}

    def listen(self, session_id: str | None, method: str, heard: Callable[[Mapping[str, Any]], None]) -> None:
        self._listeners[method] = heard

    def post(self, method: str, params: Mapping[str, Any] | None = None, session_id: str = "") -> None:
        self.posted.append((method, session_id or (params or {}).get("sessionId", "")))

    async def call(self, method: str, session_id: str) -> dict[str, Any]:
        self.posted.append((method, session_id))
        return {}

    def say(self, method: str, **event: Any) -> None:
        self._listeners[f"Target.{method}"](event)


class Follower:
    """Notes what it is told."""

    def __init__(self, *, waits: bool = False) -> None:
        self.waits = waits
        self.heard: list[tuple[str, str]] = []

    def target_created(self, info: TargetInfo) -> None:
        self.heard.append(("created", info["targetId"]))

    def target_changed(self, info: TargetInfo) -> None:
        self.heard.append(("changed", info["targetId"]))

    def target_crashed(self, event: Mapping[str, Any]) -> None:
        self.heard.append(("crashed", event["targetId"]))

    def target_destroyed(self, target_id: str) -> None:
        self.heard.append(("destroyed", target_id))

    def target_arrived(self, info: TargetInfo, is_waiting: bool) -> bool:
        self.heard.append(("arrived", info["targetId"]))
        return self.waits


RUN = [("Runtime.runIfWaitingForDebugger", "S-T1"), ("Target.detachFromTarget", "S-T1")]


async def settled() -> None:
    """Until what was begun is done; nothing here takes time."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def watch(wire: Wire) -> TargetWatch:
    return TargetWatch(wire)  # type: ignore[arg-type]


def target(target_id: str, context_id: str = "C1", type: str = "page", **more: Any) -> dict[str, Any]:
    return {"targetId": target_id, "type": type, "url": "", "title": "", "browserContextId": context_id} | more


def arrive(wire: Wire, target_id: str = "T1", context_id: str = "C1", *, is_waiting: bool = True) -> None:
    wire.say("targetCreated", targetInfo=target(target_id, context_id))
    wire.say(
        "attachedToTarget",
        targetInfo=target(target_id, context_id),
        sessionId=f"S-{target_id}",
        waitingForDebugger=is_waiting,
    )


# --- Telling ----------------------------------------------------------------------------------------------------


async def test_followers_hear_of_their_own_context_only(wire: Wire, watch: TargetWatch) -> None:
    mine, theirs = Follower(), Follower()
    watch.follow("C1", mine)
    watch.follow("C2", theirs)
    arrive(wire)
    wire.say("targetInfoChanged", targetInfo=target("T1", title="new"))
    wire.say("targetCrashed", targetId="T1", status="crashed", errorCode=1)
    wire.say("targetDestroyed", targetId="T1")
    kinds = ["created", "arrived", "changed", "crashed", "destroyed"]
    assert mine.heard == [(kind, "T1") for kind in kinds]
    assert theirs.heard == []


async def test_a_change_that_changes_nothing_is_not_told(wire: Wire, watch: TargetWatch) -> None:
    follower = Follower()
    watch.follow("C1", follower)
    wire.say("targetCreated", targetInfo=target("T1"))
    wire.say("targetInfoChanged", targetInfo=target("T1"))
    wire.say("targetInfoChanged", targetInfo=target("unknown"))
    assert follower.heard == [("created", "T1")]


async def test_who_follows_no_more_hears_no_more(wire: Wire, watch: TargetWatch) -> None:
    follower = Follower()
    watch.follow("C1", follower)
    watch.unfollow("C1", follower)
    arrive(wire)
    assert follower.heard == []


async def test_the_browsers_own_surfaces_are_nobodys(wire: Wire, watch: TargetWatch) -> None:
    for type in ("browser", "browser_ui"):
        wire.say("targetCreated", targetInfo=target(f"T-{type}", type=type))
    assert list(watch.in_context("C1")) == []


async def test_a_long_address_is_cut(wire: Wire, watch: TargetWatch) -> None:
    wire.say("targetCreated", targetInfo=target("T1", url="data:" + "x" * TEXT_MAX, title="y" * (TEXT_MAX + 1)))
    (info,) = watch.in_context("C1")
    assert (len(info["url"]), len(info["title"])) == (TEXT_MAX, TEXT_MAX)


async def test_a_page_is_paired_with_the_tab_that_came_right_before_it(wire: Wire, watch: TargetWatch) -> None:
    wire.say("targetCreated", targetInfo=target("TAB", type="tab"))
    wire.say("targetCreated", targetInfo=target("T1"))
    wire.say("targetCreated", targetInfo=target("T2"))
    assert watch.page_of_tab("TAB") == "T1"
    assert watch.tab_of_page("T1") == target("TAB", type="tab")
    assert watch.tab_of_page("T2") is None
    wire.say("targetDestroyed", targetId="T1")
    assert watch.page_of_tab("TAB") == ""


async def test_a_page_is_not_paired_with_the_tab_of_another_context(wire: Wire, watch: TargetWatch) -> None:
    wire.say("targetCreated", targetInfo=target("TAB", "C2", type="tab"))
    wire.say("targetCreated", targetInfo=target("T1"))
    assert watch.tab_of_page("T1") is None


# --- Waiting ----------------------------------------------------------------------------------------------------


async def test_a_target_that_nobody_wants_to_see_first_runs_at_once(wire: Wire, watch: TargetWatch) -> None:
    watch.follow("C1", Follower())
    arrive(wire)
    await settled()
    assert wire.posted == RUN


async def test_a_target_waits_until_all_who_want_to_see_it_let_it_run(wire: Wire, watch: TargetWatch) -> None:
    first, second = Follower(waits=True), Follower(waits=True)
    for follower in (first, second, Follower()):
        watch.follow("C1", follower)
    arrive(wire)
    assert watch.is_held_for("T1", first)
    watch.let_run("T1", first)
    watch.let_run("T1", first)
    await settled()
    assert wire.posted == []
    assert not watch.is_held_for("T1", first)
    watch.let_run("T1", second)
    await settled()
    assert wire.posted == RUN


async def test_nobody_else_can_let_it_run(wire: Wire, watch: TargetWatch) -> None:
    owner, stranger = Follower(waits=True), Follower(waits=True)
    watch.follow("C1", owner)
    watch.follow("C2", stranger)
    arrive(wire)
    watch.let_run("T1", stranger)
    watch.unfollow("C2", stranger)
    await settled()
    assert wire.posted == []


async def test_one_that_leaves_is_not_waited_for(wire: Wire, watch: TargetWatch) -> None:
    follower = Follower(waits=True)
    watch.follow("C1", follower)
    arrive(wire)
    watch.unfollow("C1", follower)
    await settled()
    assert wire.posted == RUN


async def test_no_target_waits_for_ever(wire: Wire, watch: TargetWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "HELD_LIMIT_S", 0)
    watch.follow("C1", Follower(waits=True))
    arrive(wire)
    await settled()
    assert wire.posted == RUN


async def test_one_that_runs_already_is_only_let_go_of(wire: Wire, watch: TargetWatch) -> None:
    watch.follow("C1", Follower(waits=True))
    arrive(wire, is_waiting=False)
    await settled()
    assert wire.posted == [("Target.detachFromTarget", "S-T1")]


async def test_one_that_ends_while_it_waits_is_forgotten(wire: Wire, watch: TargetWatch) -> None:
    follower = Follower(waits=True)
    watch.follow("C1", follower)
    arrive(wire)
    wire.say("targetDestroyed", targetId="T1")
    watch.let_run("T1", follower)
    await settled()
    assert wire.posted == []
    assert not watch.is_attachable("T1")


# --- Filters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "type", "is_in"),
    [
        (DEFAULT_FILTER, "page", True),
        (DEFAULT_FILTER, "tab", False),
        (DEFAULT_FILTER, "browser", False),
        ([{}], "tab", True),
        ([], "page", False),
        ([{"type": "page", "exclude": True}, {}], "page", False),
        ([{"type": "page", "exclude": True}, {}], "worker", True),
        ([{"type": "page"}], "worker", False),
        ([{}, {"type": "page", "exclude": True}], "page", True),
    ],
)
def test_the_first_entry_that_fits_decides(wanted: list[dict[str, Any]], type: str, is_in: bool) -> None:
    assert is_wanted(wanted, type) is is_in
