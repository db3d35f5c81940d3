"""A server that starts again answers nobody before it knows the sessions of its earlier life."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from .conftest import Server, open_session

pytestmark = [pytest.mark.server, pytest.mark.browser]

SESSIONS = 12


def test_owners_who_come_back_early_never_hear_that_their_sessions_are_over(own_server: Server) -> None:
    with own_server.agent("ada") as ada, ThreadPoolExecutor(1) as aside:
        sessions = [open_session(ada) for _ in range(SESSIONS)]
        last = sessions[-1]["tabs"][0]["tabId"]
        # Where they will look for it.
        port = str(ada.base_url.port)
        own_server.kill()
        starting = aside.submit(own_server.start, {"SERVER__PORT": port})
        heard: list[str] = []
        while not starting.done():
            try:
                answer = ada.get(f"/tabs/{last}")
            except httpx.TransportError:
                # It does not listen yet.
                continue
            heard.append(answer.json().get("code", "there"))
        starting.result()
        heard.append(ada.get(f"/tabs/{last}").json().get("code", "there"))
        assert set(heard) == {"there"}
