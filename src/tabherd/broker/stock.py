"""The pooled tabs of one pool: given back by their last holder, waiting for the next one of their key.

Newest first: the tab that was used last is the likeliest to be still logged in and alive. A tab that kept its page goes
only to whom its last holder allowed; one that was made clean goes to anybody with the same key.
"""

from __future__ import annotations

from collections import Counter

from ..browsers.port import BrowserPort, TabPort
from ..browsers.slot import Slot
from ..core.caps import Caps
from ..core.model import Session, Tab


class PooledTab:
    """One tab that nobody holds. Its lease's row says `pooled`."""

    def __init__(self, row: Session, tab: Tab, browser: BrowserPort, port: TabPort, slot: Slot) -> None:
        self.row = row
        self.tab = tab
        self.browser = browser
        self.port = port
        # Where its seat is; it is counted there under the id of the lease that gave it back.
        self.slot = slot

    def suits(self, agent_id: str, key: str) -> bool:
        """Whether that caller may have it."""
        if self.row.key != key:
            return False
        return self.row.reuse != "same-agent" or self.row.agent_id == agent_id


class Stock:
    """The pooled tabs of one pool, oldest first."""

    def __init__(self) -> None:
        self._tabs: dict[str, PooledTab] = {}

    def __len__(self) -> int:
        return len(self._tabs)

    def put(self, pooled: PooledTab) -> None:
        assert pooled.row.id not in self._tabs, "a tab is pooled once"
        self._tabs[pooled.row.id] = pooled

    def take(self, agent_id: str, key: str) -> PooledTab | None:
        """The newest one that suits the caller; it is out of the stock."""
        pooled = self.find(agent_id, key)
        if pooled is not None:
            del self._tabs[pooled.row.id]
        return pooled

    def find(self, agent_id: str, key: str) -> PooledTab | None:
        return next((pooled for pooled in reversed(self._tabs.values()) if pooled.suits(agent_id, key)), None)

    def take_oldest(self, key: str | None = None) -> PooledTab | None:
        """The one that has waited longest, of that key or of all; it is out of the stock."""
        oldest = next((pooled for pooled in self._tabs.values() if key is None or pooled.row.key == key), None)
        if oldest is not None:
            del self._tabs[oldest.row.id]
        return oldest

    def take_excess(self, caps: Caps) -> list[PooledTab]:
        """Those that are too many, of one key or of all, the oldest first; they are out of the stock."""
        excess: list[PooledTab] = []
        for key, count in Counter(pooled.row.key for pooled in self._tabs.values()).items():
            # The empty key is never capped.
            if key and caps.max_pooled_per_key:
                excess += self._take_first(count - caps.max_pooled_per_key, key)
        if caps.max_pooled:
            excess += self._take_first(len(self._tabs) - caps.max_pooled)
        return excess

    def take_on(self, browser_id: str) -> list[PooledTab]:
        """Those in that browser; they are out of the stock."""
        return self._take([pooled for pooled in self._tabs.values() if pooled.row.browser_id == browser_id])

    def take_on_target(self, target_id: str) -> PooledTab | None:
        """The one whose page this is; it is out of the stock."""
        found = self._take([pooled for pooled in self._tabs.values() if pooled.tab.target_id == target_id])
        return found[0] if found else None

    def take_before(self, pooled_at: int) -> list[PooledTab]:
        """Those that were given back then or earlier; they are out of the stock."""
        return self._take([pooled for pooled in self._tabs.values() if pooled.row.pooled_at <= pooled_at])

    @property
    def oldest_at(self) -> int | None:
        """When the one that has waited longest was given back."""
        return min((pooled.row.pooled_at for pooled in self._tabs.values()), default=None)

    def _take_first(self, count: int, key: str | None = None) -> list[PooledTab]:
        return [pooled for _ in range(count) if (pooled := self.take_oldest(key)) is not None]

    def _take(self, pooled_tabs: list[PooledTab]) -> list[PooledTab]:
        for pooled in pooled_tabs:
            del self._tabs[pooled.row.id]
        return pooled_tabs
