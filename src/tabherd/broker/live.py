"""The live views of this node: which tabs people watch, each through one view, however many they are.

Watching is passive: it takes no turn at the gate, and says nothing about whether the session's owner is alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..browsers.screencast import Look, Screencast
from ..errors import Capacity
from ..metrics import Metrics
from .access import Access
from .audit import Auditor
from .live_view import House, LiveView, OpenCast, Viewer
from .registry import LiveTab, Registry
from .settings import Settings
from .tabs import Tabs

# How many may watch one tab.
VIEWERS_MAX: Final = 50


class LiveViews:
    """Who watches what."""

    def __init__(
        self,
        *,
        settings: Settings,
        registry: Registry,
        access: Access,
        tabs: Tabs,
        auditor: Auditor,
        metrics: Metrics,
        clock: Callable[[], int],
        open_cast: OpenCast = Screencast.open,
    ) -> None:
        self._access = access
        self._metrics = metrics
        # By tab; one whose last viewer has left may still be closing.
        self._views: dict[str, LiveView] = {}
        self._house = House(
            registry=registry,
            access=access,
            tabs=tabs,
            auditor=auditor,
            pool_of=lambda name: settings.current.pools[name],
            open=open_cast,
            clock=clock,
        )
        tabs.before_resume = self._let_go
        metrics.live_viewers.set_function(lambda: sum(map(len, self._views.values())))

    def watch(self, viewer: Viewer, tab_id: str, look: Look) -> LiveView:
        """Show this viewer the tab from now on, if it may see it; until it leaves, or is told of the end."""
        viewer.caller.require("browse")
        tab = self._access.tab(viewer.caller, tab_id)
        view = self._views.get(tab_id)
        if view is None or view.tab is not tab:
            view = self._views[tab_id] = LiveView(self._house, tab, self._forget)
        if len(view) >= VIEWERS_MAX:
            raise Capacity(
                f"{VIEWERS_MAX} people watch this tab already.", reason="viewer_cap", cap=VIEWERS_MAX, count=len(view)
            )
        view.join(viewer, look)
        return view

    async def _let_go(self, tab: LiveTab) -> None:
        """Agents are about to have the tab again."""
        view = self._views.get(tab.row.id)
        if view is not None:
            await view.let_go()

    def _forget(self, view: LiveView) -> None:
        if self._views.get(view.tab.row.id) is view:
            del self._views[view.tab.row.id]
