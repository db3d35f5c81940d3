"""Which server to talk to, and with which credential, when the caller names neither.

A running server writes its address to `server.json` and its admin token to `admin.token` in the state directory. Both
are used together or not at all: the admin token of this machine is never sent to an address that came from elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from .. import config
from ..errors import InvalidRequest, NodeUnreachable

SERVER_FILE = "server.json"
TOKEN_FILE = "admin.token"
# What may stand in a header; a line break would begin another one.
_TOKEN = re.compile(r"[\x21-\x7e]+")


class ServerRecord(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """What `server.json` says while a server runs."""

    url: str
    pid: int
    node_id: str


class Endpoint(msgspec.Struct, kw_only=True, frozen=True):
    """An address and the credential that goes with it."""

    url: str
    # Absent when the server runs without auth, or when the caller means to send none.
    token: str | None
    # It is the server of this machine's state directory, which says there where it listens each time it starts.
    is_found: bool = False

    @property
    def is_https(self) -> bool:
        return self.url.startswith("https:")

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine, so that no proxy may come between."""
        return self.is_found or config.is_loopback(urlsplit(self.url).hostname or "")

    def headers(self, agent: str | None) -> dict[str, str]:
        """What every request carries; `agent`: whom an admin's credential acts for."""
        named = {} if agent is None else {"X-Agent-Id": agent}
        return named if self.token is None else named | {"Authorization": f"Bearer {self.token}"}


def read_server_record(state: Path) -> ServerRecord | None:
    """The record, or None when no server has left one. A record that cannot be understood is an error."""
    path = state / SERVER_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=ServerRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise NodeUnreachable(
            f"{path} cannot be read: {error}.", action=f"Remove {path} and start the server again with 'tabherd up'."
        ) from None


def read_admin_token(state: Path) -> str | None:
    """The admin token, or None when the server has none (it runs without auth)."""
    path = state / TOKEN_FILE
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise NodeUnreachable(
            f"{path} cannot be read: {error}.", action="Run as the user who started the server, or set TABHERD_TOKEN."
        ) from None


def discover(url: str | None = None, token: str | None = None, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """Arguments, then TABHERD_URL and TABHERD_TOKEN, then the server of this machine's state directory."""
    url = url or environ.get("TABHERD_URL")
    if url:
        return _checked(Endpoint(url=url.rstrip("/"), token=token or environ.get("TABHERD_TOKEN")))
    return find_here(token, environ)


def find_here(token: str | None, environ: Mapping[str, str]) -> Endpoint:
    """The server of this machine's state directory, with its admin token unless there is another."""
    state = config.state_dir(environ)
    record = read_server_record(state)
    if record is None:
        raise NodeUnreachable(
            f"No tabherd server is running here (looked in {state}).",
            action="Start one with 'tabherd up', or set TABHERD_URL and TABHERD_TOKEN.",
        )
    token = token or environ.get("TABHERD_TOKEN") or read_admin_token(state)
    return _checked(Endpoint(url=record.url.rstrip("/"), token=token, is_found=True))


def _checked(endpoint: Endpoint) -> Endpoint:
    """What cannot be an address or a token is refused here, rather than by whatever stumbles over it later."""
    try:
        parts = urlsplit(endpoint.url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.query or parts.fragment or parts.username is not None:
        raise InvalidRequest(
            f"'{endpoint.url}' is not the address of a server.",
            action="Give it as http://HOST:PORT, and the token apart from it.",
            field="url",
        )
    # Never shown: it is a secret even when it is mistyped.
    if endpoint.token is not None and not _TOKEN.fullmatch(endpoint.token):
        raise InvalidRequest("The token has characters that no token has.", field="token")
    return endpoint
