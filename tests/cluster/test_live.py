"""A tab is watched and taken over through any node: by a token, and by a login that another node gave."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from tests.live.viewer import watching
from tests.server.conftest import open_session
from tests.server.effects_site import EffectsSite

from .rig import CALM, Cluster, tab_of

pytestmark = [pytest.mark.server, pytest.mark.browser]

TIMES = CALM


@pytest.fixture
def tab(pair: Cluster, effects: EffectsSite) -> str:
    """On the first node."""
    pair.until_whole()
    host = pair.nodes[0]
    with host.client() as client:
        opened = open_session(client, agentId="ada", url=effects.url("/field"), keepAlive=True)
    assert opened["node"] == host.id
    return tab_of(opened)


async def typed(url: str, tab: str, **how: object) -> None:
    """Watch it there, take it over, type into its field, and give it back."""
    async with watching(url, tab, **how) as viewer:  # type: ignore[arg-type]
        await viewer.picture()
        await viewer.take()
        await viewer.press("Tab", "Tab")
        await viewer.press("x", "KeyX")
        await viewer.say("give")
        await viewer.state(lambda state: state["tab"]["state"] == "ready")


def value_at(client: httpx.Client, tab: str) -> str:
    body = {"kind": "evaluate", "expression": "field.value", "waitPolicy": "wait_with_timeout"}
    return str(client.post(f"/tabs/{tab}/action", json=body).json()["result"])


def test_a_tab_of_one_node_is_driven_through_the_other(pair: Cluster, tab: str) -> None:
    host, other = pair.nodes
    asyncio.run(typed(other.url, tab, token=host.token_of("ada")))
    with other.client() as client:
        assert value_at(client, tab) == "x"


def test_a_login_of_one_node_opens_the_view_through_the_other(pair: Cluster, tab: str) -> None:
    host, other = pair.nodes
    with httpx.Client(base_url=host.url, timeout=60) as person:
        login = person.post("/login", json={"token": host.token_of("ada")}).raise_for_status().json()
        cookie = "; ".join(f"{name}={value}" for name, value in person.cookies.items())
    headers = {"Cookie": cookie, "Origin": other.url}
    asyncio.run(typed(other.url, tab, headers=headers, csrf=login["csrf"]))
    with host.client() as client:
        assert value_at(client, tab) == "x"
