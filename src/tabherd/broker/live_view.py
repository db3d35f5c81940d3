"""One tab as people watch it: one screencast for all viewers, who drives, and whose input passes the gate.

Invariants:
- However many watch, the page has one screencast, from the first viewer to the last. It follows the tab: to the page
  that is rebuilt after a crash, to another browser, and it comes back by itself.
- A viewer that has no room for a frame is passed over and gets the newest one when it has; nobody waits for it, and
  nothing is kept for it. A newcomer gets the last frame at once.
- Input passes only while the tab is handed off, from the one viewer that drives, and not while a command still runs or
  the page is being replaced. A driver that leaves stops driving, and the tab stays handed off.
- Whoever stops driving, however that comes, lets go of every key and button before an agent has the tab again.
- Whoever may not see the tab any more is cut off in that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec
import structlog

from .. import wire
from ..browsers.port import BrowserGone, CdpFailure
from ..browsers.screencast import Frame, Look, Screencast
from ..config import Pool
from ..core.gate import Hold, HoldReason
from ..core.lifecycle import TabState
from ..errors import StateConflict, TabherdError
from ..wire.live import LiveDriver, LiveInput, LiveState
from .access import Access, page_of
from .audit import Auditor
from .caller import Caller
from .live_hands import Hands
from .registry import LiveTab, Registry
from .tabs import Tabs
from .views import tab_view

log = structlog.get_logger("live")

# How often viewers are told of changes at the most; a busy tab changes hundreds of times a second.
TELL_S: Final = 0.1
# How long a page may take to be connected to, and when one that could not be is tried again.
OPEN_LIMIT_S: Final = 10.0
RETRY_S: Final = 1.0

# Opens a screencast: address, look, whom to show frames to.
OpenCast = Callable[[str, Look, Callable[[Frame], None]], Awaitable[Screencast]]


class Viewer(Protocol):
    """One who watches."""

    caller: Caller

    def show(self, seq: int, frame: Frame) -> bool:
        """Take this frame; False when there is no room for it now."""
        ...

    def tell(self, state: LiveState) -> None:
        """The tab, or who drives it, is like this."""
        ...

    def refuse(self, message: LiveInput, error: TabherdError) -> None:
        """Input that passed was refused by the page."""
        ...

    def end(self, error: TabherdError) -> None:
        """It is over for this viewer, for that reason."""
        ...


class House(msgspec.Struct, frozen=True):
    """What the views of one node have in common."""

    registry: Registry
    access: Access
    tabs: Tabs
    auditor: Auditor
    # The settings of a pool, by its name.
    pool_of: Callable[[str], Pool]
    open: OpenCast
    clock: Callable[[], int]


class _Seat(msgspec.Struct):
    """What is known of one viewer."""

    look: Look
    # The last frame that it took, and what it was told last.
    seq: int = 0
    told: LiveState | None = None


class LiveView:
    """The view of one tab, while anybody watches."""

    def __init__(self, house: House, tab: LiveTab, ended: Callable[[LiveView], None]) -> None:
        self.tab = tab
        self._house = house
        # Called when nobody watches any more and nothing is left of it.
        self._ended = ended
        self._seats: dict[Viewer, _Seat] = {}
        self._driver: Viewer | None = None
        self._hands = Hands()
        # Taking and giving are serial.
        self._turn = asyncio.Lock()
        self._cast: Screencast | None = None
        self._seq = 0
        self._latest: Frame | None = None
        # Set when the page may be another one, the screencast has ended, or the last viewer has left.
        self._news = asyncio.Event()
        # Tells viewers what has changed; None: they know.
        self._telling: asyncio.TimerHandle | None = None
        self._told_at = 0.0
        tab.gate.watch(self._gate_changed)
        tab.session.guests[self.id] = self
        # What is let go of; bounded by those who drove.
        self._tasks: set[asyncio.Task[None]] = set()
        # Follows the page until the last viewer has left.
        self._running = asyncio.get_running_loop().create_task(self._run())

    @property
    def id(self) -> str:
        """How its session knows it."""
        return f"live_{self.tab.row.id}"

    @property
    def is_over(self) -> bool:
        return self._running.done()

    # --- Viewers ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._seats)

    def join(self, viewer: Viewer, look: Look) -> None:
        """One more. It is told at once how things are, and shown the last frame."""
        self._seats[viewer] = _Seat(look)
        self._resize()
        self._tell()
        self.offer(viewer)

    def leave(self, viewer: Viewer) -> None:
        """One fewer. Idempotent."""
        if self._seats.pop(viewer, None) is None:
            return
        if self._driver is viewer:
            self._drop_driver()
        self._tell_later()
        self._news.set()
        if self._seats:
            self._resize()

    def resize(self, viewer: Viewer, look: Look) -> None:
        """The largest frame that this viewer wants is another one."""
        self._seats[viewer].look = look
        self._resize()

    def offer(self, viewer: Viewer) -> None:
        """The viewer has room: show it the newest frame, unless it has that."""
        seat = self._seats.get(viewer)
        if seat is None or self._latest is None or seat.seq == self._seq:
            return
        if viewer.show(self._seq, self._latest):
            seat.seq = self._seq
            if self._cast is not None:
                self._cast.taken()

    def _show(self, frame: Frame) -> None:
        self._seq += 1
        self._latest = frame
        for viewer in list(self._seats):
            self.offer(viewer)

    def _look(self) -> Look:
        looks = [seat.look for seat in self._seats.values()]
        width, height = max(look.width for look in looks), max(look.height for look in looks)
        return Look(width=width, height=height, quality=max(look.quality for look in looks))

    def _resize(self) -> None:
        if self._cast is not None:
            self._cast.resize(self._look())

    # --- Driving ----------------------------------------------------------------------------------------------------

    async def take(self, viewer: Viewer, *, force: bool) -> None:
        """Hand the tab to this viewer; one that was handed off already is theirs from now on."""
        caller, row = viewer.caller, self.tab.row
        async with self._turn:
            await self._house.access.owned(caller, row.session_id)
            if self._driver not in (None, viewer) and not force:
                raise self._driven_by_another()
            if not self._is_handed_off:
                await self._house.tabs.hand_off(caller, row.id, caller.agent_id)
            elif self._driver is not viewer:
                # It was an agent that asked for help, or somebody who left; that this one comes is noted as well.
                self._house.auditor.note(
                    agent_id=caller.agent_id,
                    controller_id=caller.controller_id,
                    verb="handoff",
                    tab=self.tab,
                    detail=f"driven by {caller.agent_id}",
                )
            if self._driver not in (None, viewer):
                self._driver = None
                await self._hands.let_go()
            if viewer in self._seats and self._is_handed_off:
                self._driver = viewer
                self._wake(True)
        self._tell()

    async def give(self, viewer: Viewer) -> None:
        """Give the tab back to agents, whoever drives it."""
        async with self._turn:
            if self._driver is viewer:
                # Their last click still counts.
                await self._hands.finish()
            await self._house.tabs.resume(viewer.caller, self.tab.row.id)
        self._tell()

    def act(self, viewer: Viewer, message: LiveInput) -> None:
        """Let this input through to the page, or raise why not."""
        tab, caller = self.tab, viewer.caller
        self._house.access.usable_tab(caller, tab.row.id, None, None)
        self._check(viewer)
        page_of(tab)
        self._hands.act(message, viewer.refuse, self._house.pool_of(tab.session.row.pool))

    async def let_go(self) -> None:
        """Agents are about to have the tab: nobody drives from now on, and nothing is pressed when this returns."""
        if self._driver is not None:
            self._driver = None
            self._wake(False)
        await self._hands.let_go()

    @property
    def _is_handed_off(self) -> bool:
        """Whether a person has the tab; not any more from the moment in which it is being given back."""
        gate = self.tab.gate.describe(self._house.clock())
        return gate.handoff is not None and self.tab.row.state is not TabState.READY

    def _check(self, viewer: Viewer) -> None:
        now = self._house.clock()
        gate = self.tab.gate.describe(now)
        if self._driver not in (None, viewer):
            raise self._driven_by_another()
        if self._driver is None or not self._is_handed_off:
            raise StateConflict("You only watch this tab.", action="Take it over first.", tabId=self.tab.row.id)
        hold = gate.quarantine
        if gate.holder is not None and gate.since is not None:
            # What ran when it was handed off finishes first.
            hold = Hold(reason=HoldReason.COMMAND, holder=gate.holder.controller_id, since=gate.since)
        if hold is not None:
            raise self.tab.gate.hold_refusal(hold, now)

    def _driven_by_another(self) -> StateConflict:
        assert self._driver is not None
        name = self._driver.caller.agent_id
        return StateConflict(
            f"{name} drives this tab.", action="Ask them, or take it over by force.", driver=name, tabId=self.tab.row.id
        )

    def _drop_driver(self) -> None:
        self._driver = None
        self._wake(False)
        # Before the connection is closed `_follow` waits until it has.
        task = asyncio.get_running_loop().create_task(self._hands.let_go())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _wake(self, is_awake: bool) -> None:
        if self._cast is not None:
            self._cast.wake(is_awake)

    # --- What happens to the tab ------------------------------------------------------------------------------------

    def detach(self, error: TabherdError) -> None:
        """The session has ended or changed hands: those who may still see it stay."""
        self._cut_off(lambda _: error)

    async def wait_detached(self) -> None:
        """Returns when nothing of those who were cut off can take effect any more."""
        if self._seats and self._house.registry.is_bound(self.tab.session):
            if self._driver is None:
                await self._hands.let_go()
            self.tab.session.guests[self.id] = self
        else:
            await asyncio.wait([self._running])

    def _gate_changed(self) -> None:
        self._news.set()
        self._tell_later()

    def _cut_off(self, why: Callable[[TabherdError], TabherdError]) -> None:
        """End it for those for whom the tab does not exist any more."""
        for viewer in list(self._seats):
            try:
                is_there = self._house.access.tab(viewer.caller, self.tab.row.id) is self.tab
                assert is_there, "a tab's id is never used again"
            except TabherdError as error:
                self.leave(viewer)
                viewer.end(why(error))

    def _tell_later(self) -> None:
        if self._telling is None:
            loop = asyncio.get_running_loop()
            # Never from inside the gate, which may be in the middle of a change.
            self._telling = loop.call_at(max(loop.time(), self._told_at + TELL_S), self._tell)

    def _tell(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        self._told_at = asyncio.get_running_loop().time()
        self._cut_off(lambda error: error)
        if self._driver is not None and not self._is_handed_off:
            # It was given back by somebody else.
            self._drop_driver()
        view = tab_view(self.tab, self._house.clock())
        for viewer, seat in list(self._seats.items()):
            state = self._state_for(viewer, view)
            if state != seat.told:
                seat.told = state
                viewer.tell(state)

    def _state_for(self, viewer: Viewer, view: wire.TabView) -> LiveState:
        driver = self._driver
        return LiveState(
            tab=view,
            driver=None if driver is None else LiveDriver(name=driver.caller.agent_id, is_you=driver is viewer),
            may_drive=viewer.caller.may_see(self.tab.session.row.agent_id),
            viewers=len(self._seats),
        )

    # --- The page ---------------------------------------------------------------------------------------------------

    def _page(self) -> str:
        """The address of the page behind the tab; empty while there is none."""
        tab, browser = self.tab, self.tab.session.browser
        is_up = tab.row.state in (TabState.READY, TabState.PAUSED, TabState.QUARANTINED)
        if browser is None or tab.port is None or not is_up:
            return ""
        return f"{browser.row.endpoint.partition('/devtools/')[0]}/devtools/page/{tab.row.target_id}"

    async def _run(self) -> None:
        try:
            # What called for this view joins first.
            await asyncio.sleep(0)
            while self._seats:
                self._news.clear()
                page = self._page()
                if not page:
                    await self._news.wait()
                elif (cast := await self._open(page)) is None:
                    await self._wait_news(RETRY_S)
                else:
                    await self._follow(cast, page)
                    if self._seats and self._page() == page:
                        # It ended, and nobody knows why yet.
                        self._news.clear()
                        await self._wait_news(RETRY_S)
        finally:
            self.tab.gate.unwatch(self._gate_changed)
            self.tab.session.guests.pop(self.id, None)
            if self._telling is not None:
                self._telling.cancel()
            self._ended(self)

    async def _open(self, page: str) -> Screencast | None:
        try:
            async with asyncio.timeout(OPEN_LIMIT_S):
                return await self._house.open(page, self._look(), self._show)
        except (BrowserGone, CdpFailure, TimeoutError) as error:
            # It is just being replaced, or about to be: then there is news soon.
            log.info("a page could not be watched", tabId=self.tab.row.id, error=str(error))
            return None

    async def _follow(self, cast: Screencast, page: str) -> None:
        """Until the screencast has ended, another page is behind the tab, or nobody watches."""
        over = asyncio.ensure_future(cast.wait_closed())
        over.add_done_callback(lambda _: self._news.set())
        self._cast = cast
        self._hands.put_on(cast)
        self._wake(self._driver is not None)
        try:
            if self._seats:
                cast.resize(self._look())
            while self._seats and self._page() == page and not over.done():
                self._news.clear()
                await self._news.wait()
            await self._hands.let_go()
        finally:
            self._cast = None
            self._hands.put_on(None)
            over.cancel()
            await cast.close()

    async def _wait_news(self, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._news.wait()
        except TimeoutError:
            return
