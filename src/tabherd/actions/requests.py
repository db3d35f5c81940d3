"""What a tab is loading: the requests that are on their way, and how that for the document itself has ended.

Chromium tells of requests only when it is asked to, which costs a busy page a little for as long as it lasts. So it is
asked where the answer matters: by whoever waits for the network to be idle, and by moves through the history, whose
failures nothing else explains. What is remembered is bounded, whatever a page asks for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final

from ..browsers.port import TabPort

# So many requests on their way are remembered, of which so many are told, cut to so many characters.
PENDING_MAX: Final = 1_000
TOLD_MAX: Final = 5
URL_MAX_CHARS: Final = 200
# Nobody will ask for what was received.
_KEEP_NOTHING: Final = {"maxTotalBufferSize": 0, "maxResourceBufferSize": 0, "maxPostDataSize": 0}


class Requests:
    """Those of one tab, for as long as it is entered."""

    def __init__(self, tab: TabPort, on_sent: Callable[[], None], *, is_wanted: bool) -> None:
        self._tab = tab
        # Told of each request.
        self._tell = on_sent
        # Whether to ask at all; nothing is known otherwise.
        self._is_wanted = is_wanted
        # Addresses by request id. A document's request has the id of its loader.
        self._pending: dict[str, str] = {}
        # The addresses that were asked for last, each once, the newest at the end.
        self._recent: dict[str, None] = {}
        # How requests for documents ended, by loader: Chromium's error, and the status that was answered.
        self._errors: dict[str, str] = {}
        self._statuses: dict[str, int] = {}
        self._stops: tuple[Callable[[], None], ...] = ()

    async def __aenter__(self) -> Requests:
        if self._is_wanted:
            self._stops = (
                self._tab.listen("Network.requestWillBeSent", self._on_sent),
                self._tab.listen("Network.responseReceived", self._on_answered),
                self._tab.listen("Network.loadingFinished", self._on_over),
                self._tab.listen("Network.loadingFailed", self._on_failed),
            )
            await self._tab.call("Network.enable", _KEEP_NOTHING)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stop in self._stops:
            stop()
        if self._is_wanted and kind is None:
            # Whoever leaves early has no time for it, and loses little: nobody hears what is told.
            await self._tab.call("Network.disable")

    def busy_with(self) -> list[str]:
        """Some addresses that keep the tab busy: what is on its way, the oldest first, and what was asked for last."""
        oldest = itertools.islice(self._pending.values(), TOLD_MAX)
        return list(dict.fromkeys([*oldest, *reversed(self._recent)]))[:TOLD_MAX]

    def error_of(self, loader_id: str) -> str:
        """How the request for that document failed, in Chromium's words; empty when that is not known."""
        return self._errors.get(loader_id, "")

    def status_of(self, loader_id: str) -> int | None:
        """What the server answered for that document; None when that is not known."""
        return self._statuses.get(loader_id)

    def _on_sent(self, event: Mapping[str, Any]) -> None:
        url = event["request"]["url"][:URL_MAX_CHARS]
        if len(self._pending) < PENDING_MAX:
            self._pending[event["requestId"]] = url
        self._recent.pop(url, None)
        self._recent[url] = None
        if len(self._recent) > TOLD_MAX:
            del self._recent[next(iter(self._recent))]
        self._tell()

    def _on_answered(self, event: Mapping[str, Any]) -> None:
        if event.get("type") == "Document" and len(self._statuses) < PENDING_MAX:
            self._statuses[event["requestId"]] = event["response"]["status"]

    def _on_failed(self, event: Mapping[str, Any]) -> None:
        self._on_over(event)
        if event.get("type") == "Document" and len(self._errors) < PENDING_MAX:
            self._errors[event["requestId"]] = event["errorText"]

    def _on_over(self, event: Mapping[str, Any]) -> None:
        self._pending.pop(event["requestId"], None)
