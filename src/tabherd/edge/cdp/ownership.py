"""What one client's connection owns in a browser: the facts that `rules` judges by.

Where every session has a context, whatever is in the session's context and in those that the client itself made is its
own. Where tenants share one, ownership is by target: the session's tabs, what they opened, and what the client made.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from ...broker.registry import LiveSession, Registry
from .rules import Tenancy
from .targets import TargetInfo, TargetWatch

# How many contexts one connection may have at a time, besides the session's own.
CONTEXTS_MAX: Final = 20
# How many pages a session may have, in all its contexts.
PAGES_MAX: Final = 50
# How often a client may crash its own pages: so many times in so many seconds.
CRASHES_MAX: Final = 5
CRASHES_WINDOW_S: Final = 60.0
# Downloads that are remembered.
DOWNLOADS_MAX: Final = 10_000

# Addresses to which no client can send a page.
_OF_THE_BROWSER: Final = ("chrome:", "devtools:")


class Ownership:
    """What one connection owns."""

    def __init__(
        self,
        *,
        live: LiveSession,
        tenancy: Tenancy,
        watch: TargetWatch,
        registry: Registry,
        proxy: Mapping[str, str],
        download_dir: Callable[[], str],
        may_read: Callable[[str], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.live = live
        self.tenancy = tenancy
        self.watch = watch
        self.proxy = proxy
        self._registry = registry
        self._download_dir = download_dir
        self._may_read = may_read
        self._clock = clock
        # The context of the session; empty where it is shared.
        self.context_id = live.row.context_id
        # Those that this client made, and how many are being made.
        self.contexts: set[str] = set()
        self.contexts_wanted = 0
        # Pages that are being made.
        self.targets_wanted = 0
        # Where the context is shared: pages that this client made.
        self.made: set[str] = set()
        # Where the client itself looks for its downloads, if it said so.
        self.client_dir = ""
        self._windows: set[int] = set()
        self._downloads: dict[str, None] = {}
        self._crashes: deque[float] = deque(maxlen=CRASHES_MAX)

    @property
    def contexts_left(self) -> int:
        return CONTEXTS_MAX - len(self.contexts) - self.contexts_wanted

    @property
    def targets_left(self) -> int:
        return PAGES_MAX - len([info for info in self.targets() if info["type"] == "page"]) - self.targets_wanted

    @property
    def download_dir(self) -> str:
        return self._download_dir()

    def owns_context(self, context_id: str) -> bool:
        return bool(context_id) and (context_id == self.context_id or context_id in self.contexts)

    def owns_target(self, target_id: str) -> bool:
        info = self.watch.get(target_id)
        return info is not None and self.owns(info)

    def owns(self, info: TargetInfo) -> bool:
        """Whether that target is this client's."""
        if info["url"].startswith(_OF_THE_BROWSER):
            # A window of the full build has tabs of the browser's own, such as what drops from the address bar.
            return False
        if not self.tenancy.is_shared:
            return self.owns_context(info.get("browserContextId", ""))
        target_id = self.watch.page_of_tab(info["targetId"]) if info["type"] == "tab" else info["targetId"]
        if target_id in self.made:
            return True
        tab = self._registry.on_target(target_id)
        if tab is not None:
            return tab.session is self.live
        # What an own page opened is own; a frame or a worker of one is reached through its page only.
        opener = self._registry.on_target(info.get("openerId", ""))
        return info.get("openerId") in self.made or (opener is not None and opener.session is self.live)

    def targets(self) -> list[TargetInfo]:
        """Everything that is this client's, in the order in which it came up."""
        return [info for context_id in self.followed for info in self.watch.in_context(context_id) if self.owns(info)]

    @property
    def followed(self) -> list[str]:
        """The contexts in which targets of this client can come up."""
        return [self.context_id or self.watch.own_profile_id, *self.contexts]

    def owns_window(self, window_id: int) -> bool:
        return window_id in self._windows

    def learn_window(self, window_id: int) -> None:
        """Chromium named it as the window of an own target."""
        self._windows.add(window_id)

    def owns_download(self, guid: str) -> bool:
        return guid in self._downloads

    def learn_download(self, guid: str) -> None:
        """A page of this client began it."""
        self._downloads[guid] = None
        if len(self._downloads) > DOWNLOADS_MAX:
            del self._downloads[next(iter(self._downloads))]

    def may_read(self, path: str) -> bool:
        return self._may_read(path)

    def may_crash(self) -> bool:
        """Whether it may crash a page of its own now; counts."""
        now = self._clock()
        if len(self._crashes) == CRASHES_MAX and now - self._crashes[0] < CRASHES_WINDOW_S:
            return False
        self._crashes.append(now)
        return True
