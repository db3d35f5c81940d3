"""The CDP endpoint: who may connect to which browser, and what all clients of one server have in common.

A client is admitted before its upgrade is answered: its credential or ticket is looked at, a session is joined or
leased (which may take its turn in the queue), and its own connection to that session's browser is opened. Whoever
leaves meanwhile leaves nothing behind. A session that was leased here is released when its client closes its browser,
and otherwise some time after its last socket is gone, unless it is to be kept.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from ... import logs, wire
from ...broker.broker import Broker
from ...broker.caller import Caller
from ...broker.registry import LiveSession, LiveTab
from ...browsers.endpoint import NotCdp, read_page
from ...browsers.port import BrowserGone, CdpFailure
from ...cluster import places
from ...cluster.hop import Hop
from ...config import Config
from ...core.gate import Hold
from ...errors import BrowserCrashed, LeaseLost, NoBrowser, TabherdError, TabNotFound
from ...metrics import Metrics
from ..auth import Address, Badge, Guard, act_for, as_controller
from ..routing import Routing
from ..sockets import Socket
from ..upgrade import Upgrade
from .first_document import RUN
from .house import Traffic
from .kept_back import EARLY
from .ownership import Ownership
from .parking import Parking
from .peer import user_of
from .plans import Plans
from .refusal import Refusal
from .rules import Kind, Tenancy
from .targets import TargetWatch
from .tenant import LEAVING, PARTING, Tenant
from .tickets import Tickets
from .tree import Node
from .wish import ConnectQuery, Wish, connect_query, wait_ms, wish_of

log = logs.get_logger("cdp")

BROWSER_PATH: Final = "/devtools/browser/"
PAGE_PATH: Final = "/devtools/page/"
# Of which methods a tenant takes note although they pass.
NOTED: Final = EARLY | LEAVING | PARTING | {RUN, "Page.enable"}
# How often a denied method of one client is written down; a hostile one sends thousands.
DENIALS_NOTED_MAX: Final = 100
# How long is waited before a client is told whether its browser is gone or only its page.
WHY_PAUSE_S: Final = 0.1
# How many methods are counted by their name.
DENIED_METHODS_MAX: Final = 200
# A client that shows an answer's body when it is refused needs no more; this one shows only the answers to commands.
_BLIND: Final = b"Puppeteer"


class Lodger(msgspec.Struct, eq=False, kw_only=True):
    """What the endpoint knows of one client."""

    id: str
    badge: Badge
    caller: Caller
    # Where it connects from.
    client: Address | None
    live: LiveSession
    # Of the browser that it is connected to.
    watch: TargetWatch
    # The tab whose page it is connected to; empty: the whole browser.
    tab_id: str
    # Whether the session was leased for it, and not joined.
    is_leaseholder: bool
    # Whether it lives by this connection; not so for guests.
    is_owner: bool
    # Turns it away when the session's deadline passes; nothing moves that.
    expiry: asyncio.TimerHandle
    denials: int = 0


class CdpEndpoint:
    """All CDP clients of one server."""

    def __init__(
        self,
        *,
        config: Config,
        broker: Broker,
        guard: Guard,
        metrics: Metrics,
        tickets: Tickets,
        port: int,
        routing: Routing | None = None,
    ) -> None:
        self.tickets = tickets
        self.registry = broker.registry
        self.traffic = Traffic()
        self._config = config
        self._broker = broker
        self._guard = guard
        self._metrics = metrics
        # The ways to other nodes; None: there are none.
        self._routing = routing
        self.is_trusted = None if routing is None else routing.is_trusted
        # On which this server listens.
        self._port = port
        self._numbers = itertools.count(1)
        self._lodgers: dict[Tenant, Lodger] = {}
        # By the browser's address; one that is being started is awaited by all who need it.
        self._watches: dict[str, asyncio.Task[TargetWatch]] = {}
        self._plans: dict[Tenancy, Plans] = {}
        # Those that are counted by their name: clients can make up any number of them.
        self._denied_methods: set[str] = set()
        # Work that goes on after its client has left.
        self._background: set[asyncio.Task[None]] = set()
        metrics.count_cdp(lambda: (self.traffic.from_clients, self.traffic.from_browsers))

    def reconfigure(self, config: Config) -> None:
        """Who connects from now on waits as these settings say."""
        self._config = config

    @property
    def doors(self) -> Mapping[str, Callable[[Upgrade], Coroutine[Any, Any, Socket]]]:
        """The paths under which sockets are opened."""
        return {"/": self.admit, BROWSER_PATH: self.admit, BROWSER_PATH[:-1]: self.admit, PAGE_PATH: self.admit_page}

    @property
    def wants_credential(self) -> bool:
        """Whether this server knows its callers by a credential."""
        return self._config.auth.enabled

    def deadline(self, view: wire.SessionView) -> int:
        """When the addresses of that session end to be good."""
        live = self.registry.session(view.session_id)
        return self._broker.clock() if live is None else live.row.deadline_at

    async def about(self) -> dict[str, Any]:
        """What a browser here says of itself; empty when there is none."""
        try:
            about: dict[str, Any] = msgspec.json.decode(await self._read("/json/version"))
        except (NoBrowser, msgspec.MsgspecError):
            return {}
        about.pop("webSocketDebuggerUrl", None)
        return about

    async def protocol(self) -> bytes:
        """The protocol of a browser here; raises `NoBrowser`."""
        return await self._read("/json/protocol")

    async def _read(self, path: str) -> bytes:
        browser = self._broker.any_browser()
        if browser is None:
            raise NoBrowser("No browser is ready yet.", retry_after_ms=1_000)
        address = urlsplit(browser.row.endpoint)
        try:
            return await read_page(address.hostname or "", address.port or 80, path)
        except (NotCdp, OSError, TimeoutError) as error:
            raise NoBrowser(f"The browser does not answer: {error}", retry_after_ms=1_000) from error

    # --- Getting in -------------------------------------------------------------------------------------------------

    async def admit(self, upgrade: Upgrade) -> Socket:
        """The door of a whole browser."""
        try:
            ticket = upgrade.path.removeprefix(BROWSER_PATH) if upgrade.path.startswith(BROWSER_PATH) else ""
            badge, wish = await self._identify(upgrade, ticket)
            await self.settle("session", wish.session, upgrade.hop)
            grant = "" if upgrade.hop is None else upgrade.hop.grant
            live, is_leaseholder = await self._session_for(badge, wish, grant)
            try:
                return await self._lodge(upgrade.client, badge, wish, live, is_leaseholder, None)
            except BaseException:
                if is_leaseholder:
                    self.spawn(self._release(live))
                raise
        except TabherdError as error:
            return self._refused(upgrade, error)

    async def admit_page(self, upgrade: Upgrade) -> Socket:
        """The door of one page."""
        try:
            badge, wish = await self._identify(upgrade, "")
            await self.settle("tab", upgrade.path.removeprefix(PAGE_PATH), upgrade.hop)
            tab = self._broker.tabs.find(badge.caller, upgrade.path.removeprefix(PAGE_PATH))
            if wish.session not in (None, tab.session.row.id):
                raise TabNotFound("That session has no such tab.")
            live = await self._broker.sessions.find(badge.caller, tab.session.row.id, wish.fence)
            return await self._lodge(upgrade.client, badge, wish, live, False, tab)
        except TabherdError as error:
            return self._refused(upgrade, error)

    async def settle(self, kind: places.Kind, id: str | None, hop: Hop | None) -> None:
        """Return unless another node has it; then that one serves the client."""
        if self._routing is not None and id is not None:
            await self._routing.settle(kind, id, hop)

    async def identify(self, head: Any, query: ConnectQuery, ticket: str = "") -> tuple[Badge, Wish]:
        """Who asks for what: by a ticket of ours, or by a credential and what the query says."""
        return await self._who(head, None, query, ticket)

    async def _identify(self, upgrade: Upgrade, ticket: str) -> tuple[Badge, Wish]:
        badge, wish = await self._who(upgrade.head, upgrade.client, connect_query.decode(upgrade.query), ticket)
        for scope in ("browse", "evaluate"):
            badge.caller.require(scope)
        return badge, wish

    async def _who(self, head: Any, client: Any, query: ConnectQuery, ticket: str) -> tuple[Badge, Wish]:
        if text := (ticket or query.ticket):
            read = self.tickets.read(text)
            badge = await self._guard.recognise(read.credential_id, client)
            agent_id, wish = read.agent_id, read.wish
        else:
            badge = await self._guard.welcome(head, client, query.token)
            agent_id, wish = query.agent or badge.caller.agent_id, wish_of(query)
        caller = act_for(badge.caller, agent_id, "agent")
        if wish.controller_id is not None:
            caller = as_controller(caller, wish.controller_id)
        return Badge(caller, badge.credential), wish

    async def _session_for(self, badge: Badge, wish: Wish, grant: str) -> tuple[LiveSession, bool]:
        """The session to connect to, and whether it was leased for it: in the place that is kept for it, if one is."""
        if wish.session is not None:
            return await self._broker.sessions.find(badge.caller, wish.session, wish.fence), False
        defaults = wire.OpenSession()
        pool = wish.pool if wish.pool is not None else defaults.pool
        settings = self._config.pools.get(pool)
        request = wire.OpenSession(
            pool=pool,
            key=wish.key if wish.key is not None else defaults.key,
            tier=wish.tier if wish.tier is not None else defaults.tier,
            deadline_ms=wish.deadline_ms,
            keep_alive=wish.keep_alive,
            wait_ms=wait_ms(wish, 0 if settings is None else settings.wait_ms),
        )
        return await self._broker.sessions.lease(badge.caller, request, grant=grant), True

    async def _lodge(
        self,
        client: Address | None,
        badge: Badge,
        wish: Wish,
        live: LiveSession,
        is_leaseholder: bool,
        tab: LiveTab | None,
    ) -> Tenant:
        """Connect a client to the browser of that session, or to one page of it."""
        fence = live.row.fence
        try:
            endpoint = live.require_browser().row.endpoint
            tenant = await self._make(badge, wish, live, tab, endpoint)
            url = (
                endpoint if tab is None else f"{endpoint.partition('/devtools/')[0]}/devtools/page/{tab.row.target_id}"
            )
            try:
                await tenant.connect(url)
                # It may have become somebody else's meanwhile; from here on the client is told.
                self._broker.sessions.check(live, fence)
            except BaseException:
                tenant.abandoned()
                raise
        except (BrowserGone, CdpFailure) as error:
            raise BrowserCrashed(
                f"The browser is gone: {error}", sessionId=live.row.id, retry_after_ms=1_000
            ) from error
        is_owner = live.row.agent_id == badge.caller.agent_id
        left_s = (live.row.deadline_at - self._broker.clock()) / 1000
        too_late = LeaseLost("The session's deadline has passed.", sessionId=live.row.id)
        lodger = Lodger(
            id=f"cdp_{next(self._numbers)}",
            badge=badge,
            caller=badge.caller,
            client=client,
            live=live,
            watch=tenant.watch,
            tab_id="" if tab is None else tab.row.id,
            is_leaseholder=is_leaseholder,
            is_owner=is_owner,
            expiry=asyncio.get_running_loop().call_later(left_s, tenant.detach, too_late),
        )
        self._lodgers[tenant] = lodger
        if is_owner:
            try:
                await self._broker.sessions.connect(live, lodger.id, tenant)
            except BaseException:
                tenant.abandoned()
                raise
        else:
            live.guests[lodger.id] = tenant
        return tenant

    async def _make(self, badge: Badge, wish: Wish, live: LiveSession, tab: LiveTab | None, endpoint: str) -> Tenant:
        settings = self._config.pools[live.row.pool]
        tenancy = Tenancy(
            is_shared=not live.row.context_id,
            is_alone=settings.isolation == "browser",
            shares_selection=settings.shares_selection,
        )
        plans = self._plans.get(tenancy)
        if plans is None:
            plans = self._plans[tenancy] = Plans(tenancy, NOTED)
        session_id, files = live.row.id, self._broker.files
        own = Ownership(
            live=live,
            tenancy=tenancy,
            # In a browser that is somebody's own, no page is ever made to wait for us.
            watch=await self._watch(endpoint, may_hold=settings.source == "launch"),
            registry=self.registry,
            proxy=live.require_browser().proxy,
            download_dir=lambda: files.download_dir(session_id),
            may_read=lambda path: files.may_read(session_id, path),
        )
        target_id = "" if tab is None else tab.row.target_id
        root = Node(Kind.ROOT if tab is None else Kind.PAGE, "", "", target_id, target_id)
        return Tenant(
            own=own,
            parking=Parking(self.registry, badge.caller.controller_id),
            plans=plans,
            house=self,
            root=root,
            may_wait=wish.cdp_wait_policy == "wait",
        )

    async def _watch(self, endpoint: str, *, may_hold: bool) -> TargetWatch:
        """The watch over the targets of that browser; one for all."""
        starting = self._watches.get(endpoint)
        if starting is not None and starting.done() and (starting.exception() or starting.result().is_closed):
            starting = None
        if starting is None:
            self._watches = {url: task for url, task in self._watches.items() if not _is_over(task)}
            starting = self._watches[endpoint] = asyncio.create_task(TargetWatch.start(endpoint, may_hold=may_hold))
        return await asyncio.shield(starting)

    def _refused(self, upgrade: Upgrade, error: TabherdError) -> Socket:
        """An answer with the error as its body; or, for a client that shows no such body, a socket that says it."""
        if upgrade.head.user_agent is None or not upgrade.head.user_agent.startswith(_BLIND):
            raise error
        self._metrics.rejected_total.inc(error.code)
        return Refusal(error)

    # --- What tenants tell ------------------------------------------------------------------------------------------

    def left(self, tenant: Tenant) -> None:
        """The client's socket is closed, or was never opened."""
        lodger = self._lodgers.pop(tenant, None)
        if lodger is None:
            return
        lodger.expiry.cancel()
        live = lodger.live
        live.guests.pop(lodger.id, None)
        if lodger.is_owner:
            self._broker.sessions.disconnect(live, lodger.id)
        self.spawn(self._allow_downloads(tenant, live))

    async def _allow_downloads(self, tenant: Tenant, live: LiveSession) -> None:
        """What the client had set for downloads goes with its connection to Chromium."""
        await tenant.wait_detached()
        if self.registry.is_bound(live):
            await self._broker.files.allow_downloads(live)

    def asked_to_close(self, tenant: Tenant) -> None:
        """The client closes its browser: the session that was leased for it is over, unless it is to be kept."""
        lodger = self._lodgers[tenant]
        if lodger.is_leaseholder and not lodger.live.row.keep_alive:
            self.spawn(self._release(lodger.live))

    def denied(self, tenant: Tenant, method: str) -> None:
        """The client tried what it may not do."""
        lodger = self._lodgers.get(tenant)
        if lodger is None:
            return
        lodger.denials += 1
        if len(self._denied_methods) < DENIED_METHODS_MAX:
            self._denied_methods.add(method)
        label = method if method in self._denied_methods else "other"
        self._metrics.cdp_denied_total.inc(label)
        if lodger.denials <= DENIALS_NOTED_MAX:
            self._broker.auditor.note(
                agent_id=lodger.caller.agent_id,
                controller_id=lodger.caller.controller_id,
                verb="cdp_denied",
                session_id=lodger.live.row.id,
                detail=method,
            )

    def held(self, page_id: str, hold: Hold) -> TabherdError:
        """What to tell a client that does not want to wait for a held tab."""
        tab = self.registry.on_target(page_id)
        if tab is None:
            return TabNotFound("The tab is closed.")
        return tab.gate.hold_refusal(hold, self._broker.clock())

    async def place(self, tenant: Tenant, guid: str, directory: str) -> None:
        """Put a download of the client's where it looks for it.

        Only for a client that runs as our own user on this machine, which could write there itself, and only in a
        directory that Playwright made for this (see `Files.place`).
        """
        lodger = self._lodgers.get(tenant)
        if lodger is None:
            return
        user = await asyncio.to_thread(user_of, lodger.client, self._port)
        if user == os.geteuid():
            await self._broker.files.place(lodger.live.row.id, guid, directory)

    def browser_ended(self, tenant: Tenant) -> None:
        """The client's connection to Chromium has ended, and not by us."""
        lodger = self._lodgers.get(tenant)
        if lodger is None:
            return
        session_id = lodger.live.row.id

        async def say_why() -> None:
            # Which of the two it was shows when the watch has heard of it, too.
            await asyncio.sleep(WHY_PAUSE_S)
            if lodger.tab_id and not lodger.watch.is_closed:
                tenant.close_with(TabNotFound("The tab is closed.", sessionId=session_id, tabId=lodger.tab_id))
            else:
                tenant.close_with(BrowserCrashed("The browser is gone.", sessionId=session_id, retry_after_ms=1_000))

        self.spawn(say_why())

    async def check_badge(self, tenant: Tenant) -> None:
        """A credential may be revoked while its sockets are open."""
        lodger = self._lodgers.get(tenant)
        if lodger is not None and (over := await self._guard.why_over(lodger.badge)) is not None:
            tenant.detach(over)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._finished)

    # --- Parts ------------------------------------------------------------------------------------------------------

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work failed", exc_info=error)

    async def _release(self, live: LiveSession) -> None:
        await self._broker.leases.end(live, "released")


def _is_over(task: asyncio.Task[TargetWatch]) -> bool:
    return task.done() and (task.exception() is not None or task.result().is_closed)
