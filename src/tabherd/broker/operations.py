"""What an operator sees and does: the browsers, the pools, restarting and draining.

Two degrees of leaving. *Draining*, asked for over the API and taken back the same way: no new session is admitted and
whoever waits for one is turned away, but those who have a session go on with it. *Stopping*, by signal and for good:
no new command is taken either, so that the server ends as soon as those that run are over.

A browser that is drained takes nothing new and is replaced at once; it ends with its last session. One that is
restarted ends now, and its sessions are recovered in another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from .. import wire
from ..browsers.pool import Pool
from ..browsers.slot import Slot
from ..core.lifecycle import BrowserState
from ..errors import BrowserNotFound, Draining, StateConflict
from .admission import Admission
from .caller import Caller
from .events import EventBus
from .registry import Registry
from .views import browser_view, rfc3339

# When to come back: a drain is over when an operator says so, a stop when another server has taken its place.
RETRY_DRAINING_MS = 5_000
RETRY_STOPPING_MS = 1_000


class Operations:
    """The verbs of whoever runs this node."""

    def __init__(
        self,
        *,
        node_id: str,
        pools: Mapping[str, Pool],
        admissions: Mapping[str, Admission],
        registry: Registry,
        events: EventBus,
        clock: Callable[[], int],
        evict_on: Callable[[str], None],
    ) -> None:
        self._node_id = node_id
        self._pools = pools
        self._admissions = admissions
        self._registry = registry
        self._events = events
        self._clock = clock
        # Closes the pooled tabs in that browser.
        self._evict_on = evict_on
        # Called when nothing new is taken from now on; whoever waits for something else than a session is turned away.
        self.on_draining: Callable[[], None] = lambda: None
        # No session is admitted.
        self.is_draining = False
        # No command is taken either, and there is no way back. Implies draining.
        self.is_stopping = False
        # Raises while this node may have lost what it has.
        self.refuse_untrusted: Callable[[], None] = lambda: None

    # --- Reads ----------------------------------------------------------------------------------------------

    def browsers(self, caller: Caller) -> wire.BrowserPage:
        """Every browser of this node, also those that start, finish or wait for their circuit."""
        caller.require("browse")
        return wire.BrowserPage(browsers=[self._view(slot) for _, slot in self._slots()])

    def stats(self, caller: Caller, *, of_all: bool = False) -> wire.Stats:
        """What each pool has, gives and could give; with the caller's own waiters, or all that it may see."""
        caller.require("browse")
        agent_id = None if of_all and caller.is_admin else caller.agent_id
        return wire.Stats(
            node=self._node_id,
            draining=self.is_draining,
            sessions=len(self._registry),
            pools={name: self._pool_stats(name, pool, agent_id) for name, pool in self._pools.items()},
        )

    def has_browser(self, browser_id: str) -> bool:
        """Whether it is one of this node's."""
        return any(slot.row.id == browser_id for _, slot in self._slots())

    # --- One browser ----------------------------------------------------------------------------------------

    def restart_browser(self, caller: Caller, browser_id: str) -> wire.BrowserView:
        """End that browser now and start another; also one whose circuit is open, without waiting for it."""
        caller.require("admin")
        _, slot = self._find(browser_id)
        if slot.browser is None and slot.row.state is not BrowserState.BROKEN:
            raise _not_now(slot)
        slot.restart()
        return self._view(slot)

    def drain_browser(self, caller: Caller, browser_id: str) -> wire.BrowserView:
        """Send nothing new to that browser, end it with its last session, and start its replacement now."""
        caller.require("admin")
        pool, slot = self._find(browser_id)
        if slot.browser is None:
            raise _not_now(slot)
        if not slot.is_draining:
            self._events.publish("browser.draining", browserId=browser_id, pool=pool.name)
            slot.drain("drained")
            self._evict_on(browser_id)
            pool.slot_changed(slot)
        return self._view(slot)

    # --- The node -------------------------------------------------------------------------------------------

    def drain(self, caller: Caller) -> wire.NodeDrain:
        """Admit no session from now on. Those that are open go on. Repeating it changes nothing."""
        caller.require("admin")
        if not self.is_draining:
            self._stop_admitting()
        return self._drain_view()

    def resume(self, caller: Caller) -> wire.NodeDrain:
        """Take a drain back. A server that was told to stop does not come back."""
        caller.require("admin")
        if self.is_stopping:
            raise self.refusal()
        if self.is_draining:
            self.is_draining = False
            self._events.publish("node.ready", nodeId=self._node_id)
        return self._drain_view()

    def stop(self) -> None:
        """Take nothing new for good: this server is about to end."""
        if not self.is_stopping:
            self.is_stopping = True
            self._stop_admitting()

    def refuse_sessions(self) -> None:
        """Raise `Draining` while no session is admitted."""
        self.refuse_untrusted()
        if self.is_draining:
            raise self.refusal()

    def refuse_commands(self) -> None:
        """Raise `Draining` when no command is taken any more."""
        self.refuse_untrusted()
        if self.is_stopping:
            raise self.refusal()

    # --- Parts ----------------------------------------------------------------------------------------------

    def _stop_admitting(self) -> None:
        self.is_draining = True
        self._events.publish("node.draining", nodeId=self._node_id, stopping=self.is_stopping)
        for admission in self._admissions.values():
            admission.turn_away(self.refusal)
        self.on_draining()

    def refusal(self) -> Draining:
        """What is said to whoever comes meanwhile."""
        if self.is_stopping:
            return Draining("The server is stopping.", retry_after_ms=RETRY_STOPPING_MS)
        return Draining("The server is draining: it admits no new session.", retry_after_ms=RETRY_DRAINING_MS)

    def _slots(self) -> Iterator[tuple[Pool, Slot]]:
        return ((pool, slot) for pool in self._pools.values() for slot in pool.slots)

    def _find(self, browser_id: str) -> tuple[Pool, Slot]:
        for pool, slot in self._slots():
            if slot.row.id == browser_id:
                return pool, slot
        raise BrowserNotFound("No such browser.")

    def _view(self, slot: Slot) -> wire.BrowserView:
        sessions = len(self._registry.on_browser(slot.row.id))
        return browser_view(slot, sessions, slot.breaker.state(self._clock()))

    def _pool_stats(self, name: str, pool: Pool, agent_id: str | None) -> wire.PoolStats:
        admission = self._admissions[name]
        waiters = [
            wire.SessionWaiter(
                agent_id=place.waiter.agent_id,
                key=place.waiter.key,
                position=place.position,
                expected_wait_ms=place.expected_wait_ms,
                since=rfc3339(place.waiter.arrived_at),
            )
            for place in admission.places_of(agent_id)
        ]
        return wire.PoolStats(
            active=admission.active,
            pooled=len(admission.stock),
            tabs=admission.tabs,
            waiting=admission.waiting,
            waiting_since=None if admission.waiting_since is None else rfc3339(admission.waiting_since),
            capacity=admission.caps.max_active,
            shared_cap=0 if admission.store_caps is admission.caps else admission.store_caps.max_active,
            free_seats=pool.free_seats,
            stock=pool.stock_size,
            browsers=sum(slot.browser is not None for slot in pool.slots),
            waiters=waiters,
        )

    def _drain_view(self) -> wire.NodeDrain:
        return wire.NodeDrain(draining=self.is_draining, sessions=len(self._registry))


def _not_now(slot: Slot) -> StateConflict:
    row = slot.row
    return StateConflict(
        f"The browser is {row.state}.", action="Wait until it is ready.", browserId=row.id, state=row.state
    )
