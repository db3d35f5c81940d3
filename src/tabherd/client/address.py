"""Where the server is now, for everything that talks to it, from whichever thread.

Invariant: address and credential are replaced together, so that no request carries the one's to the other.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .. import wire
from ..errors import InvalidRequest, NodeUnreachable
from .discovery import Endpoint, discover, find_here


class Address:
    """The address and the credential in use, and how to look for them again."""

    def __init__(self, url: str | None, token: str | None, agent: str | None, environ: Mapping[str, str]) -> None:
        self._token = token
        self._environ = environ
        # Whom an admin's credential acts for.
        self._agent = _checked(agent)
        self._now = discover(url, token, environ)

    @property
    def now(self) -> Endpoint:
        return self._now

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """What every request to it carries."""
        return endpoint.headers(self._agent)

    def look_again(self) -> bool:
        """A server that started anew may listen elsewhere; whether it does. One that was named stays where it is."""
        if not self._now.is_found:
            return False
        try:
            found = find_here(self._token, self._environ)
        except NodeUnreachable:
            # It has not started yet.
            return False
        # Nothing is known of certificates where none were needed before.
        if found == self._now or found.is_https != self._now.is_https:
            return False
        self._now = found
        return True


def _checked(agent: str | None) -> str | None:
    """It becomes a header: what is no agent's name never gets that far."""
    try:
        return msgspec.convert(agent, wire.Agent | None)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{agent!r} is not an agent's name: {error}.", field="agent") from None
