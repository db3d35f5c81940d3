"""The part of the Target domain that tabherd answers itself: discovery and auto-attach of a whole browser.

Chromium would report every tenant's targets, and attach to them. So the client's own targets are reported from what
the browser's `TargetWatch` knows, and attached to one by one on the client's own connection, in the order that clients
rely on: what exists is reported before the answer, an attachment before the answer to the creation of its target, and a
new target does not run before its client lets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Protocol

import msgspec

from ... import logs
from ...browsers.port import BrowserGone, CdpFailure
from . import message
from .first_document import FirstDocument
from .ownership import Ownership
from .targets import DEFAULT_FILTER, TargetFilter, TargetInfo, is_wanted

log = logs.get_logger("cdp")

# How long the answer to the creation of a target may wait until the target has been reported.
REPORT_LIMIT_S: Final = 5.0
# Entries of a filter that are read; there are about twenty types of targets.
FILTER_MAX: Final = 100


class Line(Protocol):
    """The client's connection, as seen from here."""

    def send(self, message: bytes) -> None:
        """Say something to the client."""
        ...

    def inject(self, method: str, params: Mapping[str, Any], session_id: str) -> asyncio.Future[dict[str, Any]]:
        """Say something of ours to Chromium on the client's connection; the future has its answer."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it; it ends with the connection at the latest."""
        ...


class AutoAttach(msgspec.Struct):
    """What one session with a browser's powers asked for."""

    waits: bool
    filter: TargetFilter
    # Targets to which it is attached or being attached, and those of which the client was told so.
    begun: set[str]
    told: set[str]

    def forget(self, target_id: str) -> None:
        self.begun.discard(target_id)
        self.told.discard(target_id)


class TargetDomain:
    """Discovery and auto-attach for one client. A `Follower` of its browser's watch."""

    def __init__(self, line: Line, own: Ownership, browser_target_id: str) -> None:
        self._line = line
        self._own = own
        # The target that stands for this connection.
        self._browser_target_id = browser_target_id
        # What was asked for, by the session that asked; "" is the connection itself.
        self._discovering: dict[str, TargetFilter] = {}
        self._autos: dict[str, AutoAttach] = {}
        # Targets of which the client was told, by the session that asked.
        self._reported: dict[str, set[str]] = {}
        # Answers to the creation of targets that are not reported yet: what to do when they are.
        self._created: dict[str, Callable[[], None]] = {}
        for context_id in own.followed:
            own.watch.follow(context_id, self)

    def close(self) -> None:
        for context_id in self._own.followed:
            self._own.watch.unfollow(context_id, self)
        for target_id in list(self._created):
            self._answer_created(target_id)

    # --- What the client asks ---------------------------------------------------------------------------------------

    def discover(self, session_id: str, params: Mapping[str, Any]) -> None:
        """`Target.setDiscoverTargets`; what exists is reported before this returns."""
        if not params.get("discover"):
            self._discovering.pop(session_id, None)
            self._reported.pop(session_id, None)
            return
        wanted = self._discovering[session_id] = _filter_of(params)
        self._reported[session_id] = set()
        if is_wanted(wanted, "browser"):
            self._tell(session_id, "Target.targetCreated", {"targetInfo": self._browser_info()})
        for info in self._own.targets():
            self._report(session_id, info)

    def targets(self, params: Mapping[str, Any]) -> list[TargetInfo]:
        """`Target.getTargets`."""
        wanted = _filter_of(params)
        found = [info for info in self._own.targets() if is_wanted(wanted, info["type"])]
        return [self._browser_info(), *found] if is_wanted(wanted, "browser") else found

    def contexts(self) -> dict[str, Any]:
        """`Target.getBrowserContexts`."""
        own = self._own
        default = own.context_id or own.watch.own_profile_id
        return {"browserContextIds": sorted(own.contexts), "defaultBrowserContextId": default}

    async def auto_attach(self, session_id: str, params: Mapping[str, Any]) -> None:
        """`Target.setAutoAttach` of a session with a browser's powers; own targets are attached when this returns."""
        if not params.get("autoAttach"):
            self._autos.pop(session_id, None)
            return
        waits, wanted = bool(params.get("waitForDebuggerOnStart")), _filter_of(params)
        before = self._autos.get(session_id) or AutoAttach(waits, wanted, set(), set())
        auto = self._autos[session_id] = AutoAttach(waits, wanted, before.begun, before.told)
        existing = [info for info in self._own.targets() if self._is_for(auto, info)]
        await asyncio.gather(*(self._attach(session_id, auto, info["targetId"]) for info in existing))

    def made_context(self, context_id: str) -> None:
        self._own.contexts.add(context_id)
        self._own.watch.follow(context_id, self)

    def disposed_context(self, context_id: str) -> None:
        self._own.contexts.discard(context_id)
        self._own.watch.unfollow(context_id, self)

    def made_target(self, target_id: str, answer: Callable[[], None]) -> None:
        """The client made this target; `answer` is called when all that comes before the answer was said."""
        own = self._own
        if own.tenancy.is_shared:
            own.made.add(target_id)
            if (info := own.watch.get(target_id)) is not None:
                self._arrive(info)
        self._created[target_id] = answer
        self._answer_if_reported(target_id)
        if target_id in self._created:
            asyncio.get_running_loop().call_later(REPORT_LIMIT_S, self._answer_created, target_id)

    def is_browser(self, target_id: object) -> bool:
        """Whether that is the target which stands for this connection."""
        return target_id == self._browser_target_id

    def runs(self, target_id: str) -> None:
        """The client lets it run."""
        self._own.watch.let_run(target_id, self)

    def is_waiting(self, target_id: str) -> bool:
        """Whether that target waits until the client lets it run."""
        return self._own.watch.is_held_for(target_id, self)

    def first_document(self, target_id: str) -> FirstDocument | None:
        """The first document of a window that waits for the client and cannot hear it before it runs."""
        return self._own.watch.first_document(target_id, self)

    # --- What its connection sees -----------------------------------------------------------------------------------

    def attached(self, session_id: str, target_id: str) -> None:
        """The client was told of an attachment of that target to that session."""
        if (auto := self._autos.get(session_id)) is not None:
            auto.begun.add(target_id)
            auto.told.add(target_id)
        self._answer_if_reported(target_id)

    def detached(self, parent_id: str, session_id: str, target_id: str) -> None:
        """A session is over, with all that it had asked for."""
        self._discovering.pop(session_id, None)
        self._reported.pop(session_id, None)
        self._autos.pop(session_id, None)
        if (auto := self._autos.get(parent_id)) is not None:
            auto.forget(target_id)
        # Nobody would let it run any more.
        self.runs(target_id)

    # --- What the watch tells (Follower) ----------------------------------------------------------------------------

    def target_created(self, info: TargetInfo) -> None:
        if not self._own.owns(info):
            return
        for session_id in list(self._discovering):
            self._report(session_id, info)
        if info["type"] == "tab":
            self._attach_where_wanted(info)
        self._answer_if_reported(info["targetId"])

    def target_changed(self, info: TargetInfo) -> None:
        for session_id, reported in self._reported.items():
            if info["targetId"] in reported:
                self._tell(session_id, "Target.targetInfoChanged", {"targetInfo": info})

    def target_crashed(self, event: Mapping[str, Any]) -> None:
        for session_id, reported in self._reported.items():
            if event["targetId"] in reported:
                self._tell(session_id, "Target.targetCrashed", event)

    def target_destroyed(self, target_id: str) -> None:
        self._own.made.discard(target_id)
        for session_id, reported in self._reported.items():
            if target_id in reported:
                reported.discard(target_id)
                self._tell(session_id, "Target.targetDestroyed", {"targetId": target_id})
        for auto in self._autos.values():
            auto.forget(target_id)
        self._answer_created(target_id)

    def target_arrived(self, info: TargetInfo, is_waiting: bool) -> bool:
        if not self._own.owns(info):
            return False
        self._attach_where_wanted(info)
        # A client that attaches through the tab that wraps the page is waited for, too: it is told of the page there.
        return any(
            auto.waits and (is_wanted(auto.filter, info["type"]) or is_wanted(auto.filter, "tab"))
            for auto in self._autos.values()
        )

    # --- Parts ------------------------------------------------------------------------------------------------------

    def _arrive(self, info: TargetInfo) -> None:
        """A target turns out to be the client's after it came up."""
        tab = self._own.watch.tab_of_page(info["targetId"])
        for one in (tab, info) if tab is not None else (info,):
            for session_id in list(self._discovering):
                self._report(session_id, one)
            self._attach_where_wanted(one)

    def _attach_where_wanted(self, info: TargetInfo) -> None:
        for session_id, auto in self._autos.items():
            if self._is_for(auto, info):
                self._line.spawn(self._attach(session_id, auto, info["targetId"]))

    def _is_for(self, auto: AutoAttach, info: TargetInfo) -> bool:
        target_id = info["targetId"]
        can_be = info["type"] == "tab" or self._own.watch.is_attachable(target_id)
        return can_be and target_id not in auto.begun and is_wanted(auto.filter, info["type"])

    async def _attach(self, session_id: str, auto: AutoAttach, target_id: str) -> None:
        if target_id in auto.begun:
            return
        auto.begun.add(target_id)
        try:
            await self._line.inject("Target.attachToTarget", {"targetId": target_id, "flatten": True}, session_id)
        except (BrowserGone, CdpFailure) as reason:
            # It has ended meanwhile, which is told by itself.
            log.debug("a target could not be attached", targetId=target_id, reason=str(reason))
            auto.forget(target_id)
            self.runs(target_id)
            self._answer_created(target_id)

    def _report(self, session_id: str, info: TargetInfo) -> None:
        reported = self._reported[session_id]
        if info["targetId"] not in reported and is_wanted(self._discovering[session_id], info["type"]):
            reported.add(info["targetId"])
            self._tell(session_id, "Target.targetCreated", {"targetInfo": info})

    def _answer_if_reported(self, target_id: str) -> None:
        """Answer the creation of this target once it is known, and attached wherever that comes first."""
        info = self._own.watch.get(target_id)
        if target_id not in self._created or info is None:
            return
        if all(target_id in auto.told for auto in self._autos.values() if is_wanted(auto.filter, info["type"])):
            self._answer_created(target_id)

    def _answer_created(self, target_id: str) -> None:
        if (answer := self._created.pop(target_id, None)) is not None:
            answer()

    def _tell(self, session_id: str, method: str, params: Mapping[str, Any]) -> None:
        self._line.send(message.event(method, dict(params), session_id))

    def _browser_info(self) -> TargetInfo:
        return {
            "targetId": self._browser_target_id,
            "type": "browser",
            "title": "",
            "url": "",
            "attached": True,
            "canAccessOpener": False,
        }


def _filter_of(params: Mapping[str, Any]) -> TargetFilter:
    wanted = params.get("filter")
    if not isinstance(wanted, list):
        return DEFAULT_FILTER
    return [entry for entry in wanted[:FILTER_MAX] if isinstance(entry, dict)]
