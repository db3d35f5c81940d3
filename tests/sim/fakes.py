"""Fake browsers and a fallible store: what the simulated broker touches instead of the world.

A `Life` is one life of the broker between two kills. Whatever a dead life still tries to do to the world never
happens: its calls wait for ever, as those of a killed process do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from tabherd import wire
from tabherd.actions.progress import Progress
from tabherd.browsers.dialogs import Dialogs
from tabherd.browsers.port import (
    BrowserGone,
    CdpFailure,
    DownloadListener,
    LaunchFailed,
    Listener,
    Origins,
    Page,
    PageEnd,
    PageListener,
    TabGone,
    Usage,
    Viewport,
)
from tabherd.core.lease import OwnerProcess
from tabherd.core.model import Browser, RowT, changed
from tabherd.errors import OutcomeUnknown, StoreUnavailable
from tabherd.store.base import IN_DOUBT, Add, Op, Outcome
from tabherd.store.memory import MemoryStore

# Where files of sessions would be. No fake page saves any, and on virtual time nobody can wait for a thread.
NO_FILES = Path("/nonexistent/files")
# How long an answer of a browser may take that is late.
LATE_MS = 400.0


class Violation(AssertionError):
    """An invariant did not hold."""


class Chance(Protocol):
    """Decides how long each step takes."""

    def random(self) -> float: ...


class Life:
    """One life of the broker. `step` is every moment at which the world may move in between."""

    def __init__(self, chance: Chance, tell: Callable[[str], None]) -> None:
        self.chance = chance
        self.tell = tell
        self.is_dead = False
        # Set when the whole simulation ends, so that what a dead life left can be cleared away.
        self.is_over = False
        # Calls of this life after its death; kept, so that nothing of it is collected in the middle of a history.
        self._never: list[asyncio.Future[None]] = []

    async def step(self, most_ms: float = 3.0) -> None:
        if self.is_dead or self.is_over:
            await self.alive()
        await asyncio.sleep(self.chance.random() * most_ms / 1000)
        if self.is_dead or self.is_over:
            await self.alive()

    def strikes(self, what: str, rate: float) -> bool:
        """Whether that goes wrong now."""
        return self.chance.random() < rate

    def hears(self, news: Callable[..., None], *what: Any) -> None:
        """The world tells it something."""
        if not self.is_dead:
            news(*what)

    def wrote(self) -> None:
        """Something is on disk that nobody has been told of yet."""

    def puts_cookies(self, context_id: str) -> None:
        """Cookies are about to be in that context."""

    async def alive(self) -> None:
        """Returns at once in a living broker, and never in a dead one."""
        if self.is_over:
            raise asyncio.CancelledError
        if self.is_dead:
            never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._never.append(never)
            await never


class SimStore:
    """The durable store as one life sees it: late, and sometimes refusing."""

    def __init__(
        self, disk: MemoryStore, life: Life, *, fail_rate: float, lose_rate: float = 0.0, drop_caps: bool
    ) -> None:
        self._disk = disk
        self._life = life
        self._fail_rate = fail_rate
        # How often a write happens, and nobody hears of it.
        self._lose_rate = lose_rate
        self._drop_caps = drop_caps

    async def apply(self, *ops: Op) -> Outcome:
        await self._life.step()
        if self._life.strikes("write fails", self._fail_rate):
            raise StoreUnavailable("the simulated disk is full", cause="full")
        if self._drop_caps:
            ops = tuple(Add(op.counter, op.delta) if isinstance(op, Add) else op for op in ops)
        outcome = self._disk.write(*ops)
        self._life.wrote()
        await self._life.step()
        if self._lose_rate and self._life.strikes("answer of a write is lost", self._lose_rate):
            raise StoreUnavailable("the connection to the simulated disk is lost", cause=IN_DOUBT)
        return outcome

    async def get(self, table: type[RowT], id: str) -> RowT | None:
        await self._life.step(1.0)
        return self._disk.find(table, id)

    async def select(self, table: type[RowT], where: Mapping[str, Any] | None = None, **more: Any) -> list[RowT]:
        await self._life.step(1.0)
        return self._disk.list_rows(table, where, **more)

    async def counter(self, name: str) -> int:
        await self._life.step(1.0)
        return self._disk.count(name)

    async def close(self) -> None:
        """The disk outlives its users."""


class SimMarks:
    """Marks as one life sets them; the dictionary is the file."""

    def __init__(self, file: dict[int, tuple[str, str]], life: Life) -> None:
        self._file = file
        self._life = life
        self._next = max(file, default=0)

    def left(self) -> dict[str, int]:
        return {marked_id: mark for mark, (marked_id, _) in self._file.items()}

    def set(self, marked_id: str, command_id: str) -> int:
        self._next += 1
        if not self._life.is_dead:
            self._file[self._next] = (marked_id, command_id)
        return self._next

    def clear(self, mark: int) -> None:
        if not self._life.is_dead:
            del self._file[mark]


class Target:
    """One page: who may act on it, and what acts on it now."""

    def __init__(self, target_id: str, context: Context) -> None:
        self.target_id = target_id
        self.context = context
        self.url = "about:blank"
        self.title = ""
        # The page that opened it; empty when the broker or a person did.
        self.opener_id = ""
        # What the broker has set.
        self.viewport: Viewport | None = None
        self.is_frozen = False
        self.is_closed = False
        # Its renderer died: it is still listed, and answers nobody.
        self.is_crashed = False
        # Whether a command was ever sent to it.
        self.is_touched = False
        # The command at work in the page. It stays after its caller gave up: only closing the page ends it.
        self.active: str | None = None


class SimOwners:
    """The processes that owners named, as one life of the broker watches them; `alive` is the process table."""

    def __init__(self, alive: set[int], clock: Callable[[], int]) -> None:
        self._alive = alive
        self._clock = clock
        self._pids: dict[str, int] = {}
        self._died_at: dict[str, int] = {}
        self._on_death: dict[str, Callable[[], None]] = {}

    def identify(self, pid: int, start_time: float | None) -> int:
        return pid

    def watch(self, session_id: str, pid: int, started_ticks: int, on_death: Callable[[], None]) -> None:
        self._pids[session_id], self._on_death[session_id] = pid, on_death

    def state(self, session_id: str) -> OwnerProcess:
        pid = self._pids.get(session_id)
        if pid is None:
            return OwnerProcess.NONE
        return OwnerProcess.ALIVE if pid in self._alive else OwnerProcess.DEAD

    def died_at(self, session_id: str) -> int:
        return self._died_at.setdefault(session_id, self._clock())

    def forget(self, session_id: str) -> None:
        self._pids.pop(session_id, None)

    def die(self, pid: int) -> None:
        """The kernel tells at once."""
        for session_id in [session_id for session_id, known in self._pids.items() if known == pid]:
            self._died_at[session_id] = self._clock()
            self._on_death[session_id]()

    def close(self) -> None:
        self._pids.clear()


class Context:
    """What a session has to itself: its pages, its cookies and its localStorage."""

    def __init__(self) -> None:
        self.targets: dict[str, Target] = {}
        self.cookies: list[dict[str, Any]] = []
        # By origin.
        self.local_storage: dict[str, dict[str, str]] = {}
        # Where files go that its pages save, and who hears of them; None: they may save none.
        self.downloads: tuple[str, DownloadListener] | None = None


class Process:
    """A fake Chromium process; it outlives the broker that started it."""

    def __init__(self, row: Browser) -> None:
        self.row = row
        self.is_alive = True
        # Alive, but answers nobody: what SIGSTOP does.
        self.is_hung = False
        # Whether it uses the processor all the time.
        self.is_at_work = False
        self.contexts: dict[str, Context] = {}
        # The browser's own profile, which no id names.
        self.profile = Context()
        # Every page it ever had.
        self.made: dict[str, Target] = {}
        # Downloads that the broker has ended.
        self.cancelled_downloads: list[str] = []
        # Whom it tells about its pages, in the present life of the broker.
        self.listener: PageListener | None = None
        self.on_death: list[asyncio.Future[str]] = []

    @property
    def targets(self) -> dict[str, Target]:
        contexts = [self.profile, *self.contexts.values()]
        return {id: target for context in contexts for id, target in context.targets.items()}

    def context(self, context_id: str) -> Context:
        """That context; without an id the browser's own profile."""
        return self.contexts[context_id] if context_id else self.profile

    def describe(self, target: Target) -> Page:
        context_id = next((id for id, context in self.contexts.items() if context is target.context), "")
        return Page(
            target_id=target.target_id,
            context_id=context_id,
            url=target.url,
            title=target.title,
            opener_id=target.opener_id,
        )

    def open_page(self, target_id: str, context: Context, url: str = "about:blank", opener_id: str = "") -> Target:
        """A page that the broker did not make: a script opened it, or, without an opener, a person."""
        target = Target(target_id, context)
        target.url, target.opener_id = url, opener_id
        context.targets[target_id] = self.made[target_id] = target
        if opener_id and self.listener is not None:
            self.listener.page_opened(self.describe(target))
        return target

    def move_page(self, target: Target, url: str, title: str = "") -> None:
        """The page goes elsewhere."""
        target.url, target.title = url, title
        if self.listener is not None:
            self.listener.page_moved(target.target_id, url, title)

    def crash_page(self, target: Target) -> None:
        """The renderer of one page dies."""
        target.is_crashed = True
        if self.listener is not None:
            self.listener.page_ended(target.target_id, PageEnd.CRASHED)

    def close_page(self, target: Target) -> None:
        """The page ends, by whoever's hand; of one that crashed before that is not told again."""
        target.is_closed = True
        target.context.targets.pop(target.target_id, None)
        if self.listener is not None and not target.is_crashed:
            self.listener.page_ended(target.target_id, PageEnd.CLOSED)

    def die(self, reason: str) -> None:
        self.is_alive = False
        self.contexts.clear()
        self.profile.targets.clear()
        for waiter in self.on_death:
            if not waiter.done():
                waiter.set_result(reason)


class SimTab:
    def __init__(self, browser: SimBrowser, target: Target) -> None:
        self.browser = browser
        self.target = target
        self.target_id = target.target_id
        self.cdp_session_id = f"attached-{target.target_id}"
        self.dialogs = Dialogs(browser.accepts_dialogs)
        self.script: tuple[int, str] | None = None

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        raise NotImplementedError("the simulator replaces the action engine")

    async def ping(self) -> None:
        await self.act()

    async def calm(self) -> None:
        await self.act()

    async def freeze(self) -> None:
        await self.act()
        self.target.is_frozen = True

    def thaw(self) -> None:
        self.target.is_frozen = False

    async def set_viewport(self, viewport: Viewport) -> None:
        await self.act()
        self.target.viewport = viewport

    async def act(self) -> None:
        """One round trip to the page."""
        await self.browser._call()
        if self.target.is_closed or self.target.is_crashed:
            raise TabGone("the page is gone", was_sent=False)

    def listen(self, method: str, listener: Listener) -> Callable[[], None]:
        return lambda: None


class LivingListener:
    """Tells the broker about pages, as long as that life of it lasts."""

    def __init__(self, listener: PageListener, life: Life, twice_rate: float = 0.0) -> None:
        self._listener = listener
        self._life = life
        # How often news are told a second time.
        self._twice_rate = twice_rate

    def _is_twice(self) -> bool:
        return bool(self._twice_rate) and self._life.strikes("news of a page come twice", self._twice_rate)

    def page_opened(self, page: Page) -> None:
        for _ in range(2 if self._is_twice() else 1):
            self._life.hears(self._listener.page_opened, page)

    def page_ended(self, target_id: str, how: PageEnd) -> None:
        for _ in range(2 if self._is_twice() else 1):
            self._life.hears(self._listener.page_ended, target_id, how)

    def page_moved(self, target_id: str, url: str, title: str) -> None:
        self._life.hears(self._listener.page_moved, target_id, url, title)

    def answers_dialogs(self, target_id: str) -> bool:
        return self._listener.answers_dialogs(target_id)

    def accepts_dialogs(self) -> bool:
        return self._listener.accepts_dialogs()


class SimBrowser:
    """A process as one life of the broker holds it."""

    def __init__(self, process: Process, life: Life, mint: Callable[[str], str], late_rate: float = 0.0) -> None:
        self.process = process
        self.row = process.row
        self.proxy: Mapping[str, str] = {}
        self._life = life
        self._mint = mint
        # How often it takes far longer than usual for an answer.
        self._late_rate = late_rate

    def accepts_dialogs(self) -> bool:
        return self.process.listener is not None and self.process.listener.accepts_dialogs()

    async def watch_pages(self, listener: PageListener) -> None:
        await self._call()
        self.process.listener = LivingListener(listener, self._life, self._late_rate)

    async def new_context(self) -> str:
        await self._call()
        context_id = self._mint("context")
        self.process.contexts[context_id] = Context()
        await self._call()
        return context_id

    async def new_tab(self, context_id: str) -> SimTab:
        await self._call()
        context = self.process.context(context_id)
        target = Target(self._mint("target"), context)
        context.targets[target.target_id] = self.process.made[target.target_id] = target
        await self._call()
        return SimTab(self, target)

    async def attach_tab(self, target_id: str) -> SimTab:
        await self._call()
        target = self.process.targets.get(target_id)
        if target is None or target.is_crashed:
            raise TabGone("the page is gone", was_sent=False)
        return SimTab(self, target)

    async def let_go(self, target_id: str) -> None:
        await self._call()

    async def cookies(self, context_id: str) -> list[dict[str, Any]]:
        await self._call()
        if context_id and context_id not in self.process.contexts:
            raise CdpFailure("Storage.getCookies", -32602, "Failed to find context")
        return list(self.process.context(context_id).cookies)

    async def set_cookies(self, context_id: str, cookies: list[dict[str, Any]]) -> None:
        await self._call()
        self._life.puts_cookies(context_id)
        self.process.context(context_id).cookies += cookies

    async def local_storage(self, target_id: str, patience_s: float = 0.0) -> tuple[str, dict[str, str]] | None:
        await self._call()
        target = self.process.targets.get(target_id)
        if target is None or target.is_crashed:
            raise TabGone("the page is gone", was_sent=False)
        origin = origin_of(target.url)
        return (origin, dict(target.context.local_storage.get(origin, {}))) if origin else None

    async def put_local_storage(self, context_id: str, origins: Origins) -> None:
        await self._call()
        for origin, items in origins.items():
            self.process.context(context_id).local_storage.setdefault(origin, {}).update(items)

    def allow_downloads(self, context_id: str, directory: str, listener: DownloadListener) -> None:
        if context_id in self.process.contexts and not self._life.is_dead:
            self.process.contexts[context_id].downloads = (directory, listener)

    async def forbid_downloads(self, context_id: str) -> None:
        await self._call()
        if context_id in self.process.contexts:
            self.process.contexts[context_id].downloads = None

    def cancel_download(self, guid: str) -> None:
        self.process.cancelled_downloads.append(guid)

    async def context_ids(self) -> list[str]:
        await self._call()
        return list(self.process.contexts)

    async def pages(self) -> list[Page]:
        await self._call()
        return [self.process.describe(target) for target in self.process.targets.values()]

    def worked_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000) if self.process.is_at_work else 0

    async def probe(self) -> Usage:
        await self._call()
        return Usage()

    async def close_tab(self, target_id: str) -> None:
        await self._call()
        if target := self.process.targets.get(target_id):
            self.process.close_page(target)
        await self._call()

    async def dismiss_tab(self, target_id: str) -> None:
        await self.close_tab(target_id)

    async def give_up_tab(self, target_id: str) -> None:
        await self.close_tab(target_id)

    async def end_workers(self, context_id: str, target_id: str) -> None:
        await self._call()

    async def dispose_context(self, context_id: str) -> None:
        await self._call()
        context = self.process.contexts.pop(context_id, Context())
        for target in list(context.targets.values()):
            self.process.close_page(target)
        await self._call()

    async def wait_gone(self) -> str:
        if not self.process.is_alive:
            return "was dead"
        waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.process.on_death.append(waiter)
        reason = await waiter
        await self._life.step()
        return reason

    async def stop(self) -> None:
        await self._life.step()
        self.process.die("stopped")

    async def _call(self) -> None:
        while self.process.is_hung and self.process.is_alive:
            await self._life.step(100.0)
        if not self.process.is_alive:
            await self._life.step(0.1)
            raise BrowserGone("the process is dead", was_sent=False)
        is_late = self._late_rate and self._life.strikes("browser answers late", self._late_rate)
        await self._life.step(LATE_MS if is_late else 3.0)
        if not self.process.is_alive:
            raise BrowserGone("the process died", was_sent=True)


class SimLauncher:
    """Starts fake processes; `processes` is the machine's process table and survives every life."""

    def __init__(
        self,
        processes: dict[str, Process],
        life: Life,
        mint: Callable[[str], str],
        fail_rate: float,
        late_rate: float = 0.0,
    ) -> None:
        self._processes = processes
        self._life = life
        self._mint = mint
        self._fail_rate = fail_rate
        self._late_rate = late_rate

    async def launch(self, row: Browser) -> SimBrowser:
        await self._life.step(50.0)
        if self._life.strikes("browser does not start", self._fail_rate):
            raise LaunchFailed("the simulated binary exits at once")
        process = Process(changed(row, pid=len(self._processes) + 1))
        self._processes[row.id] = process
        try:
            await self._life.step(50.0)
        except asyncio.CancelledError:
            # Whoever asked for it has gone: nothing is left behind.
            process.die("unwanted")
            raise
        return SimBrowser(process, self._life, self._mint, self._late_rate)

    async def adopt(self, row: Browser) -> SimBrowser | None:
        await self._life.step()
        process = self._processes.get(row.id)
        if process is None or not process.is_alive or process.is_hung:
            return None
        process.row = row
        return SimBrowser(process, self._life, self._mint, self._late_rate)

    async def reap_strays(self, node_id: str, known: Collection[str]) -> int:
        await self._life.step()
        strays = [process for id, process in self._processes.items() if process.is_alive and id not in known]
        for process in strays:
            process.die("stray")
        return len(strays)

    async def reap(self, row: Browser) -> None:
        await self._life.step()
        if process := self._processes.get(row.id):
            process.die("reaped")


def origin_of(url: str) -> str:
    """scheme://host of a web page; empty for other addresses."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else ""


async def sim_perform(
    tab: SimTab, action: wire.AnyAction, progress: Progress, acted: Callable[[], None] = lambda: None
) -> Any:
    """Act on a fake page. `hang` never ends by itself and, like a real page, does not stop when its caller does.

    `acted` is called when it has reached the page.
    """
    target = tab.target
    if isinstance(action, wire.Navigate):
        await tab.act()
        tab.browser.process.move_page(target, action.url)
        return {"url": action.url, "title": ""}
    assert isinstance(action, wire.Evaluate)
    target.is_touched = True
    if target.active is not None and tab.browser.process.is_alive and not target.is_crashed:
        raise Violation(f"{action.expression} starts on {target.target_id} while {target.active} is at work in it")
    await tab.act()
    progress.acts()
    acted()
    target.active = action.expression
    if action.expression.endswith("hang"):
        await asyncio.get_running_loop().create_future()
    await tab.browser._life.step(20.0)
    if target.is_crashed:
        raise OutcomeUnknown("the page crashed")
    if not tab.browser.process.is_alive:
        raise BrowserGone("the process died", was_sent=True)
    target.active = None
    return action.expression
