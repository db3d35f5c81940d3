"""What the routes for people's browsers do: the dashboard's files, logging in and out, and who one is."""

from __future__ import annotations

from typing import Any

import msgspec

from .. import wire
from ..broker.caller import Caller
from ..broker.views import rfc3339
from . import assets
from .head import Head
from .reply import AS_JSON, Reply
from .route import Call, Service, headers_of


async def dashboard(service: Service, call: Call) -> Reply:
    return assets.find(assets.FRONT).reply(call.head)


async def asset(service: Service, call: Call) -> Reply:
    return assets.find(call.id).reply(call.head)


async def log_in(service: Service, call: Call) -> Reply:
    """Trade a token for a login. The token is not kept."""
    request: wire.LogIn = call.body
    if service.guard.is_open:
        return _answer(_me(service, await service.guard.identify(call.head, None)), {})
    credential, login = await service.guard.log_in(request.token)
    caller = Caller(agent_id=credential.agent_id, scopes=frozenset(credential.scopes), controller_id=credential.id)
    service.broker.auditor.note(agent_id=caller.agent_id, controller_id=credential.id, verb="login")
    cookie = service.guard.logins.set_cookie(login, is_secure=_is_secure(call.head))
    me = _me(service, caller, expires_at=rfc3339(login.expires_at), csrf=login.csrf)
    return _answer(me, {"set-cookie": cookie})


async def who(service: Service, call: Call) -> wire.Me:
    logins = service.guard.logins
    expires_at = None
    if call.head.authorization is None and logins.is_there(call.head.cookie) and not service.guard.is_open:
        expires_at = rfc3339(logins.read(call.head.cookie, call.head.csrf).expires_at)
    return _me(service, call.caller, expires_at=expires_at)


async def log_out(service: Service, call: Call) -> Reply:
    """Take the cookie away. Nobody need be logged in for that."""
    cookie = service.guard.logins.set_cookie(None, is_secure=_is_secure(call.head))
    return Reply(204, b"", headers_of({"set-cookie": cookie}))


def _me(service: Service, caller: Caller, **login: Any) -> wire.Me:
    return wire.Me(
        agent_id=caller.agent_id,
        scopes=sorted(caller.scopes),
        is_admin=caller.is_admin,
        auth_enabled=not service.guard.is_open,
        node=service.node_id,
        version=service.version,
        **login,
    )


def _answer(me: wire.Me, headers: dict[str, str]) -> Reply:
    return Reply(200, msgspec.json.encode(me), (*AS_JSON, *headers_of(headers)))


def _is_secure(head: Head) -> bool:
    """Whether the browser came over TLS, to a proxy before us."""
    return head.forwarded_proto == b"https"
