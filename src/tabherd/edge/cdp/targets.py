"""Every target of one browser, over a connection of its own, and the gate at which new ones wait for their owner.

A client that wants to see a popup before its first script would have Chromium attach it to every new target, which is
every tenant's. So this is the only connection that does; a new target waits here until each client that owns it and
wants to attach first has attached and let it run. Chromium lets a target run as soon as anybody says so; hence nobody
else is ever attached to what is not theirs.

Invariants:
- A target that nobody is waited for runs at once, and no target waits longer than `HELD_LIMIT_S`.
- Followers are told only of targets in contexts that they follow, in Chromium's order; created before anything else.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import structlog

from ...browsers.cdp import CdpConnection
from ...browsers.pages import own_profile
from ...browsers.port import BrowserGone, CdpFailure, TabGone
from .first_document import FirstDocument, lacks_renderer

log = structlog.get_logger("cdp")

# How long a client may keep a new target waiting. It is the client's own, but we may have to work in it, too.
HELD_LIMIT_S: Final = 10.0
# How long a target that was let run may take to say so; one that is busy with its first script does not.
LET_GO_LIMIT_S: Final = 5.0
# A data: address may be megabytes long, and it is kept for every target.
TEXT_MAX: Final = 64 << 10

TargetInfo = Mapping[str, Any]
# As CDP has it: the first entry that fits a type decides, and a type that none fits is left out.
TargetFilter = Sequence[Mapping[str, Any]]
DEFAULT_FILTER: Final[TargetFilter] = ({"type": "browser", "exclude": True}, {"type": "tab", "exclude": True}, {})
_ALL: Final[TargetFilter] = ({},)
# What a browser's own auto-attach is asked for: tabs only wrap pages, and the rest is nobody's.
_GATE_FILTER: Final[TargetFilter] = (
    {"type": "browser", "exclude": True},
    {"type": "tab", "exclude": True},
    {"type": "browser_ui", "exclude": True},
    {},
)
# What a tab is asked for, to see the page that it wraps.
_PAGE_OF_TAB: Final = {
    "autoAttach": True,
    "waitForDebuggerOnStart": False,
    "flatten": True,
    "filter": ({"type": "page"},),
}
# What no client is shown, whoever it is.
_HIDDEN: Final = frozenset({"browser", "browser_ui"})


class Follower(Protocol):
    """Whom a watch tells about targets. Called from the event loop, must not block or raise."""

    def target_created(self, info: TargetInfo) -> None: ...

    def target_changed(self, info: TargetInfo) -> None: ...

    def target_crashed(self, event: Mapping[str, Any]) -> None: ...

    def target_destroyed(self, target_id: str) -> None: ...

    def target_arrived(self, info: TargetInfo, is_waiting: bool) -> bool:
        """A target to which a browser's auto-attach attaches is there; whether it must wait for this follower."""
        ...


class _Held:
    """A target that waits."""

    def __init__(
        self, session_id: str, waited_for: set[Follower], limit: asyncio.TimerHandle, first: FirstDocument | None
    ) -> None:
        self.session_id = session_id
        self.waited_for = waited_for
        self.limit = limit
        # What it is prepared for, if it has no renderer that could hear it from its clients.
        self.first = first


class TargetWatch:
    """What is known of one browser's targets. Made by `start`."""

    def __init__(self, connection: CdpConnection) -> None:
        self._connection = connection
        self._targets: dict[str, TargetInfo] = {}
        # Those to which a browser's auto-attach would attach.
        self._attachable: set[str] = set()
        # By the context that they own.
        self._followers: defaultdict[str, set[Follower]] = defaultdict(set)
        self._held: dict[str, _Held] = {}
        # Those that were just let run.
        self._letting_go: set[asyncio.Task[None]] = set()
        # The tab that wraps each page, both ways.
        self._tab_of: dict[str, str] = {}
        self._page_of: dict[str, str] = {}
        # While all that exists is told, which is in no order.
        self._is_listing = False
        # The tab that came up last, until its page does: Chromium says them in one breath.
        self._last_tab: TargetInfo | None = None
        # Chromium's id of the browser's own profile.
        self.own_profile_id = ""
        for method, heard in (
            ("Target.targetCreated", self._created),
            ("Target.targetInfoChanged", self._changed),
            ("Target.targetCrashed", self._crashed),
            ("Target.targetDestroyed", self._destroyed),
            ("Target.attachedToTarget", self._attached),
        ):
            connection.listen(None, method, heard)

    @classmethod
    async def start(cls, endpoint: str, *, may_hold: bool = True) -> TargetWatch:
        """Watch the browser at that address; `BrowserGone` when it is not there.

        Where targets must not wait, a popup may run before its owner has attached.
        """
        watch = cls(await CdpConnection.connect(endpoint))
        try:
            contexts = await watch._connection.call("Target.getBrowserContexts")
            targets = await watch._connection.call("Target.getTargets")
            watch.own_profile_id = own_profile(contexts, targets["targetInfos"])
            watch._is_listing = True
            await watch._connection.call("Target.setDiscoverTargets", {"discover": True, "filter": _ALL})
            watch._is_listing = False
            await asyncio.gather(*map(watch._ask_for_page, watch._unpaired_tabs()))
            await watch._connection.call(
                "Target.setAutoAttach",
                {"autoAttach": True, "waitForDebuggerOnStart": may_hold, "flatten": True, "filter": _GATE_FILTER},
            )
        except CdpFailure as failure:
            await watch.close()
            raise BrowserGone(f"The browser does not show its targets: {failure}", was_sent=False) from failure
        except BaseException:
            await watch.close()
            raise
        return watch

    async def close(self) -> None:
        await self._connection.close()

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed

    def get(self, target_id: str) -> TargetInfo | None:
        return self._targets.get(target_id)

    def in_context(self, context_id: str) -> Iterator[TargetInfo]:
        return (info for info in list(self._targets.values()) if info.get("browserContextId") == context_id)

    def is_attachable(self, target_id: str) -> bool:
        """Whether the browser's auto-attach attaches to it; it does not to frames and dedicated workers."""
        return target_id in self._attachable

    def is_held_for(self, target_id: str, follower: Follower) -> bool:
        held = self._held.get(target_id)
        return held is not None and follower in held.waited_for

    def first_document(self, target_id: str, follower: Follower) -> FirstDocument | None:
        """The first document of a window that waits for this follower and cannot hear it before it runs."""
        held = self._held.get(target_id)
        return held.first if held is not None and follower in held.waited_for else None

    def page_of_tab(self, target_id: str) -> str:
        """The page that this tab wraps; empty when that is not known."""
        return self._page_of.get(target_id, "")

    def tab_of_page(self, target_id: str) -> TargetInfo | None:
        """The tab that wraps this page."""
        return self._targets.get(self._tab_of.get(target_id, ""))

    def follow(self, context_id: str, follower: Follower) -> None:
        """Tell this follower of targets in that context from now on; what is there already it reads by itself."""
        self._followers[context_id].add(follower)

    def unfollow(self, context_id: str, follower: Follower) -> None:
        """Tell it nothing more, and wait for it no longer."""
        self._followers[context_id].discard(follower)
        if not self._followers[context_id]:
            del self._followers[context_id]
        for target_id in list(self._held):
            info = self._targets.get(target_id)
            if info is None or info.get("browserContextId") == context_id:
                self.let_run(target_id, follower)

    def let_run(self, target_id: str, follower: Follower) -> None:
        """The follower has seen to it. Idempotent."""
        held = self._held.get(target_id)
        if held is not None and follower in held.waited_for:
            held.waited_for.discard(follower)
            if not held.waited_for:
                self._run(target_id)

    # --- What Chromium says -----------------------------------------------------------------------------------------

    def _created(self, event: Mapping[str, Any]) -> None:
        info = _bounded(event["targetInfo"])
        if info["type"] in _HIDDEN:
            return
        self._targets[info["targetId"]] = info
        self._pair(info)
        for follower in self._followers_of(info):
            follower.target_created(info)

    def _changed(self, event: Mapping[str, Any]) -> None:
        info = _bounded(event["targetInfo"])
        known = self._targets.get(info["targetId"])
        if known is None or known == info:
            return
        self._targets[info["targetId"]] = info
        for follower in self._followers_of(info):
            follower.target_changed(info)

    def _crashed(self, event: Mapping[str, Any]) -> None:
        if (info := self._targets.get(event["targetId"])) is not None:
            for follower in self._followers_of(info):
                follower.target_crashed(event)

    def _destroyed(self, event: Mapping[str, Any]) -> None:
        target_id = event["targetId"]
        info = self._targets.pop(target_id, None)
        self._attachable.discard(target_id)
        self._page_of.pop(self._tab_of.pop(target_id, ""), None)
        if (held := self._held.pop(target_id, None)) is not None:
            held.limit.cancel()
            if held.first is not None:
                held.first.vanish()
        if info is not None:
            for follower in self._followers_of(info):
                follower.target_destroyed(target_id)

    def _attached(self, event: Mapping[str, Any]) -> None:
        info, session_id, is_waiting = _bounded(event["targetInfo"]), event["sessionId"], event["waitingForDebugger"]
        if info["type"] == "tab":
            # Only `_ask_for_page` does that.
            return
        target_id = info["targetId"]
        self._attachable.add(target_id)
        waited_for = {one for one in self._followers_of(info) if one.target_arrived(info, is_waiting)}
        if not is_waiting:
            # Detached at once: a service worker that is attached to is never stopped.
            self._connection.post("Target.detachFromTarget", {"sessionId": session_id})
            return
        limit = asyncio.get_running_loop().call_later(HELD_LIMIT_S, self._run_late, target_id)
        first = FirstDocument(target_id) if lacks_renderer(info) else None
        self._held[target_id] = _Held(session_id, waited_for, limit, first)
        if not waited_for:
            self._run(target_id)

    # --- Parts ------------------------------------------------------------------------------------------------------

    def _pair(self, info: TargetInfo) -> None:
        tab, self._last_tab = self._last_tab, info if info["type"] == "tab" and not self._is_listing else None
        if info["type"] == "page" and tab is not None and tab.get("browserContextId") == info.get("browserContextId"):
            self._join(tab["targetId"], info["targetId"])

    def _join(self, tab_id: str, page_id: str) -> None:
        self._tab_of[page_id] = tab_id
        self._page_of[tab_id] = page_id

    def _unpaired_tabs(self) -> list[str]:
        """Tabs whose page matters, for ownership goes by target in the browser's own profile, and is not known."""
        found = self.in_context(self.own_profile_id)
        return [one["targetId"] for one in found if one["type"] == "tab" and one["targetId"] not in self._page_of]

    async def _ask_for_page(self, tab_id: str) -> None:
        """Which page that tab wraps: the one to which its own auto-attach attaches."""
        try:
            attached = await self._connection.call("Target.attachToTarget", {"targetId": tab_id, "flatten": True})
            session_id = attached["sessionId"]
            stop = self._connection.listen(
                session_id,
                "Target.attachedToTarget",
                lambda event: self._join(tab_id, event["targetInfo"]["targetId"]),
            )
            await self._connection.call("Target.setAutoAttach", _PAGE_OF_TAB, session_id=session_id)
            stop()
            self._connection.post("Target.detachFromTarget", {"sessionId": session_id})
        except (CdpFailure, TabGone) as failure:
            log.debug("a tab was closed before it was known", targetId=tab_id, reason=str(failure))

    def _followers_of(self, info: TargetInfo) -> list[Follower]:
        return list(self._followers.get(info.get("browserContextId", ""), ()))

    def _run(self, target_id: str) -> None:
        held = self._held.pop(target_id)
        held.limit.cancel()
        if held.first is not None and held.first.is_prepared:
            run = held.first.run(self._connection, held.session_id)
        else:
            run = self._let_go(held.session_id)
        letting_go = asyncio.get_running_loop().create_task(run)
        self._letting_go.add(letting_go)
        letting_go.add_done_callback(self._letting_go.discard)

    async def _let_go(self, session_id: str) -> None:
        """Let it run, and leave it once it has heard so: a worker that is left before waits for ever."""
        try:
            async with asyncio.timeout(LET_GO_LIMIT_S):
                await self._connection.call("Runtime.runIfWaitingForDebugger", session_id=session_id)
        except (TimeoutError, BrowserGone, CdpFailure, TabGone) as reason:
            log.debug("a new target does not say that it runs", reason=str(reason))
        self._connection.post("Target.detachFromTarget", {"sessionId": session_id})

    def _run_late(self, target_id: str) -> None:
        log.info("a client keeps a new page waiting; it runs without it", targetId=target_id)
        self._run(target_id)


def is_wanted(wanted: TargetFilter, target_type: str) -> bool:
    """Whether a filter lets that type through."""
    for entry in wanted:
        if entry.get("type") in (None, target_type):
            return not entry.get("exclude", False)
    return False


def _bounded(info: TargetInfo) -> TargetInfo:
    if len(info["url"]) <= TEXT_MAX and len(info["title"]) <= TEXT_MAX:
        return info
    return {**info, "url": info["url"][:TEXT_MAX], "title": info["title"][:TEXT_MAX]}
