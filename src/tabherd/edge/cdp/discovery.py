"""Chrome's discovery pages, `/json/*`, for clients that look before they connect. Nothing here leases anything.

The addresses that they name carry a ticket of their caller, so that clients which drop headers and query can use them
as they stand. `/json/version` answers without a credential as well; then the upgrade must bring one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import unquote

from msgspec import Meta, structs

from ... import wire
from ...errors import AmbiguousTarget, SessionNotFound
from ..auth import act_for
from ..decode import QueryDecoder
from ..head import Head
from ..route import JSON, Call, Raw, Service, headers_of
from .endpoint import BROWSER_PATH, PAGE_PATH
from .wish import ConnectQuery, Wish

if TYPE_CHECKING:
    from ...broker.caller import Caller

# What Chromium says of itself, for as long as none is there to ask.
_ADDRESS: Final = re.compile(rb"(?i)(?:https?|about|data|blob)(?::|%3a)")
_UNKNOWN: Final = {"Browser": "Chrome", "Protocol-Version": "1.3"}


class NewQuery(ConnectQuery, frozen=True, kw_only=True):
    # First page. Chrome takes the whole query for it; so does this, when it is an address.
    url: Annotated[str, Meta(max_length=65_536)] | None = None


class NewQueryDecoder(QueryDecoder):
    """Reads `?url=...`, and Chrome's own form, in which the whole query is the address."""

    def decode(self, query: bytes) -> Any:
        if _ADDRESS.match(query):
            return NewQuery(url=unquote(query.decode("latin-1")))
        return super().decode(query)


async def version(service: Service, call: Call) -> dict[str, Any]:
    """What runs here, and where to connect."""
    query: ConnectQuery = call.query
    about = await service.cdp.about() or _UNKNOWN
    if (
        query.token is None
        and query.ticket is None
        and call.head.authorization is None
        and service.cdp.wants_credential
    ):
        return {**about, "webSocketDebuggerUrl": f"{ws_base(call.head)}{BROWSER_PATH[:-1]}"}
    badge, wish = await service.cdp.identify(call.head, query)
    ticket = query.ticket or service.cdp.tickets.sign(badge.credential.id, badge.caller.agent_id, wish)
    return {**about, "webSocketDebuggerUrl": f"{ws_base(call.head)}{BROWSER_PATH}{ticket}"}


async def protocol(service: Service, call: Call) -> Raw:
    """The protocol of the browsers that run here."""
    return Raw(await service.cdp.protocol(), headers_of({"content-type": JSON}))


async def targets(service: Service, call: Call) -> list[dict[str, Any]]:
    """The tabs that the caller may drive, as Chrome lists them."""
    caller, wish = _who(call)
    await service.cdp.settle("session", wish.session, call.hop)
    tabs = await _tabs_of(service, call, caller)
    mine = [tab for tab in tabs if wish.session in (None, tab.session_id)]
    return [_listed(service, call, caller, tab) for tab in mine]


async def new(service: Service, call: Call) -> dict[str, Any]:
    """One tab more in the caller's session."""
    caller, wish = _who(call)
    await service.cdp.settle("session", wish.session, call.hop)
    session_id = wish.session or _only_session(await _tabs_of(service, call, caller))
    if wish.session is None:
        await service.cdp.settle("session", session_id, call.hop)
    tab = await service.broker.commands.open_tab(caller, session_id, wire.OpenTab(url=call.query.url))
    return _listed(service, call, caller, tab)


async def activate(service: Service, call: Call) -> Raw:
    """Bring a tab to the front of its window."""
    caller, _ = _who(call)
    await service.broker.tabs.activate(caller, call.id)
    return Raw(b"Target activated", headers_of({"content-type": "text/plain"}))


async def close(service: Service, call: Call) -> Raw:
    """Close a tab."""
    caller, _ = _who(call)
    await service.broker.commands.run(caller, call.id, wire.Close())
    return Raw(b"Target is closing", headers_of({"content-type": "text/plain"}))


def with_addresses(service: Service, call: Call, view: wire.SessionView) -> wire.SessionView:
    """A session with the addresses under which its viewer can connect to it."""
    if view.state not in ("active", "recovering"):
        return view
    caller = call.caller
    agent_id = view.agent_id if caller.may_see(view.agent_id) else caller.agent_id
    ticket = service.cdp.tickets.sign(
        _credential_of(caller), agent_id, Wish(session=view.session_id, fence=view.fence), service.cdp.deadline(view)
    )
    base = http_base(call.head)
    return structs.replace(
        view,
        # Its node, for balancers that like to send those who know where they belong straight there.
        cdp_url=f"{base}?ticket={ticket}&node={view.node}",
        web_socket_debugger_url=f"{ws_base(call.head)}{BROWSER_PATH}{ticket}",
        live_url=f"{base}/#/tabs/{view.tabs[0].tab_id}/live" if view.tabs else "",
    )


def http_base(head: Head) -> str:
    """The address under which the caller reached us, as far as it or a proxy says."""
    host = (head.forwarded_host or head.host or b"").decode("latin-1").partition(",")[0].strip()
    is_secure = (head.forwarded_proto or b"").partition(b",")[0].strip().lower() in (b"https", b"wss")
    return f"{'https' if is_secure else 'http'}://{host}"


def ws_base(head: Head) -> str:
    return "ws" + http_base(head).removeprefix("http")


def _who(call: Call) -> tuple[Caller, ConnectQuery]:
    query: ConnectQuery = call.query
    return (call.caller if query.agent is None else act_for(call.caller, query.agent, "agent")), query


async def _tabs_of(service: Service, call: Call, caller: Caller) -> list[wire.TabView]:
    """The caller's own tabs, on all nodes."""
    tabs = service.broker.tabs.list(caller)
    if service.routing is not None and call.hop is None:
        tabs = await service.routing.all_tabs(tabs, _as_header(call), caller.agent_id)
    return [tab for tab in tabs.tabs if tab.agent_id == caller.agent_id]


def _as_header(call: Call) -> bytes | None:
    """The credential, wherever the caller put it."""
    query: ConnectQuery = call.query
    return call.head.authorization or (None if query.token is None else b"Bearer " + query.token.encode("latin-1"))


def _only_session(tabs: list[wire.TabView]) -> str:
    found = sorted({tab.session_id for tab in tabs})
    if not found:
        raise SessionNotFound("You have no session.", action="Connect or POST /sessions first, or name one: ?session=.")
    if len(found) > 1:
        raise AmbiguousTarget("You have several sessions.", action="Name one: ?session=.", candidates=found[:20])
    return found[0]


def _listed(service: Service, call: Call, caller: Caller, tab: wire.TabView) -> dict[str, Any]:
    ticket = service.cdp.tickets.sign(_credential_of(caller), caller.agent_id, Wish(session=tab.session_id))
    return {
        "description": "",
        "id": tab.tab_id,
        "title": tab.title,
        "type": "page",
        "url": tab.url,
        "webSocketDebuggerUrl": f"{ws_base(call.head)}{PAGE_PATH}{tab.tab_id}?ticket={ticket}",
    }


def _credential_of(caller: Caller) -> str:
    return caller.controller_id.partition("/")[0]
