"""Logging in: what a person's browser sends, and what it is told about itself."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .base import Answer, Request


class LogIn(Request, frozen=True, kw_only=True):
    # Of an agent, or the admin's.
    token: Annotated[str, Meta(max_length=200)]


class Me(Answer, frozen=True, kw_only=True):
    """Who the caller is, as this server sees it."""

    agent_id: str
    scopes: list[str]
    # May see and do everything.
    is_admin: bool
    # Whether this server wants a credential at all.
    auth_enabled: bool
    node: str
    version: str
    # Of a login: when it ends by itself. RFC 3339.
    expires_at: str | None = None
    # Of a new login: the word to send as X-Csrf-Token with every request that the cookie stands for.
    csrf: str | None = None
