"""Which server to talk to, and with which credential, when the caller names neither.

A running server writes its address to `server.json` and its admin token to `admin.token` in the state directory. Both
are used together or not at all: the admin token of this machine is never sent to an address that came from elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from .. import config
from ..errors import NodeUnreachable

SERVER_FILE = "server.json"
TOKEN_FILE = "admin.token"


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
    token = token or environ.get("TABHERD_TOKEN")
    if url:
        return Endpoint(url=url.rstrip("/"), token=token)
    state = config.state_dir(environ)
    record = read_server_record(state)
    if record is None:
        raise NodeUnreachable(
            f"No tabherd server is running here (looked in {state}).",
            action="Start one with 'tabherd up', or set TABHERD_URL and TABHERD_TOKEN.",
        )
    return Endpoint(url=record.url.rstrip("/"), token=token or read_admin_token(state))
