"""What the first document of a window without an opener must have before its first script.

Such a window has no renderer while it waits at the gate. Chromium keeps what a client says to it until its first
document is there, and then lets that run; only what the gate's own session says is in force before. So the gate adds
the clients' scripts, bindings and settings on their behalf, and takes them back once the clients' own scripts and
bindings are in force. Its session stays: to leave would answer a dialog that the page has just opened.

Invariants:
- Each client is told once that the first document is there, also when it never comes.
- What clients add is bounded in number and size.
- A call of a binding is handed on until the gate's is taken back; clients may have heard of it themselves, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import structlog

from ...browsers.cdp import CdpConnection
from ...browsers.port import BrowserGone, CdpFailure, TabGone

log = structlog.get_logger("cdp")

# How long the site may take to answer; until it does there is no renderer.
ANSWER_LIMIT_S: Final = 60.0
# How long each of these may take from there: the document, the clients' own scripts and bindings, taking back.
STEP_LIMIT_S: Final = 5.0
# What clients may add to one window.
ADDED_MAX: Final = 500
ADDED_MAX_BYTES: Final = 16 << 20

ADD_SCRIPT: Final = "Page.addScriptToEvaluateOnNewDocument"
RUN: Final = "Runtime.runIfWaitingForDebugger"
# How settings are taken back.
_UNSET: Final[Mapping[str, Mapping[str, Any]]] = {
    "Emulation.setEmulatedMedia": {"media": "", "features": []},
    "Emulation.setLocaleOverride": {},
    "Emulation.setTimezoneOverride": {"timezoneId": ""},
    "Emulation.setTouchEmulationEnabled": {"enabled": False},
    "Emulation.setUserAgentOverride": {"userAgent": ""},
    "Network.setUserAgentOverride": {"userAgent": ""},
}


class Client(Protocol):
    """On whose behalf something was added. Called from the event loop, must not block or raise."""

    def begun(self, target_id: str) -> asyncio.Future[Any]:
        """The first document is there; the future ends when what the client itself has said is in force."""
        ...

    def binding_called(self, target_id: str, call: Mapping[str, Any]) -> None:
        """The document called a binding, maybe before the client's own was in force."""
        ...

    def ended(self, target_id: str) -> None:
        """No more calls will be handed on."""
        ...


class FirstDocument:
    """The first document of one window."""

    def __init__(self, target_id: str) -> None:
        self._target_id = target_id
        self._clients: list[Client] = []
        # Commands and their parameters, in the order in which they were added.
        self._added: list[tuple[str, Mapping[str, Any]]] = []
        self._added_bytes = 0

    @property
    def is_prepared(self) -> bool:
        return bool(self._clients)

    def add(self, client: Client, method: str, params: Mapping[str, Any], size: int) -> bool:
        """Have a script, a binding or a setting in force before the first script; whether there was room for it."""
        if len(self._added) >= ADDED_MAX or self._added_bytes + size > ADDED_MAX_BYTES:
            return False
        self._added.append((method, params))
        self._added_bytes += size
        if client not in self._clients:
            self._clients.append(client)
        return True

    async def run(self, connection: CdpConnection, session_id: str) -> None:
        """Let the window run, with all that was added; returns when the clients need the gate no more."""
        stops = [connection.listen(session_id, "Runtime.bindingCalled", self._binding_called)]
        # The gate's own scripts.
        identifiers: list[str] = []
        try:
            await self._wait_begun(connection, session_id, stops, identifiers)
        except (TimeoutError, BrowserGone, CdpFailure, TabGone) as reason:
            log.debug("a window has no first document", targetId=self._target_id, reason=str(reason))
        # In documents that follow the clients' own run.
        for identifier in identifiers:
            connection.post("Page.removeScriptToEvaluateOnNewDocument", {"identifier": identifier}, session_id)
        clients = [client.begun(self._target_id) for client in self._clients]
        _, late = await asyncio.wait(clients, timeout=STEP_LIMIT_S)
        if late:
            # Its first script may have opened a dialog before its client could hear of it; this answers that.
            connection.post("Target.detachFromTarget", {"sessionId": session_id})
        else:
            await self._take_back(connection, session_id)
        for stop in stops:
            stop()
        self.vanish()

    def vanish(self) -> None:
        """The window is gone, or is left to its clients."""
        clients, self._clients = self._clients, []
        for client in clients:
            client.ended(self._target_id)

    async def _wait_begun(
        self, connection: CdpConnection, session_id: str, stops: list[Callable[[], None]], identifiers: list[str]
    ) -> None:
        begun = connection.expect("the first document", session_id)
        # It may fail before anybody waits for it.
        begun.add_done_callback(lambda done: done.cancelled() or done.exception())
        is_committed = False

        def navigated(event: Mapping[str, Any]) -> None:
            nonlocal is_committed
            is_committed = is_committed or "parentId" not in event["frame"]

        def created(_: Mapping[str, Any]) -> None:
            # The blank document that comes first has a context of its own.
            if is_committed:
                come(_)

        def come(_: Mapping[str, Any]) -> None:
            if not begun.done():
                begun.set_result(None)

        for method, heard in (
            ("Page.frameNavigated", navigated),
            ("Runtime.executionContextCreated", created),
            # A download has no document.
            ("Page.downloadWillBegin", come),
        ):
            stops.append(connection.listen(session_id, method, heard))
        commands = [("Page.enable", {}), *self._added, ("Runtime.enable", {}), (RUN, {})]
        calls = (connection.call(method, params, session_id) for method, params in commands)
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                # One that Chromium refuses it refuses its client, too.
                answers = await asyncio.gather(*calls, return_exceptions=True)
            identifiers += [one["identifier"] for one in answers if isinstance(one, dict) and "identifier" in one]
            async with asyncio.timeout(STEP_LIMIT_S):
                await begun
        finally:
            begun.cancel()

    async def _take_back(self, connection: CdpConnection, session_id: str) -> None:
        commands = [(method, _UNSET[method]) for method, _ in self._added if method in _UNSET]
        calls = (connection.call(method, params, session_id) for method, params in commands)
        try:
            async with asyncio.timeout(STEP_LIMIT_S):
                # This takes the bindings back.
                await asyncio.gather(*calls, connection.call("Runtime.disable", {}, session_id), return_exceptions=True)
        except TimeoutError:
            log.debug("a window does not answer", targetId=self._target_id)

    def _binding_called(self, call: Mapping[str, Any]) -> None:
        for client in self._clients:
            client.binding_called(self._target_id, call)


def lacks_renderer(info: Mapping[str, Any]) -> bool:
    """Whether a new target is a window that was opened without an opener: it has a renderer only when it has run."""
    return info["type"] == "page" and "openerId" in info and not info.get("canAccessOpener", True)
