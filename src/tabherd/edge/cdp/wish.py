"""What a CDP client asks for in its address: which session to join or to lease, and how."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from ... import wire
from ..decode import QueryDecoder

# How long an upgrade may wait for a session: clients give up after 30 s, and would not hear why.
WAIT_MAX_MS: Final = 25_000


class Wish(wire.Request, frozen=True, kw_only=True, omit_defaults=True):
    """What to open."""

    # Join this session instead of leasing one; refuse unless it is still at this fence.
    session: wire.Identifier | None = None
    fence: int | None = None
    # For a session that is leased; as in `POST /sessions`.
    pool: wire.Name | None = None
    key: wire.Name | None = None
    tier: wire.Name | None = None
    keep_alive: bool = False
    wait_ms: Annotated[int, Meta(ge=0)] | None = None
    deadline_ms: Annotated[int, Meta(ge=1_000, le=wire.DEADLINE_MAX_MS)] | None = None
    # The name under which tab locks and commands of this controller count as its own.
    controller_id: wire.Name | None = None
    # While somebody else holds a tab: wait for it, or be refused.
    cdp_wait_policy: Literal["wait", "fail"] = "wait"


class ConnectQuery(Wish, frozen=True, kw_only=True, omit_defaults=True):
    """The query of an address that clients connect to."""

    # The credential, for clients that cannot set headers.
    token: Annotated[str, Meta(max_length=200)] | None = None
    # Whom an admin acts for.
    agent: wire.Agent | None = None
    # The node that has the session, as the address said that was given out: for balancers, nobody here reads it.
    node: wire.Identifier | None = None
    # An address that this server gave out carries all of it.
    ticket: Annotated[str, Meta(max_length=2_000)] | None = None


connect_query: Final = QueryDecoder(ConnectQuery)


def wait_ms(wish: Wish, pool_wait_ms: int) -> int:
    """How long the upgrade may wait for a session: what the client says or else the pool, and never too long."""
    return min(pool_wait_ms if wish.wait_ms is None else wish.wait_ms, WAIT_MAX_MS)


def wish_of(query: ConnectQuery) -> Wish:
    """The wish without the credential."""
    return Wish(**{name: getattr(query, name) for name in Wish.__struct_fields__})
