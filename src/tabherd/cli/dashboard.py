"""`dashboard`: the address of the dashboard, logged in, and on request a browser that shows it.

The token travels in the part of the address behind #, which no browser sends to any server and which the page takes out
of its history at once.
"""

from __future__ import annotations

import os
import webbrowser

from ..client.discovery import discover
from ..client.sync import Tabherd
from .output import Voice


def address(url: str, token: str | None) -> str:
    """Where the dashboard is, for whoever has that token."""
    return f"{url.rstrip('/')}/" + (f"#token={token}" if token else "")


def show(voice: Voice, *, opens: bool) -> None:
    """Say where it is, once it is known that somebody answers there."""
    endpoint = discover()
    with Tabherd(endpoint.url, endpoint.token, patience_s=0) as herd:
        herd.health()
    where = address(endpoint.url, endpoint.token)
    is_open = opens and _opened(where)
    voice.answer({"url": where, "opened": is_open}, where)
    if opens and not is_open:
        voice.note(["No browser could be started here; open the address yourself."])


def _opened(where: str) -> bool:
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER")):
        return False
    return webbrowser.open(where)
